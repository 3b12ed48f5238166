"""pyinfra's SSH as the transport, and the connector, against a real sshd."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from nearsocket.control.target import Ssh
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.control.transport import paramiko as subject
from nearsocket.control.transport.paramiko import PyinfraSsh, connect_error
from nearsocket.control.transport.process import Children
from tests.control.server import Keys, Server, serving, wrapper


def run(ssh: Ssh, command: str = "cat", stdin: bytes = b"hello", timeout_s: float = 20.0) -> bytes:
    return PyinfraSsh(ssh).run(command, stdin, timeout_s, Children()).stdout


def trouble(ssh: Ssh, command: str = "cat", timeout_s: float = 20.0) -> TransportError:
    with pytest.raises(TransportError) as caught:
        run(ssh, command, timeout_s=timeout_s)
    assert "\n" not in caught.value.message
    return caught.value


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def test_binary_input_of_a_megabyte_comes_back_whole_over_one_exec(server: Server) -> None:
    data = bytes(range(256)) * 4096
    before = len(server.sessions())
    assert run(server.ssh(), stdin=data) == data
    assert len(server.sessions()) == before + 1


def test_nagle_is_off_on_the_connection(server: Server) -> None:
    connector = PyinfraSsh(server.ssh())._connector(10)
    connector.connect()
    try:
        assert connector.client.get_transport().sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        connector.client.close()


def test_an_unknown_host_key_is_refused_and_not_learnt(server: Server, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    assert trouble(server.ssh(known_hosts_file=str(empty))).trouble is Trouble.HOST_KEY_UNKNOWN
    assert empty.read_text() == ""


def test_a_changed_host_key_is_refused(keys: Keys, server: Server, place: Path) -> None:
    with serving(place, keys) as own:
        known = place / "known"
        known.write_text(server.known_hosts.read_text().replace(str(server.port), str(own.port)))
        assert trouble(own.ssh(known_hosts_file=str(known))).trouble is Trouble.HOST_KEY_CHANGED


def test_a_key_that_nobody_knows_is_permission_denied(server: Server, keys: Keys) -> None:
    assert trouble(server.ssh(key=str(keys.stranger))).trouble is Trouble.DENIED


def test_a_password_that_is_wrong_is_permission_denied_and_not_shown(server: Server, keys: Keys) -> None:
    error = trouble(server.ssh(key=str(keys.stranger), password="hunter2"))
    assert error.trouble is Trouble.DENIED
    assert "hunter2" not in error.message + error.evidence


def test_a_port_where_nobody_listens_is_refused(server: Server) -> None:
    assert trouble(server.ssh(port=1)).trouble is Trouble.REFUSED


def test_a_hung_command_is_given_up_at_the_limit(keys: Keys, place: Path) -> None:
    with serving(place, keys, wrapper(place.parent, f"echo $$ >{place}/hung.pid; exec sleep 60")) as own:
        began = time.monotonic()
        assert trouble(own.ssh(), timeout_s=2).trouble is Trouble.TIMEOUT
        assert time.monotonic() - began < 6


def test_an_interrupt_ends_a_wait(keys: Keys, place: Path) -> None:
    with serving(place, keys, wrapper(place.parent, f"echo $$ >{place}/hung.pid; exec sleep 60")) as own:
        children = Children()
        children.end_all()
        began = time.monotonic()
        with pytest.raises(TransportError):
            PyinfraSsh(own.ssh()).run("cat", b"", 30, children)
        assert time.monotonic() - began < 10


def test_ends_of_the_program_are_told_apart(server: Server) -> None:
    assert trouble(server.ssh(), "exit 127").trouble is Trouble.NO_PYTHON
    assert trouble(server.ssh(), "echo boom >&2; exit 3").message.endswith("found 3 (boom)")
    assert trouble(server.ssh(), "kill -9 $$").trouble is Trouble.KILLED


def test_an_answer_without_end_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "LARGEST_ANSWER_BYTES", 1 << 20)
    assert trouble(server.ssh(), "exec cat /dev/zero").trouble is Trouble.ANSWER


WORDS = [
    ("Could not resolve hostname ([Errno -2] Name or service not known)", Trouble.RESOLVE),
    ("Could not connect ([Errno 113] No route to host)", Trouble.UNREACHABLE),
    ("Could not connect (timed out)", Trouble.UNREACHABLE),
    ("Could not connect ([Errno 101] Network is unreachable)", Trouble.UNREACHABLE),
    ("SSH error (Unable to connect to port 22 on 10.0.0.1)", Trouble.REFUSED),
    ("SSH error (something new)", Trouble.SSH),
]


@pytest.mark.parametrize(("words", "expected"), WORDS)
def test_pyinfras_words_are_understood(words: str, expected: Trouble) -> None:
    assert connect_error(words, "gpu1").trouble is expected

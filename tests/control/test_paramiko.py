"""pyinfra's SSH as the transport, and the connector, against a real sshd."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nearsocket.control.rollout import connect
from nearsocket.control.target import Ssh, Target, Way
from nearsocket.control.through_pyinfra import OpenConnection
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.control.transport import paramiko as subject
from nearsocket.control.transport.paramiko import PyinfraSsh, connect_error
from nearsocket.control.transport.process import Children
from tests.control.server import Keys, Server, quietly, serving, wrapper


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
    assert connect_error(words, Ssh("gpu1")).trouble is expected


def test_a_login_by_hand_names_address_user_port_and_key() -> None:
    ssh = Ssh("192.0.2.7", "root", 2222, "~/.ssh/fleet", known_hosts_file="/etc/known hosts")
    hint = "try it by hand: ssh -o 'UserKnownHostsFile=/etc/known hosts' -p 2222 -l root -i ~/.ssh/fleet 192.0.2.7 true"
    assert connect_error("SSH error (something new)", ssh).hint == hint


def test_a_program_that_is_lost_in_a_pyinfra_run_has_the_login_by_hand_with_the_real_address(server: Server) -> None:
    connector = PyinfraSsh(server.ssh())._connector(10)
    connector.connect()
    try:
        data = SimpleNamespace(dict=lambda: subject.host_data(server.ssh()))
        way = OpenConnection(SimpleNamespace(name="@nearsocket/close", connector=connector, data=data))  # type: ignore[arg-type]
        with pytest.raises(TransportError) as caught:
            way.run("kill -9 $$", b"", 10, Children())
    finally:
        connector.client.close()
    assert caught.value.trouble is Trouble.KILLED
    assert f"-p {server.port} -l {server.ssh().user} -i {server.keys.user} 127.0.0.1 true" in (caught.value.hint or "")
    assert "@nearsocket" not in (caught.value.hint or "")


def test_a_key_that_is_none_is_told_with_what_is_there(server: Server, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no key")
    for key, found in (("/no/such", "no such file"), (str(tmp_path), "a folder"), (str(tmp_path / "notes"), "another file")):
        error = trouble(server.ssh(key=key))
        assert (error.trouble, error.message) == (Trouble.SSH, f"expected a private key at {key}, found {found}")
        assert "mend the path at ssh_key" in (error.hint or "")


def test_an_encrypted_key_has_its_ways_out(server: Server, tmp_path: Path) -> None:
    quietly("ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", tmp_path / "locked")
    error = trouble(server.ssh(key=str(tmp_path / "locked")))
    assert error.message.endswith("found one that is encrypted")
    assert "ssh-add" in (error.hint or "")


def test_a_known_hosts_file_that_is_not_there_is_named(server: Server, tmp_path: Path) -> None:
    for path, strict in (("/no/such", None), ("/no/such", "accept-new")):
        error = trouble(server.ssh(known_hosts_file=path, strict_host_key_checking=strict))
        assert (error.trouble, error.message) == (Trouble.HOST_KEY_UNKNOWN, "expected host keys in /no/such, found no such file")
        assert "ssh_known_hosts_file" in (error.hint or "")
    assert trouble(server.ssh(known_hosts_file=str(tmp_path))).message == f"expected host keys in {tmp_path}, found a folder"


def test_a_refused_login_names_the_keys_of_both_kinds_of_inventory(server: Server, keys: Keys) -> None:
    hint = trouble(server.ssh(key=str(keys.stranger))).hint or ""
    assert "user and ssh_key in a fleet file" in hint
    assert "ssh_user, ssh_key and ssh_password in an inventory in Python" in hint


def test_a_rollout_tells_of_the_same_faults(server: Server) -> None:
    target = Target("close", Way.SSH, server.ssh(key="/no/such"))
    with (
        connect.lines([target]) as ways,
        pytest.raises(TransportError, match="expected a private key at /no/such, found no such file"),
    ):
        ways["close"].run("cat", b"", 10, Children())

"""OpenSSH as the transport, against a real sshd."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearsocket.control.target import Ssh
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.control.transport.openssh import OpenSsh
from nearsocket.control.transport.process import Children
from tests.control.server import USER, Keys, Server, keygen, script, serving, wrapper


def run(ssh: Ssh, command: str = "cat", stdin: bytes = b"hello", timeout_s: float = 20.0) -> bytes:
    return OpenSsh(ssh).run(command, stdin, timeout_s, Children()).stdout


def trouble(ssh: Ssh, command: str = "cat", timeout_s: float = 20.0) -> TransportError:
    with pytest.raises(TransportError) as caught:
        run(ssh, command, timeout_s=timeout_s)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_binary_input_of_a_megabyte_comes_back_whole_over_one_connection_and_one_exec(server: Server) -> None:
    data = bytes(range(256)) * 4096
    before = (len(server.sessions()), server.connections())
    assert run(server.ssh(), stdin=data) == data
    assert (len(server.sessions()), server.connections()) == (before[0] + 1, before[1] + 1)
    assert server.sessions()[-1] == "command"


def test_an_unknown_host_key_is_refused_and_not_learnt(server: Server, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    error = trouble(server.ssh(known_hosts_file=str(empty)))
    assert error.trouble is Trouble.HOST_KEY_UNKNOWN
    assert f"[127.0.0.1]:{server.port}" in error.message
    assert empty.read_text() == ""


def test_a_changed_host_key_is_refused(keys: Keys, place: Path, tmp_path: Path) -> None:
    with serving(place, keys) as own:
        own.trust(keygen(tmp_path / "other"))
        assert trouble(own.ssh()).trouble is Trouble.HOST_KEY_CHANGED


def test_a_key_that_nobody_knows_is_permission_denied(server: Server, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    config = "/dev/null"
    error = trouble(server.ssh(key=str(keys.stranger), config_file=config))
    assert error.trouble is Trouble.DENIED
    assert "publickey" in error.message


def test_a_port_where_nobody_listens_is_refused(server: Server) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        error = trouble(server.ssh(port=free.getsockname()[1]))
    assert error.trouble is Trouble.REFUSED


def test_a_server_that_accepts_and_says_nothing_is_given_up(server: Server) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        error = trouble(server.ssh(port=silent.getsockname()[1], connect_timeout_s=1), timeout_s=8)
    assert error.trouble in (Trouble.UNREACHABLE, Trouble.TIMEOUT)
    assert time.monotonic() - began < 7


def test_a_name_that_does_not_resolve(server: Server) -> None:
    assert trouble(server.ssh(hostname="no-such-host.invalid")).trouble is Trouble.RESOLVE


def test_a_hung_command_is_given_up_at_the_limit(keys: Keys, place: Path) -> None:
    with serving(place, keys, wrapper(place.parent, f"echo $$ >{place}/hung.pid; exec sleep 60")) as own:
        began = time.monotonic()
        assert trouble(own.ssh(), timeout_s=1.5).trouble is Trouble.TIMEOUT
        assert time.monotonic() - began < 5


def test_a_host_without_python_is_told_apart(keys: Keys, place: Path) -> None:
    with serving(place, keys, wrapper(place.parent, 'PATH=/nowhere exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')) as own:
        assert trouble(own.ssh(), "python3 -c pass").trouble is Trouble.NO_PYTHON


def test_a_program_that_a_signal_ends_is_told_apart(server: Server) -> None:
    assert trouble(server.ssh(), "sh -c 'kill -9 $$'; exit $?").trouble is Trouble.KILLED
    assert trouble(server.ssh(), "kill -9 $$").trouble is Trouble.KILLED


def test_the_server_ending_the_connection_is_told_apart(server: Server) -> None:
    error = trouble(server.ssh(), "kill -9 $PPID")
    assert error.trouble in (Trouble.UNREACHABLE, Trouble.KILLED)


def test_a_banner_with_telling_words_does_not_mislead(keys: Keys, place: Path, tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_text("Permission denied (to all but staff).\nWARNING: REMOTE HOST is watched\n")
    with serving(place, keys, f"Banner {banner}") as own:
        assert run(own.ssh()) == b"hello"
        assert trouble(own.ssh(), "echo boom >&2; exit 3").trouble is Trouble.PROGRAM


def test_escapes_that_a_host_writes_are_not_passed_on(server: Server) -> None:
    error = trouble(server.ssh(), r"printf '\033]0;owned\007bad' >&2; exit 9")
    assert "\x1b" not in error.message + error.evidence
    assert "\x07" not in error.message + error.evidence


def test_the_agent_is_used(server: Server, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with agent(tmp_path / "agent", keys.user) as socket_path:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        assert run(server.ssh(key=None)) == b"hello"
    monkeypatch.delenv("SSH_AUTH_SOCK")
    assert trouble(server.ssh(key=str(keys.stranger))).trouble is Trouble.DENIED


@contextmanager
def agent(path: Path, key: Path) -> Iterator[Path]:
    """An ssh-agent with that key, ended by its id."""
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        subprocess.run(
            ["ssh-add", "-q", key], check=True, env={"SSH_AUTH_SOCK": str(path), "PATH": "/usr/bin:/bin"}, stderr=subprocess.DEVNULL
        )
        yield path
    finally:
        process.terminate()
        process.wait(5)


def test_a_certificate_logs_in_where_the_key_alone_does_not(server: Server, keys: Keys, tmp_path: Path) -> None:
    assert run(server.ssh(key=str(keys.certified))) == b"hello"
    bare = tmp_path / "bare"
    bare.write_bytes(keys.certified.read_bytes())
    bare.chmod(0o600)
    assert trouble(server.ssh(key=str(bare))).trouble is Trouble.DENIED


def test_an_alias_of_the_ssh_configuration_is_used(server: Server, keys: Keys, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host gpu1\n HostName 127.0.0.1\n Port {server.port}\n User {USER}\n IdentityFile {keys.user}\n"
        f" UserKnownHostsFile {server.known_hosts}\n RemoteCommand echo mine\n RequestTTY force\n"
    )
    assert run(Ssh("gpu1", config_file=str(config))) == b"hello"


def test_two_jump_hosts_are_passed(keys: Keys, tmp_path: Path) -> None:
    with serving(tmp_path / "a", keys) as first, serving(tmp_path / "b", keys) as second, serving(tmp_path / "c", keys) as last:
        known = tmp_path / "known_hosts"
        known.write_text("".join(server.known_hosts.read_text() for server in (first, second, last)))
        config = tmp_path / "config"
        blocks = [f"Host *\n User {USER}\n IdentityFile {keys.user}\n UserKnownHostsFile {known}\n StrictHostKeyChecking yes\n"]
        for name, server, jump in (("first", first, ""), ("second", second, "first"), ("last", last, "second")):
            via = f" ProxyJump {jump}\n" if jump else ""
            blocks.append(f"Host {name}\n HostName 127.0.0.1\n Port {server.port}\n{via}")
        config.write_text("".join(blocks))
        assert run(Ssh("last", config_file=str(config))) == b"hello"
        assert [len(server.sessions()) for server in (first, second, last)] == [0, 0, 1]
        second.stop()
        error = trouble(Ssh("last", config_file=str(config)))
        assert error.trouble is Trouble.REFUSED


def test_an_unknown_jump_host_is_refused_without_a_question(
    server: Server, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    monkeypatch.setenv("SSH_ASKPASS", str(script(tmp_path / "askpass", f"touch {asked}; echo yes")))
    monkeypatch.setenv("DISPLAY", ":0")
    empty = tmp_path / "known_hosts"
    empty.touch()
    config = tmp_path / "config"
    config.write_text(
        f"Host *\n User {USER}\n IdentityFile {keys.user}\n UserKnownHostsFile {empty}\n GlobalKnownHostsFile /dev/null\n"
        f"Host jump\n HostName 127.0.0.1\n Port {server.port}\n"
        f"Host last\n HostName 127.0.0.1\n Port {server.port}\n ProxyJump jump\n"
    )
    assert trouble(Ssh("last", config_file=str(config))).trouble is Trouble.HOST_KEY_UNKNOWN
    assert not asked.exists()
    assert empty.read_text() == ""


def test_a_shared_connection_that_stays_does_not_hold_the_audit_up(server: Server, keys: Keys, tmp_path: Path) -> None:
    config = tmp_path / "config"
    control = tmp_path / "control"
    config.write_text(f"Host *\n ControlMaster auto\n ControlPath {control}\n ControlPersist 20\n")
    try:
        began = time.monotonic()
        assert run(server.ssh(config_file=str(config))) == b"hello"
        assert time.monotonic() - began < 10
    finally:
        subprocess.run(
            ["ssh", "-F", config, "-O", "exit", "-p", str(server.port), "127.0.0.1"], stderr=subprocess.DEVNULL, check=False
        )


def test_a_broken_configuration_is_named(server: Server, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Nonsense yes\n")
    error = trouble(server.ssh(config_file=str(config)))
    assert error.trouble is Trouble.SSH
    assert "Nonsense" in error.message or "nonsense" in error.message


def test_no_ssh_on_this_machine_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "openssh-client" in (trouble(Ssh("gpu1")).hint or "")

"""What ssh, sudo and the shell write, each as one clear line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control.target import Ssh
from nearsocket.control.transport import Trouble
from nearsocket.control.transport.openssh import OpenSsh
from nearsocket.control.transport.reasons import explain, timed_out

CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Host key verification failed."""

CASES = [
    (255, CHANGED, Trouble.HOST_KEY_CHANGED, "the host key of gpu1 is not the one in known_hosts"),
    (
        255,
        "No ED25519 host key is known for gpu1 and you have requested strict checking.\nHost key verification failed.",
        Trouble.HOST_KEY_UNKNOWN,
        "no host key of gpu1 is in known_hosts",
    ),
    (
        255,
        "Host key verification failed.\nConnection closed by UNKNOWN port 65535",
        Trouble.HOST_KEY_UNKNOWN,
        "could not be verified",
    ),
    (
        255,
        "ssh: Could not resolve hostname gpu9: Name or service not known",
        Trouble.RESOLVE,
        "the name gpu9 does not resolve (Name or service not known)",
    ),
    (255, "root@gpu1: Permission denied (publickey,password).", Trouble.DENIED, "publickey,password offered by the server"),
    (255, "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures", Trouble.DENIED, "too many keys"),
    (255, "ssh: connect to host gpu1 port 22: Connection refused", Trouble.REFUSED, "connection refused by gpu1 port 22"),
    (
        255,
        "ssh: connect to host gpu1 port 22: No route to host",
        Trouble.UNREACHABLE,
        "gpu1 port 22 is unreachable (No route to host)",
    ),
    (255, "ssh: connect to host gpu1 port 22: Connection timed out", Trouble.UNREACHABLE, "is unreachable (Connection timed out)"),
    (
        255,
        "Connection timed out during banner exchange\nConnection to 127.0.0.1 port 22 timed out",
        Trouble.UNREACHABLE,
        "the connection timed out",
    ),
    (255, "Timeout, server gpu1 not responding.", Trouble.UNREACHABLE, "the connection timed out"),
    (
        255,
        "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed",
        Trouble.REFUSED,
        "the jump host could not connect onward",
    ),
    (255, "kex_exchange_identification: Connection closed by remote host", Trouble.UNREACHABLE, "the connection broke off"),
    (255, "/etc/x: line 3: Bad configuration option: nonsense", Trouble.SSH, "ssh refuses its configuration"),
    (255, "something new", Trouble.SSH, "ssh failed (something new)"),
    (255, "", Trouble.KILLED, "said nothing"),
    (127, "bash: line 1: python3: command not found", Trouble.NO_PYTHON, "expected python3"),
    (127, "sh: 1: python3: not found", Trouble.NO_PYTHON, "expected python3"),
    (126, "sh: 1: python3: Permission denied", Trouble.NO_PYTHON, "expected python3"),
    (1, "sudo: a password is required", Trouble.SUDO, "sudo asks for a password"),
    (1, "Sorry, try again.\nsudo: 3 incorrect password attempts", Trouble.SUDO, "sudo did not accept the password"),
    (1, "jane is not in the sudoers file.", Trouble.SUDO, "jane is not in the sudoers file"),
    (1, "sudo: python3: command not found", Trouble.SUDO, "sudo refuses (sudo: python3: command not found)"),
    (127, "sh: 1: sudo: not found", Trouble.SUDO, "expected sudo on the host, found none"),
    (
        66,
        "nearsocket: expected Python 3.9 or newer on the host, found 3.6.15 (/usr/bin/python3)",
        Trouble.OLD_PYTHON,
        "found 3.6.15",
    ),
    (
        65,
        "nearsocket: expected 5 bytes of the program on standard input, found 2; the connection was cut",
        Trouble.ANSWER,
        "was cut",
    ),
    (67, "nearsocket: expected a Python with os.memfd_create, found one without", Trouble.PROGRAM, "memfd_create"),
    (137, "", Trouble.KILLED, "ended by signal 9"),
    (-9, "", Trouble.KILLED, "ended by signal 9"),
    (3, "", Trouble.PROGRAM, "found 3 (nothing on standard error)"),
    (3, "sudo: unable to resolve host gpu1: Name or service not known\nboom", Trouble.PROGRAM, "found 3 (boom)"),
]


@pytest.mark.parametrize(("code", "words", "trouble", "line"), CASES, ids=range(len(CASES)))
def test_each_end_is_one_clear_line(code: int, words: str, trouble: Trouble, line: str) -> None:
    error = explain(code, words, "gpu1")
    assert error.trouble is trouble
    assert line in error.message
    assert error.message.startswith("expected")
    assert error.hint
    assert "\n" not in error.message + error.hint
    assert "{" not in error.message + error.hint


OWN = Ssh("127.0.0.1", port=42022, known_hosts_file="/lab/known hosts")


def test_a_host_key_s_remedy_names_port_and_file() -> None:
    error = explain(255, CHANGED, OWN)
    assert "ssh-keygen -R '[127.0.0.1]:42022' -f '/lab/known hosts', then verify" in error.hint
    words = "No ED25519 host key is known for [127.0.0.1]:42022 and you have requested strict checking."
    assert "ssh -o 'UserKnownHostsFile=/lab/known hosts' -p 42022 127.0.0.1 once by hand" in explain(255, words, OWN).hint
    assert "ssh-keygen -R gpu1, then" in explain(255, CHANGED, "gpu1").hint


def test_a_port_of_the_user_s_configuration_is_told_by_ssh() -> None:
    said = CHANGED.replace(
        "Host key ver", "Host key for [gpu1.lab]:2222 has changed and you have requested strict checking.\nHost key ver"
    )
    assert "ssh-keygen -R '[gpu1.lab]:2222', then" in explain(255, said, "gpu1").hint
    assert "ssh-keygen -R gpu1, then" in explain(255, said.replace("[gpu1.lab]:2222", "$(id)"), "gpu1").hint


def test_a_name_in_a_remedy_is_no_option() -> None:
    assert "ssh -l root -- -oProxyCommand=x true" in explain(255, "new", Ssh("-oProxyCommand=x", "root")).hint


def test_this_machine_has_no_ssh_in_between() -> None:
    assert explain(255, "Host key verification failed.", None).trouble is not Trouble.HOST_KEY_UNKNOWN


def test_the_time_limit_says_whether_anything_came() -> None:
    assert "found no answer" in timed_out(60, False, "").message
    assert "within 1.5 s, found part of an answer" in timed_out(1.5, True, "").message


@given(st.integers(min_value=-64, max_value=255).filter(bool), st.text(max_size=200), st.sampled_from(["gpu1", None]))
def test_any_end_is_one_line(code: int, words: str, hostname: str | None) -> None:
    error = explain(code, words, hostname)
    assert error.message
    assert error.message.isprintable()


def arguments(**changes: object) -> list[str]:
    return OpenSsh(Ssh("gpu1", **changes)).arguments("command", 60)  # type: ignore[arg-type]


def test_the_command_line_is_strict_and_leaves_the_rest_to_the_users_configuration() -> None:
    args = arguments()
    assert args[:2] == ["ssh", "-T"]
    assert args[-3:] == ["--", "gpu1", "command"]
    options = dict(args[at + 1].split("=") for at, word in enumerate(args) if word == "-o")
    assert options == {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": "10",
        "ServerAliveInterval": "5",
        "ServerAliveCountMax": "3",
        "RemoteCommand": "none",
    }
    assert not {"-l", "-p", "-i", "-F"} & set(args)


def test_data_of_an_inventory_is_given_on() -> None:
    args = arguments(
        user="root",
        port=2222,
        key="/k",
        config_file="/c",
        known_hosts_file="/with space",
        strict_host_key_checking="accept-new",
        connect_timeout_s=3,
    )
    for pair in (["-l", "root"], ["-p", "2222"], ["-i", "/k"], ["-F", "/c"]):
        at = args.index(pair[0])
        assert args[at : at + 2] == pair
    assert {'UserKnownHostsFile="/with space"', "StrictHostKeyChecking=accept-new", "ConnectTimeout=3"} <= set(args)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("motd\nnearsocket: expected a, found b (do c)", "expected a, found b", "do c"),
        ("nearsocket: expected a (b), found c (do d)", "expected a (b), found c", "do d"),
        ("nearsocket: expected a, found b", "expected a, found b", ""),
    ],
)
def test_a_refusal_of_the_program_is_told_in_its_own_words(words: str, message: str, hint: str) -> None:
    error = explain(2, words, "gpu1")
    assert (error.message, error.hint or "") == (message, hint)
    assert explain(42, words, "gpu1").message.startswith("expected the program to end with 0, found 42")

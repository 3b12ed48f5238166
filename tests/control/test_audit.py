"""The audit from end to end: this machine and a real sshd on loopback, the true program, the true checks."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nearsocket import paths
from nearsocket.control.audit import Manner, audit
from nearsocket.control.checks import load
from nearsocket.control.target import Sudo, Target, Way
from nearsocket.control.transport import Trouble
from nearsocket.model.finding import Status
from nearsocket.model.report import HostReport, Report
from nearsocket.report import json as json_report
from tests.control.server import Keys, Server, script, serving, wrapper

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
CHECKS = load([paths.checks_folder()])
REACHABLE = tuple(check for check in CHECKS if check.id == "host.reachable")


def manner(**changes: object) -> Manner:
    made: dict[str, object] = {"checks": REACHABLE, "timeout_s": 30.0, "now": lambda: NOW}
    return Manner(**{**made, **changes})  # type: ignore[arg-type]


def remote(server: Server, name: str = "gpu1", **changes: object) -> Target:
    return Target(name, Way.SSH, server.ssh(), **changes)  # type: ignore[arg-type]


def one(target: Target, **changes: object) -> tuple[HostReport, Report]:
    report = audit([target], manner(**changes))
    return report.hosts[0], report


def test_a_host_is_read_by_one_exec_over_one_connection_and_judged_by_every_check(server: Server) -> None:
    before = (len(server.sessions()), server.connections())
    host, report = one(remote(server), checks=CHECKS)
    assert (len(server.sessions()), server.connections()) == (before[0] + 1, before[1] + 1)
    assert server.sessions()[-1] == "command"
    assert (host.name, host.reason) == ("gpu1", None)
    assert host.host and host.host.nodes
    assert {finding.id for finding in host.findings} >= {check.id for check in CHECKS}
    assert report.exit_code in (0, 1, 2, 3)


WATCHED = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/etc", "~")


def listing(leave_out: Callable[[str], bool]) -> dict[str, tuple[int, int, int]]:
    """Every file below the watched folders: inode, size, time of change; bounded in depth and number."""
    found: dict[str, tuple[int, int, int]] = {}
    for root in WATCHED:
        top = Path(root).expanduser()
        for folder, folders, files in os.walk(top):
            depth = len(Path(folder).relative_to(top).parts)
            folders[:] = [name for name in folders if depth < 3 and not leave_out(f"{folder}/{name}")][:200]
            for path in [folder, *(f"{folder}/{name}" for name in [*folders, *files][:500])]:
                if leave_out(path):
                    continue
                try:
                    seen = os.lstat(path)
                except OSError:
                    continue
                found[path] = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
    return found


def changes(act: Callable[[], object], log: Path) -> tuple[float, set[str]]:
    """How long that took, and the paths that are not as they were before, numbers in them replaced."""
    before, began = listing(lambda path: path == str(log)), time.monotonic()
    act()
    took_s, after = time.monotonic() - began, listing(lambda path: path == str(log))
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return took_s, {re.sub(r"\d+|(?<=tmp)[a-z0-9_]{8}", "#", path) for path in changed}  # a name that differs each time is one name


def test_no_file_on_the_host_is_made_changed_or_removed(keys: Keys, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with serving(tmp_path / "server", keys, f"SetEnv HOME={home} TMPDIR={home} PYTHONDONTWRITEBYTECODE=") as own:
        target = Target("gpu1", Way.SSH, own.ssh())
        one(target)  # the first login may leave its own traces (lastlog)
        # Other programs work in these folders too: ours is what changes in every audit and in no pause of twice the length.
        audits: list[set[str]] = []
        others: set[str] = set()
        for _ in range(3):
            took_s, changed = changes(lambda: one(target)[0], own.log)
            audits.append(changed)
            others |= changes(lambda pause_s=2 * took_s: time.sleep(pause_s), own.log)[1]
        assert not set.intersection(*audits) - others
        assert list(home.iterdir()) == []


def test_this_machine_is_read_without_ssh_and_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}")
    host, _ = one(Target("here", Way.LOCAL))
    assert host.name == "here"
    assert host.host


def test_a_saved_snapshot_gives_the_live_findings_and_its_own_time(server: Server, tmp_path: Path) -> None:
    live, _ = one(remote(server), checks=CHECKS, save=tmp_path)
    file = tmp_path / "gpu1.snapshot.json"
    again, _ = one(Target(str(file), Way.FILE, file=file), checks=CHECKS)
    assert again.findings == live.findings
    assert (again.name, again.taken_at) == (live.name, live.taken_at)
    assert file.stat().st_mode & 0o077 == 0


def test_an_unreachable_host_fails_and_the_others_go_on(server: Server, keys: Keys) -> None:
    gone = Target("gone", Way.SSH, server.ssh(port=1))
    told: list[tuple[str, int, int]] = []
    report = audit([gone, remote(server)], manner(), lambda host, done, total: told.append((host.name, done, total)))
    assert [host.name for host in report.hosts] == ["gone", "gpu1"]
    assert sorted(told, key=lambda item: item[1])[1][1:] == (2, 2)
    (finding,) = report.hosts[0].findings
    assert (finding.id, finding.status) == ("host.reachable", Status.FAIL)
    assert "connection refused" in finding.summary
    assert (report.status, report.exit_code) == (Status.FAIL, 2)
    assert report.hosts[1].status is Status.PASS
    whole = json.loads(json_report.render(report))
    assert (whole["exit_code"], whole["hosts"][0]["findings"][0]["id"]) == (2, "host.reachable")
    assert whole["hosts"][0]["topology"] is None


OLD = """exec {python} -B -E -s -c 'import sys
sys.version_info = (3, 6, 15, "final", 0)
exec(sys.argv[-1])' "$@"
"""

ANSWERS = [
    (
        "head",
        '/bin/sh -c "$SSH_ORIGINAL_COMMAND" | head -c 1000',
        "",
        Trouble.ANSWER,
        Status.UNKNOWN,
        3,
        "expected the JSON of a snapshot",
    ),
    (
        "foreign",
        'cat >/dev/null; echo \'{"schema": "other/1"}\'',
        "",
        Trouble.ANSWER,
        Status.UNKNOWN,
        3,
        "expected schema nearsocket.snapshot/1",
    ),
    ("empty", "cat >/dev/null", "", Trouble.ANSWER, Status.UNKNOWN, 3, "found an empty answer"),
    ("cut", 'head -c 5000 | /bin/sh -c "$SSH_ORIGINAL_COMMAND"', "", Trouble.ANSWER, Status.UNKNOWN, 3, "connection was cut"),
    ("no-stdin", '/bin/sh -c "$SSH_ORIGINAL_COMMAND" </dev/null', "", Trouble.ANSWER, Status.UNKNOWN, 3, "found none"),
    (
        "no-python",
        'PATH=/nowhere exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"',
        "",
        Trouble.NO_PYTHON,
        Status.FAIL,
        2,
        "expected python3",
    ),
    ("old", 'PATH={bin} exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"', OLD, Trouble.OLD_PYTHON, Status.FAIL, 2, "found 3.6.15"),
    ("endless", "cat >/dev/null; exec cat /dev/zero", "", Trouble.ANSWER, Status.UNKNOWN, 3, "at most 1 MiB"),
]


@pytest.mark.parametrize(
    ("name", "shell", "python", "trouble", "status", "code", "words"), ANSWERS, ids=[case[0] for case in ANSWERS]
)
def test_an_unusable_answer_is_one_clear_finding_with_its_code(
    keys: Keys,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    shell: str,
    python: str,
    trouble: Trouble,
    status: Status,
    code: int,
    words: str,
) -> None:
    if name == "endless":
        monkeypatch.setattr("nearsocket.control.transport.openssh.LARGEST_ANSWER_BYTES", 1 << 20)
    if python:
        script(tmp_path / "bin" / "python3", python.format(python=sys.executable))
    with serving(tmp_path / "server", keys, wrapper(tmp_path, shell.replace("{bin}", str(tmp_path / "bin")))) as own:
        host, report = one(Target("gpu1", Way.SSH, own.ssh()))
    (finding,) = host.findings
    assert (finding.id, finding.status, report.exit_code) == ("host.reachable", status, code)
    assert words in finding.summary
    assert "\n" not in finding.summary
    assert finding.remedy
    assert finding.evidence[0].source == trouble.value


def test_a_login_shell_that_talks_first_does_no_harm(keys: Keys, tmp_path: Path) -> None:
    shell = 'echo "Welcome to {gpu1}"; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    with serving(tmp_path / "server", keys, wrapper(tmp_path, shell)) as own:
        assert one(Target("gpu1", Way.SSH, own.ssh()))[0].host


SUDO = """# A stand-in for sudo -S / -n: the password is "right"; three tries, one byte at a time, as the real one reads.
user=root; ask=yes
while [ $# -gt 0 ]; do
  case $1 in
    -S) ;; -p) shift ;; -n) ask=no ;; -u) user=$2; shift ;; --) shift; break ;;
  esac
  shift
done
if [ -e {free} ]; then ask=free; fi
case $ask in
  no) echo "sudo: a password is required" >&2; exit 1 ;;
  yes)
    tries=0
    while IFS= read -r word; do
      [ "$word" = right ] && break
      tries=$((tries + 1))
      if [ $tries -ge 3 ]; then echo "sudo: 3 incorrect password attempts" >&2; exit 1; fi
      echo "Sorry, try again." >&2
    done
    [ "$word" = right ] || {{ echo "sudo: no password was provided" >&2; exit 1; }} ;;
esac
echo "$user $ask" >>{log}
exec "$@"
"""


@pytest.fixture
def sudoers(keys: Keys, tmp_path: Path) -> tuple[str, Path, Path]:
    """The options of a server whose sudo is a stand-in, its log, and the file that makes it ask for no password."""
    log, free = tmp_path / "sudo.log", tmp_path / "free"
    script(tmp_path / "bin" / "sudo", SUDO.format(log=log, free=free))
    return wrapper(tmp_path, f'PATH={tmp_path}/bin:$PATH exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'), log, free


def test_sudo_with_and_without_a_password(keys: Keys, tmp_path: Path, sudoers: tuple[str, Path, Path]) -> None:
    options, log, free = sudoers
    with serving(tmp_path / "server", keys, options) as own:
        target = Target("gpu1", Way.SSH, own.ssh(), sudo=Sudo("svc", "right"))
        assert one(target)[0].host
        assert log.read_text() == "svc yes\n"
        assert "right" not in own.log.read_text()
        for password, words in (("wrong", "sudo did not accept the password"), (None, "sudo asks for a password")):
            host, report = one(dataclasses.replace(target, sudo=Sudo(None, password)))
            assert words in host.findings[0].summary
            assert report.exit_code == 2
        free.touch()
        assert one(dataclasses.replace(target, sudo=Sudo(None, None)))[0].host
        assert one(dataclasses.replace(target, sudo=Sudo(None, "needless")))[0].host, (
            "a password that is not asked for must not reach the program"
        )
        assert log.read_text() == "svc yes\nroot free\nroot free\n"


def test_sudo_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sudoers: tuple[str, Path, Path]) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert one(Target("here", Way.LOCAL, sudo=Sudo(None, "right")))[0].host
    monkeypatch.setenv("PATH", "/nowhere")
    host, _ = one(Target("here", Way.LOCAL, sudo=Sudo()))
    assert "expected to start sudo" in host.findings[0].summary


def test_a_missing_sudo_is_told_apart(keys: Keys, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    with serving(
        tmp_path / "server", keys, wrapper(tmp_path, f'PATH={tmp_path}/bin exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
    ) as own:
        host, _ = one(Target("gpu1", Way.SSH, own.ssh(), sudo=Sudo()))
    assert "expected sudo on the host, found none" in host.findings[0].summary

"""The way onto a host, run for real: a shell, standard input, an interpreter, no file written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from nearsocket.control import program
from nearsocket.model import snapshot
from nearsocket.model.errors import NearsocketError, UsageError
from tests.onhost.actors import pair

COLLECT = ["collect", "--timeout", "30", "--host", "gpu 1"]
SYSTEM = "/usr/bin:/bin"


def interpreter(*versions: str) -> Path | None:
    """An interpreter of one of those versions: on PATH, or beside this one where a version manager keeps several."""
    for version in versions:
        beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}*/bin/python"))
        for candidate in [*beside, *filter(None, [shutil.which(f"python{version}")])]:
            said = subprocess.run([candidate, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
            if said.returncode == 0 and said.stdout.startswith(version):
                return Path(candidate)
    return None


def path_with(tmp_path: Path, python: Path, rest: str = SYSTEM) -> dict[str, str]:
    """An environment whose `python3` is that interpreter."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(python)
    return {"PATH": f"{folder}:{rest}"}


def run(env: dict[str, str], args: list[str] = COLLECT, before: bytes = b"", shell: str = "/bin/sh", **options: object):  # type: ignore[no-untyped-def]
    return subprocess.run(  # type: ignore[call-overload]
        [shell, "-c", program.remote_command(None)],
        input=before + program.payload(args),
        capture_output=True,
        env=env,
        timeout=60,
        **options,
    )


@pytest.mark.parametrize("version", ["3.9", "3.11", "3.13"])
def test_a_shell_runs_it_and_a_snapshot_comes_back(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    with pair() as ranks:
        done = run(path_with(tmp_path, python))
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    taken = snapshot.from_json(done.stdout.decode("ascii"))
    assert taken.host == "gpu 1" and str(taken.program["python"]).startswith(version)
    assert taken.source("nodes").ok and taken.source("kernel.release").text == os.uname().release
    found = {one["pid"]: one for one in taken.data("processes")}
    assert sum(found[ranks.owner]["buffers"][0]["pages"].values()) == 64
    assert found[ranks.owner]["buffers"][0]["inode"] == found[ranks.peer]["buffers"][0]["inode"]
    errors = {name: source.reason for name, source in taken.sources.items() if source.status.value in ("error", "timeout")}
    assert errors == {}


def test_this_machine_runs_it_by_the_same_payload() -> None:
    done = subprocess.run(program.local_command(), input=program.payload(["collect"]), capture_output=True, timeout=60)
    assert done.returncode == 0 and snapshot.from_json(done.stdout.decode()).source("meminfo").ok


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_an_old_interpreter_says_one_line_and_its_code(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    done = run(path_with(tmp_path, python, rest=str(tmp_path)))
    assert done.returncode == program.EXIT_TOO_OLD
    (said,) = done.stderr.decode().splitlines()
    assert said.startswith(f"nearsocket: expected Python 3.9 or newer on the host, found {version}.")
    assert done.stdout == b""


@pytest.mark.parametrize("version", ["2.7", "3.6"])
def test_an_old_interpreter_hands_over_to_a_newer_one_on_path(version: str, tmp_path: Path) -> None:
    old, new = interpreter(version), interpreter("3.11", "3.12", "3.13")
    if old is None or new is None:
        pytest.skip("no two interpreters here")
    env = path_with(tmp_path, old, rest=str(tmp_path / "bin"))
    (tmp_path / "bin/python3.12").write_text("#!/bin/sh\nexit 127\n")  # a version manager's stand-in for one not installed
    (tmp_path / "bin/python3.12").chmod(0o755)
    (tmp_path / "bin/python3.11").symlink_to(new)
    done = run(env)
    assert done.returncode == 0, done.stderr
    assert snapshot.from_json(done.stdout.decode()).host == "gpu 1"


def test_a_password_line_that_sudo_left_is_thrown_away(tmp_path: Path) -> None:
    done = run(path_with(tmp_path, Path(sys.executable)), before=b"hunter2-canary\n\nmotd NEARSOCKET-PROGRAM/1 9 9 9\n")
    assert done.returncode == 0
    assert b"canary" not in done.stdout + done.stderr


def test_no_program_or_half_of_it_is_one_line(tmp_path: Path) -> None:
    env = path_with(tmp_path, Path(sys.executable))
    command = ["/bin/sh", "-c", program.remote_command(None)]
    none = subprocess.run(command, input=b"hello\n", capture_output=True, env=env, timeout=60)
    assert none.returncode == program.EXIT_NO_PROGRAM
    assert none.stderr == b"nearsocket: expected the program on standard input, found none\n"
    half = subprocess.run(command, input=program.payload(COLLECT)[:-100], capture_output=True, env=env, timeout=60)
    assert half.returncode == program.EXIT_CUT and len(half.stderr.splitlines()) == 1


def test_no_python_is_the_shell_s_word_and_127(tmp_path: Path) -> None:
    done = run({"PATH": str(tmp_path)})
    assert done.returncode == program.EXIT_NO_PYTHON


def test_a_hostile_environment_and_folder_change_nothing(tmp_path: Path) -> None:
    for name in ("json", "os", "zipimport", "nearsocket", "sitecustomize", "pynvml", "subprocess"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hijacked')\n")
    env = {**path_with(tmp_path, Path(sys.executable)), "PYTHONPATH": str(tmp_path), "PYTHONHOME": "", "PYTHONSTARTUP": "x"}
    env["HOME"] = str(tmp_path)
    done = run(env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert snapshot.from_json(done.stdout.decode()).source("nodes").ok


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["collect", "--timeout", "soon"], "'soon'"),
        (["collect", "--timeout", "nan"], "'nan'"),
        (["rm"], "'rm'"),
        ([], "''"),
        (["collect", "--x", "1"], "'--x'"),
        (["collect", "--host"], "'--host'"),
    ],
)
def test_wrong_words_are_usage(args: list[str], found: str) -> None:
    done = subprocess.run(program.local_command(), input=program.payload(args), capture_output=True, timeout=60)
    assert done.returncode == program.EXIT_USAGE and found in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1 and done.stdout == b""


def tree(*folders: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            facts = path.lstat()
            found[str(path)] = (facts.st_mtime_ns, facts.st_size)
    return found


def test_nothing_is_written_where_a_program_would_write(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = {**path_with(tmp_path, Path(sys.executable)), "HOME": str(home), "TMPDIR": str(home)}
    library = Path(json.__file__).parent
    before = tree(home, library, Path(program.__file__).parent, Path("/etc"))
    done = run(env, cwd=home)
    assert done.returncode == 0
    assert tree(home, library, Path(program.__file__).parent, Path("/etc")) == before


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare for a read-only root")
def test_it_runs_where_nothing_can_be_written(tmp_path: Path) -> None:
    env = path_with(tmp_path, Path(sys.executable))
    script = (
        "mount --make-rprivate / && mount --bind / / && mount -o remount,ro,bind / "
        "&& mount -t tmpfs -o noexec,size=4k,ro none /tmp && cd / && ! touch /etc/x /tmp/x 2>/dev/null && "
    )
    probe = subprocess.run(["unshare", "-m", "/bin/sh", "-c", "mount --make-rprivate /"], capture_output=True)
    if probe.returncode:
        pytest.skip("no mount namespaces here")
    outside = Path(env["PATH"].split(":")[0])
    if outside.is_relative_to("/tmp"):
        env["PATH"] = f"{Path(sys.executable).parent}:{SYSTEM}"
    done = subprocess.run(
        ["unshare", "-m", "/bin/sh", "-c", script + program.remote_command(None)],
        input=program.payload(COLLECT),
        capture_output=True,
        env=env,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert snapshot.from_json(done.stdout.decode()).source("nodes").ok


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become nobody")
def test_as_another_user_what_cannot_be_read_is_denied_and_nothing_breaks(tmp_path: Path) -> None:
    python = next((path for path in (Path("/usr/bin/python3"), Path("/usr/local/bin/python3")) if path.exists()), None)
    if python is None or subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 9))"]).returncode:
        pytest.skip("no interpreter that another user may run")
    done = run({"PATH": SYSTEM + ":/usr/local/bin"}, user=65534, group=65534, extra_groups=[], cwd="/")
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    taken = snapshot.from_json(done.stdout.decode())
    assert taken.privilege["uid"] == 65534 and taken.privilege["cap_eff"] == "0" * 16
    processes = taken.source("processes")
    assert "no permission to look into" in str(processes.reason)
    assert taken.source("nodes").ok
    assert not [source.reason for source in taken.sources.values() if source.status.value in ("error", "timeout")]


def test_the_zip_is_the_same_each_time_and_holds_what_runs_and_no_more() -> None:
    first = program.build()
    program.build.cache_clear()
    assert program.build() == first
    names = zipfile.ZipFile(BytesIO(first)).namelist()
    assert {
        "__main__.py",
        "pynvml.py",
        "nearsocket/__init__.py",
        "nearsocket/model/snapshot.py",
        "nearsocket/onhost/main.py",
    } <= set(names)
    assert all(name.endswith(".py") for name in names)
    assert not [name for name in names if name.startswith(("nearsocket/control", "nearsocket/report", "nearsocket/commands"))]


def test_without_pynvml_here_the_build_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.importlib.util, "find_spec", lambda name: None)
    program.build.cache_clear()
    with pytest.raises(NearsocketError, match=r"nvidia-ml-py"):
        program.build()
    program.build.cache_clear()


def test_an_argument_with_a_nul_is_refused() -> None:
    with pytest.raises(UsageError):
        program.payload(["collect", "--host", "a\0b"])


def test_the_command_line_is_plain_for_every_shell() -> None:
    command = program.remote_command(None)
    assert not set("\n!\\$`") & set(command)
    inside = command.partition("'")[2].rpartition("'")[0]
    assert "'" not in inside


def test_sudo_reads_the_password_first_or_never_asks() -> None:
    assert program.remote_command(program.SudoMode()).startswith("sudo -n -- python3 ")
    assert program.remote_command(program.SudoMode(password=True)).startswith("sudo -S -p '' -- python3 ")
    assert program.remote_command(program.SudoMode(user="a b")).startswith("sudo -n -u 'a b' -- python3 ")


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh", "fish", "csh", "tcsh", "ksh"])
def test_login_shells_of_every_kind_run_it(shell: str, tmp_path: Path) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    done = run(path_with(tmp_path, Path(sys.executable)), shell=found)
    assert done.returncode == 0, done.stderr


def test_a_host_that_gives_no_process_is_one_line_and_no_traceback() -> None:
    code = "import os\ndef fork(): raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = fork\n"
    code += "from nearsocket.onhost.main import main\nmain(['collect'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (program.EXIT_FAILED, "")
    said = "nearsocket: expected to collect here, found BlockingIOError: [Errno 11] Resource temporarily unavailable\n"
    assert done.stderr == said

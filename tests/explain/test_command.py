"""The explain command: exit codes, several files, wrong usage in one line, and text that a terminal can be trusted with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearsocket.commands import explain as command
from tests.explain.test_cases import FOLDER, judged


def run(*args: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    """One call of the whole command line."""
    return subprocess.run(
        [sys.executable, "-m", "nearsocket", "explain", *args],
        input=stdin,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONUTF8": "1", **env},
    )


def refused(*args: str, stdin: bytes = b"") -> str:
    """The message of a call that must be refused: code 64, nothing on standard output, a line or two of error."""
    done = run(*args, stdin=stdin)
    assert (done.returncode, done.stdout) == (64, b""), done
    message = done.stderr.decode()
    assert message.startswith("nearsocket: ")
    assert 1 <= len(message.splitlines()) <= 2
    assert "Traceback" not in message
    return message


def case(name: str) -> str:
    return str(FOLDER / f"{name}.txt")


def test_the_worst_file_decides_in_the_order_2_3_1_0() -> None:
    near = ["--near", "1"]
    assert judged(*near, case("numa_maps-near"))[0] == 0
    assert judged(*near, case("numa_maps-near"), case("numa_maps-split-just-below-one-percent"))[0] == 1
    assert judged(*near, case("numa_maps-near"), case("letter"), case("numa_maps-split-just-below-one-percent"))[0] == 3
    assert judged(*near, case("letter"), case("numa_maps-far-not-deleted"), case("numa_maps-near"))[0] == 2


def test_the_json_list_keeps_the_order_of_the_files() -> None:
    names = [case("letter"), case("numa_maps-near"), case("topo-two-nodes")]
    assert [entry["file"] for entry in judged(*names)[1]] == names


def test_strict_turns_warnings_into_failures_and_any_unknown_into_3() -> None:
    assert judged("--strict", "--near", "1", case("numa_maps-split-just-below-one-percent"))[0] == 2
    assert judged("--near", "7", case("numactl-healthy"))[0] == 1
    assert judged("--strict", "--near", "7", case("numactl-healthy"))[0] == 3


def test_standard_input_is_a_file_called_minus() -> None:
    code, [entry] = judged("-", stdin=Path(case("topo-two-nodes")).read_bytes())
    assert (code, entry["file"], entry["kind"]) == (0, "-", "topology")


def test_a_missing_file_is_refused_before_any_is_judged() -> None:
    assert "no such file" in refused("--json", case("numa_maps-near"), "/nonexistent/numa_maps")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "directory" in refused(str(tmp_path))


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"\x7fELF\0\0\0")
    assert "binary" in refused(str(tmp_path / "core"))


def test_a_file_over_the_cap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_text("x" * 2000)
    monkeypatch.setattr(command, "MOST_BYTES", 1000)
    with pytest.raises(command.UsageError, match="expected at most"):
        command._read(str(tmp_path / "log"))


def test_a_near_that_is_no_list_of_nodes_is_refused() -> None:
    for value in ("one", "", "1-", "3-1", "-1"):
        assert "--near" in refused(f"--near={value}", case("numa_maps-near"))


def test_no_file_and_twice_standard_input_are_refused() -> None:
    assert "FILE" in refused()
    assert "once" in refused("-", "-")


def test_a_file_name_with_escapes_reaches_no_terminal_raw(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\n\rb"
    path.write_bytes(b"no such thing\x1b]0;title\x07 \xff\n")
    done = run(str(path))
    assert done.returncode == 3
    assert done.stdout.decode().replace("\n", "").isprintable()
    assert b"\x1b" not in refused(str(path) + "\x1b").encode()


def test_text_from_a_file_reaches_no_terminal_raw(tmp_path: Path) -> None:
    path = tmp_path / "maps"
    path.write_text("7f3000000000 default file=/dev/shm/nccl-Q\\0335tU8\x1b[2J\x9b31m dirty=2354 N0=2354 kernelpagesize_kB=4\n")
    done = run("--near", "1", str(path), "-v")
    assert done.stdout.decode().replace("\n", "").isprintable()
    assert b"\x1b" not in run("--near", "1", "--json", str(path)).stdout


def test_people_read_the_worst_file_first_without_colour_on_a_pipe() -> None:
    done = run("--near", "1", case("numa_maps-near"), case("numa_maps-far-not-deleted"))
    page = done.stdout.decode()
    assert done.returncode == 2
    assert page.index("FAIL") < page.index("pass")
    assert "nccl.buffer-placement" in page and "--membind=1" in page
    assert "\x1b" not in page


def test_json_is_printable_ascii(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("NCCL version 2.30.7+cuda13.0\nNCCL_HOSTID set by environment to rück\u2028\x7f\n".encode())
    out = run("--json", str(path)).stdout
    assert not set(out) - set(range(32, 127)) - {10}
    assert json.loads(out)[0]["facts"]["env"] == {"NCCL_HOSTID": "rück"}

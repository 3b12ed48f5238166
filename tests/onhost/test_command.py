from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nearsocket.model.snapshot import SourceStatus
from nearsocket.onhost.collect import command


def test_output_code_and_last_words_come_back() -> None:
    output = command.run(["sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3"], 5)
    assert output == command.Output(3, "out\n", "last")


def test_it_has_no_input_a_plain_locale_and_its_own_session() -> None:
    output = command.run(["sh", "-c", "cat; echo $LC_ALL; pwd; ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat"], 5)
    locale, folder, session = output.text.split()
    assert (locale, folder) == ("C", "/") and int(session) != os.getsid(0)


def test_a_command_that_sleeps_is_killed_and_named() -> None:
    began = time.monotonic()
    with pytest.raises(command.CommandTimeout, match=r"^sleep 60: no answer in 0.2 s$"):
        command.run(["sleep", "60"], 0.2)
    assert time.monotonic() - began < 2


def test_a_stopped_command_is_a_time_out() -> None:
    with pytest.raises(command.CommandTimeout):
        command.run(["sh", "-c", "kill -STOP $$"], 0.3)


def test_a_grandchild_that_holds_the_pipe_is_killed_with_the_group(tmp_path: Path) -> None:
    with pytest.raises(command.CommandTimeout):
        command.run(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; exit 0"], 0.3)
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 5
    while time.monotonic() < end and _runs(pid):
        time.sleep(0.01)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_endless_output_is_cut_and_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "CAP_BYTES", 1000)
    output = command.run(["sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x"], 5)
    assert output.text == "x" * 1000 + "<cut>"
    with pytest.raises(command.CommandTimeout):
        command.run(["yes"], 0.3)


def test_a_missing_command_is_said_to_be_missing() -> None:
    with pytest.raises(FileNotFoundError, match=r"^no-such-tool is not installed$"):
        command.run(["no-such-tool"], 1)


def test_a_failing_command_is_an_error_source_with_its_words() -> None:
    source = command.source(["sh", "-c", "echo some; echo why >&2; exit 9"], 5)
    assert source.status is SourceStatus.ERROR and source.text == "some\n"
    assert str(source.reason).endswith("exit code 9: why")
    assert command.source(["echo", "fine"], 5).text == "fine\n"

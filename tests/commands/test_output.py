"""`audit --format` and `--output`: the form that was asked for, in a file that is whole or as it was, and the code of the audit."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nearsocket.commands import output
from nearsocket.control import whole
from nearsocket.report.formats import Format

DATA = Path(__file__).parent.parent / "data" / "hosts"
FAR, CLEAN = str(DATA / "two-socket-far.snapshot.json"), str(DATA / "two-socket-clean.snapshot.json")


def run(*words: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command as a shell starts it."""
    own = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent), **environ}
    return subprocess.run(
        [sys.executable, "-m", "nearsocket", *words], capture_output=True, text=True, env=own, cwd=cwd, check=False, timeout=60
    )


BEGINNINGS = {
    Format.TERMINAL: "✗ FAIL  gpu1",
    Format.HTML: "<!doctype html>",
    Format.JSON: '{\n  "schema": "nearsocket.report/1"',
    Format.JSONL: '{"schema": "nearsocket.line/1"',
    Format.JUNIT: "<?xml",
    Format.PROMETHEUS: "# HELP nearsocket_report_exit_code",
    Format.MARKDOWN: "# Nearsocket: FAIL",
}


@pytest.mark.parametrize("form", list(Format))
def test_every_form_goes_to_standard_output_with_the_audits_code(form: Format) -> None:
    done = run("audit", FAR, "--format", form.value, PYTHONIOENCODING="utf-8")
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith(BEGINNINGS[form])


@pytest.mark.parametrize(
    ("name", "form"), [("r.html", Format.HTML), ("r.jsonl", Format.JSONL), ("r.MD", Format.MARKDOWN), ("r.txt", Format.TERMINAL)]
)
def test_the_files_ending_decides_where_no_form_is_given(tmp_path: Path, name: str, form: Format) -> None:
    done = run("audit", FAR, "--output", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == f"{form.value} report in {name}"
    assert (tmp_path / name).read_text().startswith(BEGINNINGS[form])
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_form_that_is_given_wins_over_the_files_ending(tmp_path: Path) -> None:
    assert run("audit", CLEAN, "--json", "--output", "r.html", cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "r.html").read_text())["exit_code"] == 0


def test_several_snapshots_and_folders_are_one_report(tmp_path: Path) -> None:
    assert run("audit", FAR, CLEAN, "--output", "r.json", cwd=tmp_path).returncode == 2
    assert len(json.loads((tmp_path / "r.json").read_text())["hosts"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "--format", "html"], "expected one form, found --json and --format html"),
        (["--format", "pdf"], "'pdf' is not one of"),
        (["--output", "no/such/folder/r.html"], "expected a file in a folder to write in"),
        (["--output", "/"], "found '/': a folder"),
        (["--output", ""], "expected a file, found an empty name"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_before_anything_is_read(tmp_path: Path, words: list[str], said: str) -> None:
    done = run("audit", str(tmp_path / "not-there.snapshot.json"), *words, cwd=tmp_path)
    assert done.returncode == 64
    assert said in done.stderr.splitlines()[0]
    assert done.stdout == ""


def test_a_full_disk_is_code_74_and_the_page_is_shown_all_the_same() -> None:
    done = run("audit", FAR, "--output", "/dev/full", "--format", "html")
    assert done.returncode == 74
    assert "nccl.buffer-placement" in done.stdout
    assert "/dev/full: expected to write the report there, found: No space left on device" in done.stderr


def test_an_older_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.prom", tmp_path / "link.prom"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    output.destination("prometheus", False, link).write("new\n")
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_has_the_mode_that_the_shell_would_give_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        output.destination("json", False, tmp_path / "r").write("{}\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o640


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    path = tmp_path / "r.html"
    path.write_text("old")

    def fail(_number: int) -> None:
        raise fault

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(fault)):
        whole.write(path, "new", 0o644)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("words", "at", "wanted"),
    [
        ("nearsocket au", "1", ["plain,audit"]),
        ("nearsocket audit --format j", "3", ["plain,json", "plain,jsonl", "plain,junit"]),
        ("nearsocket audit --only nccl.cumem-i", "3", ["plain,nccl.cumem-in-force"]),
        ("nearsocket audit @", "2", ["plain,@local", "file,@"]),
        ("nearsocket audit snap", "2", ["file,snap"]),
    ],
)
def test_the_shell_completes_commands_forms_checks_and_files(words: str, at: str, wanted: list[str]) -> None:
    done = run(_NEARSOCKET_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=at)
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shells_script_is_written_as_the_page_says(shell: str) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "completion.md").read_text()
    assert f"_NEARSOCKET_COMPLETE={shell}_source nearsocket" in page
    done = run(_NEARSOCKET_COMPLETE=f"{shell}_source")
    assert done.returncode == 0
    assert "_NEARSOCKET_COMPLETE" in done.stdout

"""The diff of managed files: true to the byte, safe for a terminal, without secrets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearsocket.onhost.apply.diff import unified

LINES = st.lists(st.sampled_from(["", "a", "b b", "-x", "+y", "@@", "--- z", "\\ w"]), max_size=6)


@given(old=LINES, new=LINES, ends=st.tuples(st.booleans(), st.booleans()))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_diff_makes_the_new_bytes_of_the_old(tmp_path: Path, old: list[str], new: list[str], ends: tuple[bool, bool]) -> None:
    before, after = ("\n".join(lines) + ("\n" if end and lines else "") for lines, end in zip((old, new), ends, strict=True))
    text = unified(["f"], {"f": before.encode()}, {"f": after.encode()})
    if before == after:
        assert "the same content" in text
        return
    (tmp_path / "f").write_text(before)
    subprocess.run(["patch", "-p1", "-s", "-d", tmp_path], input=text.encode(), check=True, capture_output=True)
    assert ((tmp_path / "f").read_text() if (tmp_path / "f").exists() else "") == after


@pytest.mark.parametrize("data", [b"\xff\xfe", b"x" * ((1 << 20) + 1)])
def test_what_is_no_text_or_too_long_is_told_and_not_shown(data: bytes) -> None:
    assert unified(["f"], {}, {"f": data}) == "--- /dev/null\n+++ b/f\n# not a text, or too long to show\n"


def test_a_mode_that_changes_alone_is_told() -> None:
    assert "mode or owner changes" in unified(["f"], {"f": b"x\n"}, {"f": b"x\n"})


def test_nothing_in_a_file_is_obeyed_by_a_terminal() -> None:
    text = unified(["f"], {"f": b"a\x1b[2J\n"}, {"f": b"b\r\n"})
    assert "\x1b" not in text
    assert "\r" not in text


def test_secret_values_are_masked_on_both_sides_and_the_names_stay() -> None:
    text = unified(["e"], {"e": b"HF_TOKEN=old\nA=1\n"}, {"e": b"HF_TOKEN=new\nA=2\n"})
    assert "-HF_TOKEN=<redacted>\n" in text
    assert "+HF_TOKEN=<redacted>\n" in text
    assert "+A=2\n" in text

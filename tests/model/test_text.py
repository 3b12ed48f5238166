"""Outside text never reaches a terminal as anything but text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.text import complaint, in_words, one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sglang::scheduler_TP0", "sglang::scheduler_TP0"),
        ("/dev/shm/nccl-x\\040(deleted)", "/dev/shm/nccl-x\\040(deleted)"),
        ("a\nb\r\tc\0", "a\\nb\\r\\tc\\0"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),
        ("a\u200bb\u2028c\xa0d", "a\\u200bb\\u2028c\\xa0d"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("lone \udc80", "lone \\udc80"),
        ("Grüße 模型", "Grüße 模型"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_a_long_text_is_cut_to_the_limit_and_says_so() -> None:
    assert one_line("x" * 50, 10) == "xxxxxxx..."
    assert one_line("x" * 10, 10) == "x" * 10
    assert one_line("\x1b" * 10, 12) == "\\x1b\\x1b\\..."


def test_visible_keeps_lines_and_opens_tabs() -> None:
    assert visible("a\r\n\tb\rc\x1b[2J") == "a\n    b\\rc\\x1b[2J"


@given(st.text(alphabet=st.characters()))
def test_any_text_becomes_one_printable_line(text: str) -> None:
    assert one_line(text).isprintable()
    assert all(line.isprintable() for line in visible(text).split("\n"))


@given(st.text(), st.integers(min_value=3, max_value=40))
def test_the_limit_holds_for_any_text(text: str, limit: int) -> None:
    assert len(one_line(text, limit)) <= limit


@given(st.text(max_size=300), st.integers(0, 255))
def test_a_complaint_is_one_line(text: str, code: int) -> None:
    said = complaint(text, code)
    assert said
    assert "\n" not in said


def test_the_line_that_tells_is_shown_and_not_the_last_one() -> None:
    text = "docker: Error response from daemon: could not select device driver\n\nRun 'docker run --help' for more information\n"
    assert complaint(text, 125) == "docker: Error response from daemon: could not select device driver"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(2, "No such file or directory", "/x"), "/x: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("odd"), "odd"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_fault_of_the_system_is_told_with_its_file(error: Exception, words: str) -> None:
    assert in_words(error) == words

"""What a check may give, and what becomes of one that gives something else."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nearsocket.model import check as check_module
from nearsocket.model import cpulist
from nearsocket.model.check import Check
from nearsocket.model.finding import Evidence, Finding, Status, passed, warned
from nearsocket.model.text import fault
from tests import build


class Mute(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise SystemExit(0)


class Own(BaseException):
    """An error outside the tree of Exception."""


def raising(error: BaseException) -> Callable[[Any], Any]:
    def function(_host: object) -> Iterator[Finding]:
        raise error
        yield

    return function


def ran(function: Callable[[Any], Any]) -> Finding:
    (finding,) = Check("site.own", function, "x", "").run(build.host())
    return finding


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(0), "SystemExit: 0"),
        (GeneratorExit(), "GeneratorExit"),
        (Own("mine"), "Own: mine"),
        (Mute(), "Mute: its message cannot be had (SystemExit)"),
        (ValueError("two\nlines \x1b[31m"), "ValueError: two lines \\x1b[31m"),
    ],
)
def test_no_error_of_a_check_leaves_it(error: BaseException, said: str) -> None:
    finding = ran(raising(error))
    assert (finding.id, finding.status) == ("site.own", Status.UNKNOWN)
    assert f"({said})" in finding.summary


def test_an_interrupt_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        ran(raising(KeyboardInterrupt()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: Finding("", "warn", "x", "y"), "a finding's status: expected Status, found str"),  # type: ignore[arg-type]
        (lambda: Finding("", Status.WARN, 7, "y"), "a finding's subject: expected str, found int"),  # type: ignore[arg-type]
        (lambda: warned("x", None, [], "z"), "a finding's summary: expected str, found NoneType"),  # type: ignore[arg-type]
        (lambda: warned("x", "y", [], b"z"), "a finding's remedy: expected str, found bytes"),  # type: ignore[arg-type]
        (lambda: warned("x", "y", ["z"], "z"), "a piece of evidence: expected Evidence, found str"),  # type: ignore[list-item]
        (lambda: Evidence("x", 3), "an evidence's text: expected str, found int"),  # type: ignore[arg-type]
        (lambda: {"status": "pass"}, "expected a Finding, found dict"),
        (lambda: passed("x", "y", [Evidence("", "")]), "without evidence"),
        (lambda: passed("x", "y", [Evidence("here", " \n")]), "without evidence"),
    ],
)
def test_a_finding_of_wrong_types_is_unknown_and_says_what_is_wrong(given: Callable[[], Any], said: str) -> None:
    finding = ran(lambda _host: [given()])
    assert finding.status is Status.UNKNOWN
    assert said in finding.summary


def test_what_is_no_list_of_findings_is_unknown() -> None:
    assert "'int' object is not iterable" in ran(lambda _host: 3).summary
    assert ran(lambda _host: []).summary == "the check gave no verdict"


def test_a_check_that_never_ends_its_findings_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "MOST_FINDINGS", 5)

    def endless(_host: object) -> Iterator[Finding]:
        while True:
            yield warned("x", "y", [], "z")

    assert "expected at most 5 findings, found more" in ran(endless).summary


def test_the_check_stamps_its_own_id() -> None:
    given = dataclasses.replace(warned("x", "y", [], "z"), id="nccl.buffer-placement")
    assert ran(lambda _host: [given]).id == "site.own"


def test_a_fault_is_one_line_however_long() -> None:
    assert fault(RuntimeError("x" * 5000)).endswith("...")
    assert len(fault(RuntimeError("x\n" * 5000))) == 300
    assert fault(sys.exc_info()[1] or KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("text", "said"), [("0-999999999", "numbers of at most 65536"), ("x", "a list such as 0-3,8"), ("3-1", "an ascending range")]
)
def test_a_list_of_numbers_that_cannot_be_used_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"expected {said}.*, found '{text}'"):
        cpulist.parse(text)

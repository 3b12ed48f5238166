"""The table of planted faults in docs/standins.md against the rows that the lab's tests run."""

from __future__ import annotations

from nearsocket.model.finding import Status
from tests.checks.judging import ROOT, checks
from tests.lab import rows

PAGE = ROOT / "docs" / "standins.md"


def test_the_page_shows_the_rows_that_are_run() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rows.written(page) == page, "run: python -m tests.lab.rows docs/standins.md"


def test_a_row_names_checks_and_statuses_that_there_are() -> None:
    named = [pair for row in rows.HOST_ROWS for pair in row.found.items()]
    named += [pair for row in rows.ENGINE_ROWS for pair in zip(rows.PLACEMENT, row.expected, strict=True)]
    assert {id for id, _ in named} <= {*checks(), "host.reachable"}
    assert {status for _, status in named} <= {status.value for status in Status}


def test_names_of_rows_are_one_word_and_differ() -> None:
    for names in ([row.name for row in rows.HOST_ROWS], [row.name for row in rows.ENGINE_ROWS]):
        assert len(set(names)) == len(names) and all(" " not in name for name in names)

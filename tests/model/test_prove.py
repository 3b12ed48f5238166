"""What a start's proof says of its ranks, with NVML's word and without it."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model.prove import Around, prove
from nearsocket.model.verdict import RANKS, Trigger
from tests import build
from tests.onhost.verify.shapes import START

PLANNED = ("0000:c1:00.0", "0000:c2:00.0")


@pytest.mark.parametrize(
    ("held", "found", "status"),
    [
        (PLANNED, 2, "pass"),
        (PLANNED[:1], 1, "fail"),
        (("0000:e1:00.0", "0000:e2:00.0"), 0, "fail"),
        ((), 2, "pass"),
    ],
)
def test_ranks_are_those_on_the_planned_gpus_or_all_where_nobody_is_known_to_hold_one(
    held: tuple[str, ...], found: int, status: str
) -> None:
    """The count that the metrics and the alert go by is the finding's own."""
    host = build.host()
    processes = tuple(
        dataclasses.replace(process, gpus=held[at : at + 1], gpu_bytes={}) for at, process in enumerate(host.processes)
    )
    verdict = prove(
        dataclasses.replace(host, processes=processes),
        dataclasses.replace(START, gpus=PLANNED),
        Around("20260131T110000Z-77", "2026-01-31T11:00:00Z", Trigger.START, 3),
    )
    finding = next(one for one in verdict.findings if one.id == RANKS)
    assert (verdict.ranks_found, verdict.ranks_planned, finding.status.value) == (found, 2, status)
    assert f"{found} " in finding.summary

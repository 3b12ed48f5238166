"""What an upgrade is judged by beside the proofs: all-reduces against the driver before, and the host against what it was."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nearsocket.control import audit, converge
from nearsocket.control.audit import Manner
from nearsocket.control.probe.bases import Wish
from nearsocket.control.probe.measure import AllreduceWish, Reading, measure
from nearsocket.control.rollout.job import Place
from nearsocket.control.transport import TransportError
from nearsocket.model.check import Check
from nearsocket.model.compare import figures
from nearsocket.model.compare.make import compare
from nearsocket.model.compare.values import Change, Grade
from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Finding, Status, not_applicable
from nearsocket.model.probe import baseline, planning, sizes
from nearsocket.model.probe.baseline import Baseline
from nearsocket.model.probe.report import ProbeReport
from nearsocket.model.report import HostReport
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.text import one_line

#: Changes that are shown among a host's notes; `nearsocket compare` has all.
_SHOWN = 8
#: Seconds for one start of ranks.
_LIMIT_S = 600.0
#: How often slower all-reduces are measured before a driver is taken back for them, and the seconds in between: a boot goes on
#: behind sshd, and a measurement costs seconds where a way back costs a reboot.
_LOOKS, _PAUSE_S = 3, 20.0


@dataclass(frozen=True)
class Compared:
    """What measuring came to: notes, and the replicas whose all-reduces were good: right sums, not slower where that is known."""

    notes: tuple[str, ...] = ()
    good: tuple[str, ...] = ()


class Slower(NearsocketError):
    """All-reduces took longer than the figures allow."""


def compared(
    place: Place,
    before: Snapshot,
    frm: str | None,
    timeout_s: float,
    disturb: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Compared:
    """Measure every replica's all-reduces, before it starts, and hold them against the figures kept with the driver before: the new
    one has none. What cannot be measured (one GPU, an image without torch, a GPU that somebody holds) is a note, for that says
    nothing of the driver. Raises NearsocketError where sums are wrong, or it is slower beyond the noise at every look,
    TransportError.
    """
    served = place.target.settings.replicas if place.target.settings else ()
    if not served:
        return Compared(("nothing is served there: no all-reduce was measured",))
    known = figures.from_values(before.data("baselines"))
    # What was not measured then has nothing to be held against.
    kept = tuple(sorted({one.size_bytes for had in known for one in had.sizes})) or sizes.DEFAULT
    reading = Reading(timeout_s, disturb=disturb)
    notes: list[str] = []
    good: list[str] = []
    for one in served:
        wish = Wish(one.probe.backend, sizes=kept, limit_s=_LIMIT_S, replicas=(one.name,))
        for look in range(1, _LOOKS + 1):
            try:
                reports = measure(place.target, wish, reading, AllreduceWish(), place.children)
            except TransportError:
                raise
            except NearsocketError as error:
                notes.append(one_line(f"replica {one.name}: no all-reduce was measured: {error.message}", 300))
                reports = []
                break
            try:
                notes += _judged(reports, known, frm)
                break
            except Slower as slower:
                if look == _LOOKS:
                    raise
                notes.append(one_line(f"{slower.message}; measured again", 300))
                pause(_PAUSE_S)
        good += [one.name] if reports and not any(map(_void, reports)) else []
    return Compared(tuple(notes), tuple(good))


def _judged(reports: Sequence[ProbeReport], known: Sequence[Baseline], frm: str | None) -> list[str]:
    """Notes. Raises Slower, NearsocketError where one is wrong."""
    notes = []
    for report in reports:
        bad = next((finding for finding in report.findings if finding.status is Status.FAIL), None)
        if bad is not None:
            raise NearsocketError(f"replica {report.subject}: {bad.id} {bad.status.value}: {bad.summary}", bad.remedy)
        void = _void(report)
        if void is not None:
            notes.append(one_line(f"replica {report.subject}: no all-reduce was measured: {void.summary}", 300))
            continue
        judged = _against(report, known, frm)
        if judged.status in (Status.FAIL, Status.WARN):
            raise Slower(
                f"replica {report.subject}: all-reduces are slower than with the driver before: {judged.summary}",
                "another driver; where the change is meant: nearsocket probe allreduce --keep-baseline, then again",
            )
        notes.append(one_line(f"replica {report.subject}: all-reduces {judged.summary}", 300))
    return notes


def _void(report: ProbeReport) -> Finding | None:
    """Why nothing was measured; None where it was."""
    return next((one for one in report.findings if one.id == "probe.allreduce" and one.status is Status.UNKNOWN), None)


def _against(report: ProbeReport, known: Sequence[Baseline], frm: str | None) -> Finding:
    """The newest figures of the same GPUs, image, NCCL and host, with the driver before or an earlier one."""
    key = report.key
    series = report.tables.get(planning.CONFIGURED, ())
    if key is None:
        return not_applicable(report.subject, "measured, not compared: the ranks did not tell which NCCL they ran")
    same = [one for one in known if dataclasses.replace(one.key, driver="") == dataclasses.replace(key, driver="")]
    mine = sorted(same, key=lambda one: (one.key.driver == frm, one.kept_at))
    return baseline.judge(report.subject, mine[-1].key if mine else key, series, mine[-1] if mine else None)


def changes(place: Place, before: Snapshot, checks: tuple[Check, ...], timeout_s: float) -> list[str]:
    """What is another than before the upgrade, regressions first, as notes. Where that cannot be had, a note says so."""
    try:
        after = converge.survey(place.target, place.way, timeout_s, place.children)
        manner = Manner(checks=checks)
        sides: list[HostReport] = [audit.judged(place.target, snapshot, manner) for snapshot in (before, after)]
    except NearsocketError as error:
        return [one_line(f"not compared with the host before: {error.message}", 300)]
    found = compare([sides[0]], [sides[1]], {}, {}, pair=True).hosts[0].changes
    told = [_told(change) for change in found if change.grade is not Grade.CHANGED][:_SHOWN]
    told += [_told(change) for change in found if change.grade is Grade.CHANGED][: _SHOWN - len(told)]
    more = len(found) - len(told)
    return [*told, *([f"{more} more changes: nearsocket compare"] if more > 0 else [])]


def _told(change: Change) -> str:
    what = f"{change.id} of {change.subject}" if change.id else f"{change.subject}, {change.what}"
    return one_line(f"{change.grade.value}: {what}: {change.before or 'none'} -> {change.after or 'none'}", 300)

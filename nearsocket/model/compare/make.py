"""Two reports on a host, compared: what is worse, what is other, what is better. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from nearsocket.model.compare import figures, hardware, placement, software
from nearsocket.model.compare.figures import Figures
from nearsocket.model.compare.values import Change, Comparison, Grade, HostComparison, Section, worst_first
from nearsocket.model.host import Host
from nearsocket.model.report import HostReport
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.reading import refused, why

#: Sources that a comparison rests on: one that was read on one side alone is said.
_RESTS_ON = ("pci", "nvml", "nodes", "processes", "packages", "packages.holds", "containers", "kernel.sysctl", "driver.module")


def compare(
    before: Sequence[HostReport], after: Sequence[HostReport], old: Figures, new: Figures, pair: bool = False
) -> Comparison:
    """The hosts of both sides by name, in the order of the later side.

    `pair`: each side is one host, and the two are compared whatever their names are. `old`, `new`: figures measured beside the
    snapshots, where both sides are one host.
    """
    if len(before) == len(after) == 1 and (pair or before[0].name == after[0].name):
        return Comparison((_pair(before[0], after[0], old, new),))
    earlier = {report.name: report for report in before}
    names = [report.name for report in after]
    hosts = [_pair(earlier[one.name], one, {}, {}) if one.name in earlier else _alone(one, False) for one in after]
    return Comparison((*hosts, *(_alone(one, True) for one in before if one.name not in names)))


def _pair(before: HostReport, after: HostReport, old: Figures, new: Figures) -> HostComparison:
    found = list(placement.changes(before.findings, after.findings))
    notes: list[str] = []
    if before.name != after.name:
        notes.append(one_line(f"two hosts of different names: {before.name} before, {after.name} after", 600))
    if before.host and after.host:
        found += hardware.changes(before.host, after.host)
        found += placement.replicas(before.host, after.host)
        found += software.versions(before.host, after.host)
        found += software.parameters(before.host, after.host)
        sides = {**_kept(before.host), **old}, {**_kept(after.host), **new}
        found += figures.changes(*sides)
        notes += figures.unpaired(*sides)
        notes += _unread(before.host, after.host)
    else:
        side, report = ("before", before) if before.host is None else ("after", after)
        notes.append(one_line(f"the host was not read {side}: {report.reason}", 300))
        # A comparison of nothing is no clean one.
        found.append(Change(Section.HARDWARE, Grade.UNKNOWN, after.name, f"was not read {side}: nothing else of it is compared"))
    return HostComparison(after.name, _moment(before), _moment(after), worst_first(found), tuple(notes))


def _alone(report: HostReport, gone: bool) -> HostComparison:
    """A host that one side lacks: gone is a warning, for nobody looked at it again."""
    moment = _moment(report)
    grade, what = (Grade.WARN, "is not in the later ones") if gone else (Grade.CHANGED, "is not in the earlier ones")
    change = Change(Section.HARDWARE, grade, report.name, what, moment if gone else None, None if gone else moment)
    return HostComparison(report.name, moment if gone else None, None if gone else moment, (change,))


def _kept(host: Host) -> Figures:
    source = host.source("baselines")
    return figures.of_baselines(figures.from_values(source.data)) if source.ok else {}


def _unread(before: Host, after: Host) -> Iterator[str]:
    for name in _RESTS_ON:
        for side, host, other in (("before", before, after), ("after", after, before)):
            if refused(host, name) and not refused(other, name):
                yield f"not compared: {why(host, name)} {side}"


def _moment(report: HostReport) -> Optional[str]:
    return f"{report.name} at {report.taken_at}"

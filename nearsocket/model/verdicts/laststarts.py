"""What the last proof of each replica's start said, how old it is, and whether it was about the start that runs now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, Optional

from nearsocket.model import generation, verdict
from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Evidence, Finding, Status, failed, not_applicable, passed, unknown, warned
from nearsocket.model.generation import ReplicaEntry
from nearsocket.model.host import Host
from nearsocket.model.snapshot import SourceStatus
from nearsocket.model.text import brief
from nearsocket.model.verdict import PLACEMENT, RANKS, Held, Verdict, Word
from nearsocket.model.verdicts.groups import AS_ROOT, quoted
from nearsocket.model.verdicts.reading import because, entries, text, why

#: The watch confirms every quarter of an hour; four times that is too long.
OLD_S = 3600


def judge(host: Host) -> Iterator[Finding]:
    """A finding for each replica of the generation in force; one where there is none."""
    source = host.source("generation")
    if "generation" not in host.sources or source.status is SourceStatus.ABSENT:
        # A snapshot without that source is of a nearsocket that managed nothing.
        yield not_applicable(host.name, "nearsocket manages nothing here", because(host, "generation"))
        return
    if not source.ok:
        yield unknown(host.name, f"what is managed is not known: {why(host, 'generation')}", because(host, "generation"), AS_ROOT)
        return
    try:
        replicas = generation.from_json(text(host, "generation")).replicas
    except NearsocketError as error:
        yield unknown(host.name, error.message, because(host, "generation"), "run deploys/site.py again")
        return
    if not replicas:
        yield not_applicable(host.name, "no replica is managed here", (Evidence("generation", "0 replicas"),))
    told = {str(entry.get("replica")): entry for entry in entries(host, "verdicts")}
    for replica in replicas:
        yield _replica(host, replica, told.get(replica.name))


def _replica(host: Host, replica: ReplicaEntry, entry: Any) -> Finding:
    subject, look = f"replica {brief(replica.name)}", f"journalctl -u {quoted(replica.unit)} -n 50; nearsocket verify TARGET"
    unit = next((unit for unit in host.units if unit.id == replica.unit), None)
    if unit is not None and unit.active in ("inactive", "failed"):
        state = Evidence(f"systemctl show {quoted(replica.unit)}", f"{unit.active} ({unit.sub})")
        return not_applicable(subject, f"it does not run: {unit.active}", (state,))
    found = _verdict(entry)
    if found is None:
        reason = brief(str(entry.get("reason"))) if entry else why(host, "verdicts")
        return unknown(subject, f"no verdict on any start of it: {reason}", because(host, "verdicts"), look)
    age_s = _age_s(host, found)
    shown = [Evidence("verdicts", f"{found.line} ({found.trigger.value}, judged {brief(found.judged_at, 30)})")]
    if entry.get("start") and entry["start"] != found.start:
        summary = (
            f"its newest start ({brief(str(entry['start']), 40)}) has no verdict; the last one, {_old(age_s)}, is on an older start"
        )
        return unknown(subject, summary, shown, look)
    summary = f"{found.line}; {_old(age_s)}"
    # Other failures of the proof are the audit's own findings, judged anew.
    bad = [one for one in found.findings if one.status is Status.FAIL and one.id in (PLACEMENT, RANKS)]
    shown += [piece for one in bad for piece in one.evidence[:3]]
    if found.word is Word.FAR or bad:
        said = summary if found.word is Word.FAR else f"{bad[0].id}: {brief(bad[0].summary, 200)}; {_old(age_s)}"
        return failed(subject, said, shown, next((one.remedy for one in bad if one.remedy), None) or look)
    if found.word is Word.UNKNOWN:
        return unknown(subject, summary, shown, look)
    if age_s is None or age_s > OLD_S:
        return warned(
            subject, f"the last look at it is {_old(age_s)}: {found.line}", shown, "systemctl status nearsocket-watch.timer"
        )
    if found.word is Word.NOT_APPLICABLE:
        return not_applicable(subject, summary, shown)
    if found.held is not Held.FORCE:
        return warned(subject, summary, shown, look)
    return passed(subject, summary, shown)


def _verdict(entry: Any) -> Optional[Verdict]:
    try:
        return verdict.from_value({"basis": {}, **entry["verdict"]}) if entry else None
    except (NearsocketError, TypeError):
        return None


def _age_s(host: Host, found: Verdict) -> Optional[float]:
    """Seconds between the last look and the snapshot; None where one of the moments is none, or lies ahead of the other."""
    moments = [_moment(text) for text in (host.taken_at, found.confirmed_at or found.judged_at)]
    if moments[0] is None or moments[1] is None:
        return None
    age_s = (moments[0] - moments[1]).total_seconds()
    return max(age_s, 0.0) if age_s > -60 else None


def _moment(text: str) -> Optional[datetime]:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _old(age_s: Optional[float]) -> str:
    if age_s is None:
        return "of an unknown age"
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if age_s >= size:
            return f"{age_s / size:.0f} {word} old"
    return f"{age_s:.0f} s old"

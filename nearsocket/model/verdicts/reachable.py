"""Judges whether a host could be read: from a snapshot, and where there is none because nothing could be read."""

from __future__ import annotations

import dataclasses
import re

from nearsocket.model.finding import Evidence, Finding, failed, passed, unknown, warned
from nearsocket.model.host import Host
from nearsocket.model.snapshot import SourceStatus
from nearsocket.model.verdicts.groups import quoted
from nearsocket.model.verdicts.reading import because

REACHABLE = "host.reachable"
#: How the reason of a source reads whose tool ran and failed (docs/snapshot.md). It did answer: `dkms status` fails where a
#: module is missing. The checks that need such a source say what it means for them.
#: So did NVML where it refuses in its own words, such as a version mismatch.
_TOOL_FAILED = re.compile(r"\bexit(?:ed| code)? \d+\b|^NVML: ")


def unreachable(name: str, why: str, remedy: str, evidence: Evidence) -> Finding:
    """`fail` for a host that no answer came from: no route, no login, out of time. `why` is one line; the id is stamped."""
    return _stamped(failed(name, f"the host could not be read: {why}", (evidence,), remedy))


def unusable(name: str, why: str, remedy: str, evidence: Evidence) -> Finding:
    """`fail` for a host that answers and cannot be audited as it is: no Python 3.9, no login, sudo refuses."""
    return _stamped(failed(name, f"the host answers and cannot be audited: {why}", (evidence,), remedy))


def unclear(name: str, why: str, remedy: str, evidence: Evidence) -> Finding:
    """`unknown` for a host whose answer is cut or another program's: it was reached, and nothing is known about it."""
    return _stamped(unknown(name, f"the host answers and what it says cannot be used: {why}", (evidence,), remedy))


def untried(name: str, why: str, remedy: str, evidence: Evidence) -> Finding:
    """`unknown` for a host that this machine could not read for a reason of its own: nothing is known about the host."""
    return _stamped(unknown(name, f"the host was not read, for a reason of this machine: {why}", (evidence,), remedy))


def _stamped(finding: Finding) -> Finding:
    return dataclasses.replace(finding, id=REACHABLE)


def read_well(host: Host) -> Finding:
    """How well this snapshot's host was read: every source answered, some ran out of time, or none was read at all."""
    by_status: dict[SourceStatus, list[str]] = {status: [] for status in SourceStatus}
    for name in sorted(host.sources):
        by_status[host.sources[name].status].append(name)
    read, denied = by_status[SourceStatus.OK], by_status[SourceStatus.DENIED]
    tools = [name for name in by_status[SourceStatus.ERROR] if _TOOL_FAILED.search(host.sources[name].reason or "")]
    late = by_status[SourceStatus.TIMEOUT] + [name for name in by_status[SourceStatus.ERROR] if name not in tools]
    who = "an unknown user" if host.uid is None else "root" if host.uid == 0 else f"uid {host.uid}"
    said = "".join(f", {key} {host.program[key]}" for key in ("version", "python", "took_s") if key in host.program)
    count = f"{len(read)} of {len(host.sources)} sources"
    evidence = [Evidence("snapshot", f"taken {host.taken_at} as {who}{said}; {count} read")]
    evidence += because(host, *late, *tools, *denied)
    if not read:
        return unknown(host.name, "the snapshot holds no source that was read", evidence, f"nearsocket audit {quoted(host.name)}")
    if late:
        summary = f"read as {who}, but {len(late)} of {len(host.sources)} sources gave no answer: {', '.join(late)}"
        return warned(
            host.name,
            summary,
            evidence,
            "# audit this host again with --timeout 180; look at what hangs: ps -eo pid,stat,wchan:30,args | awk '$2 ~ /D/'",
        )
    refused = f"; {len(denied)} refused to this user: {', '.join(denied)}" if denied else ""
    failed_tools = f"; {len(tools)} ended in an error: {', '.join(tools)}" if tools else ""
    return passed(host.name, f"read as {who}: {count}{refused}{failed_tools}", evidence)

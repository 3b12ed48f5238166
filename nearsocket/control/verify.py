"""Proofs of many hosts' running replicas: each host asked once, judged there by what judges its starts; nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from nearsocket.control import audit, program, workers
from nearsocket.control.audit import Manner
from nearsocket.control.target import Target, Way
from nearsocket.control.transport import Answer, Transport, TransportError, Trouble
from nearsocket.control.transport.process import Children
from nearsocket.model import verdict
from nearsocket.model.errors import EXIT_UNKNOWN, NearsocketError, UsageError
from nearsocket.model.exitcode import exit_code, worst_of, worst_status
from nearsocket.model.finding import Finding, Status
from nearsocket.model.text import one_line
from nearsocket.model.verdict import Verdict
from nearsocket.report.verdicts import Page

_SCHEMA = "nearsocket.verdicts/1"
_BEGINNING = b'{"schema": "nearsocket.verdicts/'


@dataclass(frozen=True)
class Silent:
    """A replica of which there is no verdict, and why."""

    replica: str
    reason: str


@dataclass(frozen=True)
class HostVerdicts:
    """One host's replicas. `findings`: on the host itself, where it could not be read. `reason`: why there is no proof at all."""

    name: str
    verdicts: tuple[Verdict, ...] = ()
    silent: tuple[Silent, ...] = ()
    findings: tuple[Finding, ...] = ()
    reason: str | None = None

    @property
    def status(self) -> Status:
        """The worst of its replicas'; unknown where there is none."""
        own = [finding.status for finding in self.findings]
        return worst_status([*own, *(one.status for one in self.verdicts), *(Status.UNKNOWN for _ in self.silent)])

    def code(self, strict: bool = False) -> int:
        """DESIGN's exit codes; a replica or host without a proof is 3."""
        codes = [exit_code(one.findings, strict) for one in self.verdicts]
        codes += [exit_code(self.findings, strict)] if self.findings else []
        return worst_of([*codes, *(EXIT_UNKNOWN for _ in (self.silent or ([] if codes else [None])))])


def verify(
    targets: Sequence[Target],
    timeout_s: float,
    parallel: int,
    replica: str | None = None,
    tell: Callable[[HostVerdicts], None] | None = None,
) -> tuple[HostVerdicts, ...]:
    """Every host's verdicts in the targets' order; `tell` hears of each as it comes. A host that cannot be read is a finding.

    Raises UsageError for a saved snapshot: a proof is of what runs.
    """
    targets = tuple(targets)
    saved = next((target for target in targets if target.way is Way.FILE), None)
    if saved is not None:
        raise UsageError(
            f"{one_line(saved.name, 80)}: expected a host, found a saved snapshot", "nearsocket audit judges saved snapshots"
        )
    children = Children()
    found: dict[int, HostVerdicts] = {}

    def act(at: int) -> HostVerdicts:
        return one(targets[at], audit.transport(targets[at]), timeout_s, replica, children)

    try:
        with closing(workers.each(len(targets), act, parallel)) as answers:
            for at, answer in answers:
                found[at] = answer
                if tell:
                    tell(answer)
    except BaseException:
        children.end_all()
        raise
    return tuple(found[at] for at in range(len(targets)))


def one(target: Target, way: Transport, timeout_s: float, replica: str | None, children: Children) -> HostVerdicts:
    """One host's verdicts, by one exec over that way."""
    own_s = max(1.0, timeout_s - min(10.0, timeout_s / 4))
    words = ["verdicts", "--timeout", f"{own_s:g}", *(["--replica", replica] if replica else [])]
    try:
        sent = audit.password_line(target.sudo) + program.payload(words)
        return from_answer(way.run(audit.command(target), sent, timeout_s, children), target.name, replica)
    except TransportError as error:
        report = audit.not_read_report(target, error, Manner(checks=()))
        return HostVerdicts(target.name, findings=report.findings, reason=report.reason)


def from_answer(answer: Answer, host: str, replica: str | None = None) -> HostVerdicts:
    """What the program on the host said. Raises TransportError where it is cut or something else."""
    start = answer.stdout.rfind(_BEGINNING)
    try:
        value: Any = json.loads(answer.stdout[start:].partition(b"\n")[0]) if start >= 0 else None
        if value is None or value["schema"] != _SCHEMA:
            raise ValueError(f"expected {_SCHEMA}")
        managed, entries = [str(name) for name in value["managed"]], list(value["replicas"])
        pairs = [(str(entry["replica"]), entry["verdict"], entry["reason"]) for entry in entries]
        verdicts = tuple(verdict.from_value(given) for _, given, _ in pairs if given is not None)
    except (ValueError, KeyError, TypeError, NearsocketError) as error:
        hint = "the answer was cut or is another program's: verify it again, and look at what the login shell writes"
        raise TransportError(
            Trouble.ANSWER, f"expected verdicts, found: {one_line(str(error), 120)}", hint, answer.stderr
        ) from None
    silent = tuple(Silent(one_line(name, 60), one_line(str(reason), 300)) for name, given, reason in pairs if given is None)
    reason = None
    if not pairs and managed and replica:
        reason = f"it has no replica {one_line(replica, 60)!r} (it has {one_line(', '.join(managed), 200)})"
    elif not pairs:
        reason = "nearsocket manages nothing here"
    return HostVerdicts(host, verdicts, silent, reason=reason)


def page(host: HostVerdicts) -> Page:
    """The host as a renderer takes it."""
    silent = tuple((one.replica, one.reason) for one in host.silent)
    return Page(host.name, host.status, host.verdicts, silent, host.findings, host.reason)

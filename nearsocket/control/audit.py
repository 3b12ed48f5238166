"""The audit of many hosts: each read once, judged, waived; one that cannot be read is a finding and stops nobody else."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nearsocket.control import program, snapshots, waivers, workers
from nearsocket.control.target import Ssh, Sudo, Target, Way
from nearsocket.control.transport import Transport, TransportError, Trouble
from nearsocket.control.transport.local import Local
from nearsocket.control.transport.openssh import OpenSsh
from nearsocket.control.transport.paramiko import PyinfraSsh
from nearsocket.control.transport.process import Children
from nearsocket.control.waivers import Waiver
from nearsocket.model import cpulist
from nearsocket.model.check import Check
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.exitcode import exit_code, worst_of, worst_status
from nearsocket.model.finding import Evidence, Finding, Status, Waived
from nearsocket.model.host import Host
from nearsocket.model.judge import judge
from nearsocket.model.report import HostReport, Report
from nearsocket.model.scrub import Scrubber
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.text import fault, one_line
from nearsocket.model.verdicts.reachable import unclear, unreachable, untried, unusable

#: Troubles of a host that answers, and so is up.
_ANSWERS = (
    Trouble.HOST_KEY_CHANGED,
    Trouble.HOST_KEY_UNKNOWN,
    Trouble.DENIED,
    Trouble.NO_PYTHON,
    Trouble.OLD_PYTHON,
    Trouble.SUDO,
    Trouble.PROGRAM,
)
#: Troubles after which nothing is known about the host.
_VERDICTS = {Trouble.ANSWER: unclear, Trouble.HERE: untried}


def _raise(error: NearsocketError) -> None:
    raise error


@dataclass(frozen=True)
class Manner:
    """How to audit. `near` (the user's word on the GPUs' nodes) wins over the inventory's; `now` is the clock.

    `unsaved` hears of a snapshot that could not be saved, so that the report on it is not lost; it raises where not given.
    """

    checks: tuple[Check, ...]
    known: frozenset[str] | None = None  # the ids of all checks, those that --only left out included
    waivers: tuple[Waiver, ...] = ()
    near: frozenset[int] | None = None
    timeout_s: float = 60.0
    parallel: int = 16
    strict: bool = False
    save: Path | None = None
    scrubber: Scrubber | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    unsaved: Callable[[NearsocketError], None] = _raise


Tell = Callable[[HostReport, int, int], None]


def audit(
    targets: Sequence[Target], manner: Manner, tell: Tell | None = None, loaded: Mapping[Target, Snapshot] | None = None
) -> Report:
    """Read and judge every target; `tell` hears of each host as it comes, how many are done and how many there are.

    `loaded`: saved snapshots that were read from their files already.

    Raises UsageError for a saved snapshot that is none and for a folder that snapshots cannot be saved in, before any host is
    read; a host that cannot be read is a finding. An interrupt ends every child before it is passed on.
    """
    targets = tuple(targets)
    known = loaded or {}
    saved = {target: known.get(target) or snapshots.from_file(target.file) for target in targets if target.file is not None}
    if manner.scrubber:
        _learn(manner.scrubber, targets, saved, manner.waivers)
    if manner.save:
        names = [saved[target].host if target in saved else target.name for target in targets]
        snapshots.prepare(manner.save, [manner.scrubber.host(name) for name in names] if manner.scrubber else names)
    children = Children()
    reports: dict[int, HostReport] = {}

    def act(at: int) -> HostReport:
        return _one(targets[at], saved.get(targets[at]), manner, children)

    try:
        with closing(workers.each(len(targets), act, manner.parallel)) as read_hosts:
            for at, report in read_hosts:
                reports[at] = report
                if tell:
                    tell(report, len(reports), len(targets))
    except BaseException:
        children.end_all()
        raise
    return conclude([reports[at] for at in range(len(targets))], targets, manner)


def _learn(scrubber: Scrubber, targets: Sequence[Target], saved: Mapping[Target, Snapshot], waived: Sequence[Waiver]) -> None:
    """Tell the scrubber every name that is known beforehand: tokens go by the order of the targets, whatever comes in first."""
    for target in targets:
        scrubber.host(saved[target].host if target in saved else target.name, *([target.ssh.hostname] if target.ssh else []))
        if target.ssh and target.ssh.user:
            scrubber.user(target.ssh.user)
    for waiver in waived:
        scrubber.user(waiver.owner)


def conclude(hosts: Sequence[HostReport], targets: Sequence[Target], manner: Manner) -> Report:
    """The whole report: warnings about waivers that waive nothing added, and the worst host's code. Pure."""
    own_names = {
        target.name if target.way is not Way.FILE else host.name: at
        for at, (target, host) in enumerate(zip(targets, hosts, strict=True))
    }
    hosts = list(hosts)
    findings = {name: hosts[at].findings for name, at in own_names.items()}
    for warning in waivers.idle(manner.waivers, findings, manner.now().date(), manner.known):
        at = own_names[warning.subject]
        shown = scrubbed(warning, manner.scrubber) if manner.scrubber else warning
        # Findings are ordered by id; Python's sort keeps each check's own order.
        hosts[at] = _with_findings(hosts[at], tuple(sorted((*hosts[at].findings, shown), key=lambda finding: finding.id)))
    counted = [host for host in hosts if host.maintenance is None]
    code = worst_of(exit_code(host.findings, manner.strict) for host in counted)
    status = worst_status(host.status for host in counted) if counted else Status.NOT_APPLICABLE
    return Report(tuple(hosts), status, code)


def _one(target: Target, saved: Snapshot | None, manner: Manner, children: Children) -> HostReport:
    """One host, read and judged. Raises UsageError for words of the user's that cannot hold for it."""
    try:
        return judged(target, saved or collect(target, manner.timeout_s, children), manner)
    except TransportError as error:
        return not_read_report(target, error, manner)
    except NearsocketError:
        raise
    except Exception as error:  # one host must not take the others' results with it
        return not_read_report(target, here(error), manner)


def here(error: Exception) -> TransportError:
    """The error about a host that was not read for a reason of this machine: out of files, of processes, of memory."""
    found = f"expected to read the host, found: {fault(error)}"
    hint = "look at this machine's limits (ulimit -n, ulimit -u) and at the inventory; --parallel N reads fewer at a time"
    return TransportError(Trouble.HERE, found, hint)


def collect(target: Target, timeout_s: float, children: Children) -> Snapshot:
    """The host's own words: one connection, one exec. Raises TransportError, one line."""
    words, sent = command(target), stdin(target, timeout_s)
    return snapshots.asked(lambda: transport(target).run(words, sent, timeout_s, children), target.name)


def transport(target: Target) -> Transport:
    """OpenSSH, except where a password is in the inventory: only paramiko can give one without a terminal."""
    if target.ssh is None:
        return Local()
    return PyinfraSsh(target.ssh) if target.ssh.password is not None else OpenSsh(target.ssh)


def command(target: Target) -> str:
    """The one command for the host's login shell; this machine runs it without a shell."""
    sudo = program.SudoMode(target.sudo.password is not None, target.sudo.user) if target.sudo else None
    if target.way is not Way.LOCAL:
        return program.remote_command(sudo)
    words = program.local_command()
    if sudo:
        through_sudo = shlex.split(program.remote_command(sudo))
        words = [*through_sudo[: through_sudo.index("--") + 1], *words]
    return shlex.join(words)


def stdin(target: Target, timeout_s: float) -> bytes:
    """The program, behind sudo's password where there is one. The program's own limit leaves time for the connection."""
    own_s = max(1.0, timeout_s - min(10.0, timeout_s / 4))
    sent = program.payload(["collect", "--timeout", f"{own_s:g}", "--host", target.name])
    return password_line(target.sudo) + sent


def password_line(sudo: Sudo | None) -> bytes:
    """What sudo -S reads; where it asks for none, the program's start throws the line away."""
    return sudo.password.encode() + b"\n" if sudo and sudo.password is not None else b""


def judged(target: Target, snapshot: Snapshot, manner: Manner) -> HostReport:
    """The report on a snapshot, which is saved where that is wanted."""
    name = snapshot.host
    if manner.scrubber:
        snapshot = manner.scrubber.snapshot(snapshot)
    if manner.save:
        try:
            snapshots.save(snapshot, manner.save)
        except NearsocketError as error:
            manner.unsaved(error)
    near = manner.near if manner.near is not None else target.near
    try:
        host = snapshots.parsed(snapshot, near)
    except TransportError as error:
        return not_read_report(target, error, manner)
    must_have(host, near)
    return _report(target, name, host.name, host.taken_at, host, judge(host, manner.checks), None, manner)


def must_have(host: Host, near: frozenset[int] | None) -> None:
    """Raises UsageError where the user's word on the GPUs' nodes names nodes that the host has not; nodes not read say nothing."""
    there = {node.id for node in host.nodes}
    if near and there and not near <= there:
        raise UsageError(
            f"--near: expected nodes of {one_line(host.name, 100)} ({cpulist.render(there)}), found {cpulist.render(near - there)}",
            "name the nodes of the GPUs' socket; an inventory's `near` counts like --near",
        )


def not_read_report(target: Target, error: TransportError, manner: Manner) -> HostReport:
    """The report on a host that gave no usable answer."""
    name = manner.scrubber.host(target.name) if manner.scrubber else target.name
    finding = not_read(name, error, by_hand(target.ssh) if target.ssh else None)
    if manner.scrubber:
        finding = scrubbed(finding, manner.scrubber)
    moment = manner.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    return _report(target, target.name, name, moment, None, (finding,), finding.summary, manner)


def by_hand(ssh: Ssh) -> str:
    """The command line that a person would try."""
    options = [*(["-F", ssh.config_file] if ssh.config_file else []), *(["-i", ssh.key] if ssh.key else [])]
    options += ["-p", str(ssh.port)] if ssh.port else []
    return shlex.join(["ssh", *options, "--", f"{ssh.user}@{ssh.hostname}" if ssh.user else ssh.hostname, "python3 --version"])


def not_read(name: str, error: TransportError, command_line: str | None = None) -> Finding:
    """The finding about a host that gave no usable answer; the remedy is what to look at, and `command_line` to see it. Pure.

    `fail` for one that is not reached in time or cannot be audited as it is; `unknown` for one that was reached and whose
    answer is cut or foreign, and for one that this machine could not try.
    """
    remedy = f"{command_line}  # {error.hint}" if command_line else error.hint or ""
    verdict = _VERDICTS.get(error.trouble) or (unusable if error.trouble in _ANSWERS else unreachable)
    return verdict(name, error.message, remedy, Evidence(error.trouble.value, error.evidence or error.message))


def scrubbed(finding: Finding, scrubber: Scrubber) -> Finding:
    """The finding without what identifies."""
    return dataclasses.replace(
        finding,
        subject=scrubber.text(finding.subject),
        summary=scrubber.text(finding.summary),
        evidence=tuple(Evidence(scrubber.text(e.source), scrubber.text(e.text)) for e in finding.evidence),
        remedy=scrubber.text(finding.remedy) if finding.remedy is not None else None,
        waived=finding.waived and _scrubbed_waiver(finding.waived, scrubber),
    )


def _scrubbed_waiver(waived: Waived, scrubber: Scrubber) -> Waived:
    return dataclasses.replace(waived, reason=scrubber.text(waived.reason), owner=scrubber.text(waived.owner))


def _report(
    target: Target,
    own_name: str,
    name: str,
    taken_at: str,
    host: Host | None,
    findings: Sequence[Finding],
    reason: str | None,
    manner: Manner,
) -> HostReport:
    today = manner.now().date()
    marked = waivers.apply(manner.waivers, own_name, findings, today)
    maintenance = waivers.in_force(target.maintenance, today)
    if manner.scrubber:
        marked = tuple(scrubbed(finding, manner.scrubber) if finding.waived else finding for finding in marked)
        maintenance = maintenance and dataclasses.replace(maintenance, reason=manner.scrubber.text(maintenance.reason))
    report = HostReport(name, Status.UNKNOWN, taken_at, host, (), reason, maintenance)
    return _with_findings(report, marked)


def _with_findings(report: HostReport, findings: tuple[Finding, ...]) -> HostReport:
    counted = [finding.status for finding in findings if finding.waived is None]
    return dataclasses.replace(report, findings=findings, status=worst_status(counted) if counted else Status.NOT_APPLICABLE)

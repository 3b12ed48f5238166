"""One host measured: read, guarded, ordered, judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nearsocket.control import audit
from nearsocket.control.probe import ask, bases
from nearsocket.control.probe.bases import Subject, Wish, subjects
from nearsocket.control.target import Target
from nearsocket.control.transport.process import Children
from nearsocket.model import read
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.finding import Finding, Status
from nearsocket.model.host import Host
from nearsocket.model.plan.fingerprint import of_host
from nearsocket.model.probe import allreduce, baseline, guard, lottery, path, place, planning
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.lottery import Draw
from nearsocket.model.probe.report import ProbeReport
from nearsocket.model.probe.series import Series, of_starts
from nearsocket.model.probe.starts import ProbeOrder, Started, StartOrder
from nearsocket.model.verdicts.placement import PLACEMENT_ID


@dataclass(frozen=True)
class Reading:
    """How hosts are read: the limit of reading, the user's word on the GPUs' nodes, leave to disturb others."""

    timeout_s: float
    near: frozenset[int] | None = None
    disturb: bool = False


@dataclass(frozen=True)
class AllreduceWish:
    """What else than one start as configured: a contrast, a sweep with its passes, a baseline to keep."""

    contrast: bool = False
    sweep: tuple[Mapping[str, str], ...] = ()
    passes: int = 5
    keep: bool = False


@dataclass(frozen=True)
class LotteryWish:
    """How many draws, and whether the near nodes are filled with page cache before each."""

    draws: int = 10
    fill: bool = False


def measure(
    target: Target, wish: Wish, reading: Reading, what: AllreduceWish | LotteryWish, children: Children
) -> list[ProbeReport]:
    """Measure every subject of that host, one after the other. Raises NearsocketError where it is refused or cannot be reached."""
    near = reading.near if reading.near is not None else target.near
    host = read.host(audit.collect(target, reading.timeout_s, children), near)
    audit.must_have(host, near)
    found = []
    for subject in subjects(host, target.settings, wish):
        filling = isinstance(what, LotteryWish) and what.fill and bool(_nodes_to_fill(subject))
        held = guard.holder(host, [place.pci for place in subject.base.places if place.pci], filling)
        if held is not None and not reading.disturb:
            raise NearsocketError(
                f"{target.name}: {subject.name}: refused: {held}", "stop it first; --disturb measures all the same, and disturbs it"
            )
        if isinstance(what, LotteryWish):
            found.append(_lottery(target, subject, what, near, children))
        else:
            found.append(_allreduce(target, host, subject, what, near, children))
    return found


def _allreduce(
    target: Target, host: Host, subject: Subject, what: AllreduceWish, near: frozenset[int] | None, children: Children
) -> ProbeReport:
    base = subject.base
    orders: list[StartOrder] = [planning.start(base, planning.CONFIGURED, 0)]
    if what.contrast:
        orders += planning.contrast(base, len(orders))
    swept = planning.sweep(base, what.sweep, what.passes, len(orders)) if what.sweep else ()
    runs = ask.run_starts(target, ProbeOrder((*orders, *swept)), children)
    first, rest, sweep = runs[0], runs[1 : len(orders)], runs[len(orders) :]
    findings = [_named("probe.allreduce", allreduce.judge(subject.name, first))]
    findings.append(_named(PLACEMENT_ID, _placed(subject, orders[0], first, near)[0]))
    series = of_starts([first.rows])
    tables: dict[str, tuple[Series, ...]] = {planning.CONFIGURED: series}
    key = _key(host, subject, first)
    known = None
    if key is not None and not first.failed:
        known = ask.load_baseline(target, key, children)
        findings.append(_named("probe.baseline", baseline.judge(subject.name, key, series, known)))
    if what.contrast:
        pairs = list(zip(orders[1:], rest, strict=True))
        sides = {name: [(order, run) for order, run in pairs if run.name == name] for name in (planning.NEAR, planning.FAR)}
        where = {name: [_placed(subject, order, run, near)[1] for order, run in some] for name, some in sides.items()}
        contrast = allreduce.contrast(*([run for _, run in sides[name]] for name in (planning.NEAR, planning.FAR)))
        findings += [_named("probe.allreduce", allreduce.judge(f"{subject.name}, {run.name}", run)) for run in rest if _bad(run)]
        judged = allreduce.judge_contrast(subject.name, contrast, where[planning.NEAR], where[planning.FAR])
        findings.append(_named("probe.contrast", judged))
        tables |= {planning.NEAR: contrast.near, planning.FAR: contrast.far}
    if sweep:
        swept_tables, failures = _swept(sweep)
        tables |= swept_tables
        findings += [_named("probe.allreduce", allreduce.judge(f"{subject.name}, {run.name}", run)) for run in sweep if _wrong(run)]
        findings.append(_named("probe.sweep", allreduce.judge_sweep(subject.name, swept_tables, failures)))
    unkept = None
    if what.keep:
        try:
            _keep(target, key, series, findings, children)
        except NearsocketError as error:
            unkept = error
    return ProbeReport(
        target.name,
        subject.name,
        "allreduce",
        tuple(findings),
        tables,
        first.facts,
        key,
        known,
        first.capped_bytes,
        near=what.contrast,
        sweep=bool(sweep),
        unkept=unkept,
    )


def _nodes_to_fill(subject: Subject) -> tuple[int, ...]:
    """The near nodes. Raises UsageError where there is none, or none beside them that buffers could spill to."""
    nodes = tuple(sorted({node for one in subject.base.places for node in one.near}))
    if not nodes or not subject.base.far:
        raise UsageError("--fill: expected near nodes to fill and others beside them, found none of one kind", "--near NODES")
    return nodes


def _lottery(target: Target, subject: Subject, what: LotteryWish, near: frozenset[int] | None, children: Children) -> ProbeReport:
    orders = planning.lottery(subject.base, what.draws, _nodes_to_fill(subject) if what.fill else ())
    runs = ask.run_starts(target, ProbeOrder(orders), children)
    draws = tuple(Draw(run.name, _placed(subject, order, run, near)[1], run) for order, run in zip(orders, runs, strict=True))
    findings = [_named("probe.allreduce", allreduce.judge(f"{subject.name}, {run.name}", run)) for run in runs if _wrong(run)]
    findings.append(_named("probe.lottery", lottery.judge(subject.name, draws)))
    tables = {
        name: of_starts([draw.started.rows for draw in draws if draw.name == name])
        for name in (planning.CONFIGURED, planning.NAIVE)
    }
    facts = runs[0].facts if runs else {}
    return ProbeReport(target.name, subject.name, "lottery", tuple(findings), tables, facts, draws=draws)


def _placed(subject: Subject, order: StartOrder, run: Started, near: frozenset[int] | None) -> tuple[Finding, place.Where]:
    return place.judge(subject.name, run, subject.base.backend, order.container, near)


def _bad(run: Started) -> bool:
    return run.failed is not None or _wrong(run)


def _wrong(run: Started) -> bool:
    return any(row.wrong for row in run.rows)


def _swept(sweep: Sequence[Started]) -> tuple[dict[str, tuple[Series, ...]], dict[str, str]]:
    names = list(dict.fromkeys(run.name for run in sweep))
    failures = {run.name: run.failed for run in sweep if run.failed}
    tables = {name: of_starts([run.rows for run in sweep if run.name == name]) for name in names if name not in failures}
    return tables, failures


def _named(id: str, finding: Finding) -> Finding:
    return dataclasses.replace(finding, id=id)


def _key(host: Host, subject: Subject, run: Started) -> Key | None:
    base = subject.base
    digest, driver, variables = of_host(host).digest, bases.driver(host), path.environment_digest(base.environment)
    return baseline.key(digest, driver, subject.image, base.backend.value, subject.gpus, variables, run.facts)


def _keep(target: Target, key: Key | None, series: tuple[Series, ...], findings: Sequence[Finding], children: Children) -> None:
    """Keep the figures on the host. Raises NearsocketError where they are not worth keeping or could not be written."""
    bad = next((f for f in findings if f.status in (Status.FAIL, Status.UNKNOWN) and f.id != "probe.baseline"), None)
    if bad is not None or key is None or not series:
        why = f"{bad.id} {bad.status.value}: {bad.summary}" if bad else "no figures"
        raise NearsocketError(f"{target.name}: --keep-baseline: expected a clean run, found {why}", "nothing was kept")
    ask.keep_baseline(target, Baseline(key, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), series), children)

"""What the page shows, in the order and length in which it shows it; the template only sets it down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nearsocket.model.exitcode import worst_status
from nearsocket.model.finding import Evidence, Finding, Status
from nearsocket.model.measured import Measured
from nearsocket.model.report import HostReport, Report
from nearsocket.report import parts, placement, verdict
from nearsocket.report.html import chart
from nearsocket.report.html.figure import NARROW, WIDE, Figure, draw
from nearsocket.report.terminal import worst_first
from nearsocket.report.text import PROBLEMS, SEVERITY, bounded, by_severity, counts, remedy_text, size

#: The mark of each status, a character that every font has; in the matrix a pass is a point and what is not applicable is nothing.
MARKS = {Status.FAIL: "×", Status.UNKNOWN: "?", Status.WARN: "!", Status.PASS: "✓", Status.NOT_APPLICABLE: "–"}
CELLS = {**MARKS, Status.PASS: "·", Status.NOT_APPLICABLE: ""}


@dataclass(frozen=True)
class Budget:
    """How much evidence is shown: pieces of a finding and characters of a piece, for problems and for the rest."""

    pieces: int
    characters: int
    rest_pieces: int
    rest_characters: int
    extras: bool = False  # what must be true at each finding, the links between GPUs, a drawing for narrow screens
    rest: bool = True  # whether what is no problem is listed at all


#: From generous to spare: a page takes the first with which it is small enough.
WHOLE = Budget(40, 4000, 12, 1500, extras=True)
BUDGETS = (WHOLE, Budget(6, 400, 0, 0), Budget(2, 160, 0, 0), Budget(1, 80, 0, 0, rest=False))


@dataclass(frozen=True)
class Shown:
    """A finding as the page has it. `counted` is false for a waived one; `left_out` pieces of evidence are not shown."""

    key: str
    finding: Finding
    about: str
    pieces: tuple[Evidence, ...]
    left_out: int
    remedy: str | None

    @property
    def status(self) -> Status:
        """The verdict."""
        return self.finding.status


@dataclass(frozen=True)
class HostView:
    """A host as the page has it."""

    key: str
    report: HostReport
    about: str
    figures: tuple[tuple[str, Figure], ...]  # for which screens, and the drawing
    notes: tuple[str, ...]
    links: tuple[tuple[str, ...], ...]
    problems: tuple[Shown, ...]
    waived: tuple[Shown, ...]
    rest: tuple[Shown, ...]
    unlisted: bool  # whether there is more that is no problem than the page lists
    counts: Mapping[Status, int]
    cells: tuple[tuple[str, Status, bool] | None, ...]
    twin: bool  # whether another report on the page is about a host of that name

    @property
    def taken(self) -> str:
        """When it was read, for people."""
        at = self.report.taken_at
        return at.replace("T", " ").removesuffix("Z") + " UTC" if at.endswith("Z") else at


@dataclass(frozen=True)
class Lie:
    """Where the ring buffers of all hosts lie, in bytes and in words; parts of a thousand for the bar."""

    near: str
    far: str
    unknown: str
    far_bytes: int
    near_part: float
    far_part: float


@dataclass(frozen=True)
class ProbeView:
    """What one probe measured: drawings, and rows of engine, length, prompts and tokens a second."""

    key: str
    measured: Measured
    figures: tuple[tuple[str, Figure], ...]
    rows: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True)
class Page:
    """The whole page."""

    title: tuple[str, str]  # about whom, and the verdict
    exit_code: int
    status: Status
    meaning: str
    step: str
    hosts: tuple[HostView, ...]
    checks: tuple[tuple[str, str, bool], ...]  # id, what must be true, whether any host has a problem with it
    counts: Mapping[Status, int]
    waived: int
    lie: Lie | None
    shortened: bool
    probes: tuple[ProbeView, ...]


def page(report: Report, about: Mapping[str, str], budget: Budget, probes: Sequence[Measured] = ()) -> Page:
    """The page of this report, that long; `about`: a check's id to what must be true; `probes`: what was measured."""
    ordered = worst_first(report.hosts)
    ids = sorted({finding.id for host in ordered for finding in host.findings})
    names = Counter(host.name for host in ordered)
    hosts = tuple(_host(f"h{at}", host, ids, about, budget, names[host.name] > 1) for at, host in enumerate(ordered, 1))
    meaning, step = verdict.words(report)
    every = [finding for host in ordered for finding in host.findings]
    troubled = {finding.id for finding in every if finding.status in PROBLEMS and finding.waived is None}
    return Page(
        title=headline(ordered),
        exit_code=report.exit_code,
        status=report.status,
        meaning=meaning,
        step=step,
        hosts=hosts,
        checks=tuple((id, about.get(id, ""), id in troubled) for id in ids),
        counts=counts(every),
        waived=sum(finding.waived is not None for finding in every),
        lie=_lie(ordered),
        shortened=budget is not WHOLE,
        probes=tuple(_probe(f"m{at}", probe) for at, probe in enumerate(probes, 1)),
    )


def headline(hosts: Sequence[HostReport]) -> tuple[str, str]:
    """About whom, and the verdict, in a few words."""
    counted = [host for host in hosts if host.maintenance is None]
    if not counted:
        return (hosts[0].name if len(hosts) == 1 else f"{len(hosts)} hosts", "in maintenance" if hosts else "audited")
    worst = worst_status(host.status for host in counted)
    number = sum(host.status is worst for host in counted)
    one = number == 1
    verdicts = {
        Status.FAIL: "fails" if one else "fail",
        Status.UNKNOWN: "could not be judged in full",
        Status.WARN: "has warnings" if one else "have warnings",
        Status.PASS: "is clean" if one else "are clean",
        Status.NOT_APPLICABLE: "has nothing to judge" if one else "have nothing to judge",
    }
    if len(counted) == 1:
        return counted[0].name, verdicts[worst]
    said = f"All {number} hosts" if number == len(counted) else f"{number} of {len(counted)} hosts"
    return said, verdicts[worst]


def _probe(key: str, probe: Measured) -> ProbeView:
    drawn = {"all-reduce": chart.curves(probe.curves), "lottery": chart.lottery(probe.draws)}
    read: dict[tuple[int, int], list[float]] = {}
    for prompt in probe.prompts:
        read.setdefault((prompt.engine, prompt.length), []).append(prompt.tokens_s)
    rows = (
        (
            chr(ord("A") + engine) if engine < 26 else str(engine),
            f"{length:,}",
            str(len(rates)),
            f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
        )
        for (engine, length), rates in sorted(read.items())
    )
    return ProbeView(key, probe, tuple((name, figure) for name, figure in drawn.items() if figure), tuple(rows))


def _host(key: str, host: HostReport, ids: Sequence[str], about: Mapping[str, str], budget: Budget, twin: bool) -> HostView:
    ordered = by_severity(host.findings)
    keyed = [(f"{key}-{at}", finding) for at, finding in enumerate(ordered, 1)]

    def shown(want: Iterable[tuple[str, Finding]], pieces: int, characters: int) -> tuple[Shown, ...]:
        return tuple(_shown(k, f, about.get(f.id, "") if budget.extras else "", pieces, characters) for k, f in want)

    problem = [(k, f) for k, f in keyed if f.status in PROBLEMS and f.waived is None]
    rest = [(k, f) for k, f in keyed if f.status not in PROBLEMS and f.waived is None]
    return HostView(
        key=key,
        report=host,
        about=", ".join(parts.about(host.host)) if host.host else host.reason or "not read",
        figures=_figures(host, budget),
        notes=host.host.notes[:30] if host.host else (),
        links=_links(host) if budget.extras else (),
        problems=shown(problem, budget.pieces, budget.characters),
        waived=shown(((k, f) for k, f in keyed if f.waived is not None), budget.pieces, budget.characters),
        unlisted=bool(rest) and not budget.rest,
        rest=shown(rest if budget.rest else (), budget.rest_pieces, budget.rest_characters),
        counts=counts(host.findings),
        cells=tuple(_cell(id, keyed) for id in ids),
        twin=twin,
    )


def _figures(host: HostReport, budget: Budget) -> tuple[tuple[str, Figure], ...]:
    """The drawing for wide screens, and where there is room in the file a second one for narrow screens."""
    shapes = {"wide": WIDE, "narrow": NARROW} if budget.extras else {"any": WIDE}
    drawn = {name: draw(host.host, shape) for name, shape in shapes.items()} if host.host else {}
    return tuple((name, figure) for name, figure in drawn.items() if figure)


def _shown(key: str, finding: Finding, about: str, most: int, characters: int) -> Shown:
    kept = tuple(Evidence(piece.source, bounded(piece.text, characters)) for piece in finding.evidence[:most])
    remedy = remedy_text(finding.remedy) if finding.remedy else None
    return Shown(key, finding, about, kept, len(finding.evidence) - len(kept), remedy)


def _cell(id: str, keyed: Sequence[tuple[str, Finding]]) -> tuple[str, Status, bool] | None:
    """The worst finding of that check, counted ones before waived: its key, its status, whether it is waived; None without one."""
    mine = [(key, finding) for key, finding in keyed if finding.id == id]
    if not mine:
        return None
    key, worst = min(mine, key=lambda one: (one[1].waived is not None, SEVERITY.index(one[1].status)))
    return key, worst.status, worst.waived is not None


def _links(host: HostReport) -> tuple[tuple[str, ...], ...]:
    """`nvidia-smi topo -m`'s words between the GPUs, as rows of a table with its head; nothing where NVML told none."""
    gpus = host.host.gpus if host.host else ()
    if len(gpus) < 2 or not any(gpu.links for gpu in gpus):
        return ()
    names = [f"GPU {gpu.index}" if gpu.index is not None else gpu.pci for gpu in gpus]
    rows = [(name, *(gpu.links.get(other.pci, "") for other in gpus)) for name, gpu in zip(names, gpus, strict=True)]
    return (("", *names), *rows)


def _lie(hosts: Sequence[HostReport]) -> Lie | None:
    held: dict[bool | None, int] = {True: 0, False: 0, None: 0}
    for host in hosts:
        for share in placement.shares(host.host, placement.rings(host.host.buffers)) if host.host else ():
            held[share.near] += share.size_bytes
    whole = sum(held.values())
    if not whole:
        return None
    words = {key: size(count) if count else "" for key, count in held.items()}
    return Lie(words[True], words[False], words[None], held[False], 1000 * held[True] / whole, 1000 * held[False] / whole)

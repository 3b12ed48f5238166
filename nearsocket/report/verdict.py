"""The last lines of a page: the verdict, the exit code in words, what does not count in it, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from nearsocket.model.errors import EXIT_CLEAN, EXIT_FAILURES, EXIT_UNKNOWN, EXIT_WARNINGS
from nearsocket.model.finding import CORE_IDS, Status
from nearsocket.model.report import HostReport, Report
from nearsocket.report.text import QUIET, STYLES, Pen, word, wrap


def closing(report: Report, pen: Pen) -> Iterator[Text]:
    """Two or three lines, wrapped where the page is narrow."""
    code = report.exit_code
    meaning, step = words(report)
    hosts = f" on {len(report.hosts)} hosts" if len(report.hosts) > 1 else ""
    said = Text.assemble((word(report.status), STYLES[report.status]), hosts, (f"  exit code {code}: {meaning}", QUIET))
    yield from wrap(said, pen.width)
    resting = sum(host.maintenance is not None for host in report.hosts)
    waived = sum(found.waived is not None for host in report.hosts for found in host.findings)
    uncounted = [
        *([f"{resting} host{'s' if resting > 1 else ''} in maintenance"] if resting else []),
        *([f"{waived} waived finding{'s' if waived > 1 else ''}"] if waived else []),
    ]
    if uncounted:
        yield from wrap(Text.assemble(("not counted: ", "bold"), " and ".join(uncounted), style="yellow"), pen.width)
    if code == EXIT_CLEAN and uncounted:
        step = "see to what is not counted before its date has passed, then audit again"
    yield from wrap(Text.assemble(("next: ", "bold"), step), pen.width)


def _judged(host: HostReport) -> bool:
    """Whether there was anything to place: a GPU, an nccl- file, or the user's word that there are GPUs."""
    return host.host is None or bool(host.host.gpus or host.host.buffers or host.host.near)


def words(report: Report) -> tuple[str, str]:
    """What this exit code means for this report, and the next step (DESIGN, exit codes; `--strict` counts more)."""
    code, status = report.exit_code, report.status
    paste = "paste the remedies, worst first, then audit again"
    learn = "the remedies say how to find out what is unknown; then audit again"
    if code == EXIT_CLEAN and not any(_judged(host) for host in report.hosts):
        step = "no GPU seen, so no placement was judged; GPUs of another machine or hidden from here? say --near NODES"
        return "all pass or not applicable", step
    if code == EXIT_CLEAN:
        return "all pass or not applicable", "audit again after each restart, deploy and driver upgrade"
    if code == EXIT_WARNINGS and status is Status.UNKNOWN:
        return "warnings, and unknowns that count as such", learn
    if code == EXIT_WARNINGS:
        return "warnings", "paste the remedies before the next restart, then audit again"
    if code == EXIT_FAILURES and status is Status.FAIL:
        return "failures", paste
    if code == EXIT_FAILURES:
        return "warnings, failures under --strict", paste
    if code == EXIT_UNKNOWN:
        counted = (found for host in report.hosts for found in host.findings if found.waived is None)
        core = any(found.status is Status.UNKNOWN and found.id in CORE_IDS for found in counted)
        return "a core finding is unknown" if core else "a finding is unknown, which counts under --strict", learn
    return "not a judgement", paste

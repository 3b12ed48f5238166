"""Findings on a terminal: problems worst first with evidence and a remedy to paste, the rest in one line of counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from nearsocket.model.finding import CORE_IDS, Evidence, Finding, Status
from nearsocket.report.text import PROBLEMS, QUIET, STYLES, Pen, by_severity, fit, pad, remedy_text, shown_lines, tally, word, wrap

_INDENT = "    "
#: Pieces of evidence shown unless everything is asked for; a person looks at the first and pastes the remedy.
_SHORT = {Status.FAIL: 3, Status.UNKNOWN: 3, Status.WARN: 2}
#: Cells for the subject's column where passes are listed; a longer one pushes its summary to the right.
_SUBJECT = 28


def problems(findings: Iterable[Finding], pen: Pen, verbose: bool = False) -> Iterator[Text]:
    """Every counted fail, unknown and warn, with evidence (cut to a line each unless `verbose`) and remedy."""
    for finding in by_severity(findings):
        if finding.status in PROBLEMS and finding.waived is None:
            yield from _problem(finding, pen, verbose)
            yield Text()


def waived(findings: Iterable[Finding], pen: Pen) -> Iterator[Text]:
    """Every waived finding: what it says, and who set it aside, why and until when."""
    for finding in by_severity(findings):
        if finding.waived is not None:
            mark = Text(pen.glyphs.waived, QUIET)
            yield _head(finding, pen, mark, Text(f"waived {word(finding.status)}", QUIET))
            yield from _paragraph(pen.outside(finding.summary, QUIET), pen)
            until, owner, reason = map(pen.outside, (finding.waived.expires, finding.waived.owner, finding.waived.reason))
            why = Text.assemble("until ", until, " by ", owner, ": ", reason)
            yield from _paragraph(why, pen)
            yield Text()


def rest(findings: Iterable[Finding], pen: Pen, verbose: bool = False) -> Iterator[Text]:
    """Passes and not-applicables: one line of counts, or a line each where `verbose`."""
    quiet = [f for f in by_severity(findings) if f.status not in PROBLEMS and f.waived is None]
    if not quiet:
        return
    if not verbose:
        marks = Text.assemble(pen.mark(Status.PASS) if any(f.status is Status.PASS for f in quiet) else pen.mark(quiet[0].status))
        counted = Text(", ", QUIET).join(tally(quiet))
        yield from wrap(Text.assemble(marks, " ", counted, ("  (-v lists them)", QUIET)), pen.width)
        return
    column = max(len(finding.id) for finding in quiet)
    subjects = min(max(pen.outside(finding.subject).cell_len for finding in quiet), _SUBJECT)
    for finding in quiet:
        line = Text.assemble(
            pen.mark(finding.status), " ", pad(pen.outside(finding.id), column), "  ", pen.outside(finding.subject)
        )
        line.append(" " * max(column + 4 + subjects - line.cell_len, 0))
        summary = pen.outside(finding.summary, QUIET)
        if line.cell_len + 2 + summary.cell_len <= pen.width:
            yield line.append("  ").append_text(summary)
        else:
            line.rstrip()
            yield fit(line, pen.width)
            yield from _paragraph(summary, pen)


def _problem(finding: Finding, pen: Pen, verbose: bool) -> Iterator[Text]:
    yield _head(finding, pen, pen.mark(finding.status), Text(word(finding.status), STYLES[finding.status]))
    yield from _paragraph(pen.outside(finding.summary), pen)
    known = finding.evidence if verbose else _telling(finding)
    shown = known if verbose else known[: _SHORT[finding.status]]
    for evidence in shown:
        yield from _evidence(evidence, pen, verbose)
    if len(known) > len(shown):
        more = len(known) - len(shown)
        yield Text(f"{_INDENT}{more} more {'piece' if more == 1 else 'pieces'} of evidence with -v", QUIET)
    if finding.remedy:
        yield Text(f"{_INDENT}remedy:", QUIET)
        yield from remedy(finding.remedy, pen)


def _telling(finding: Finding) -> tuple[Evidence, ...]:
    """The evidence that says more than the summary: none for an unknown of no core id, which is about what was not read."""
    if finding.status is Status.UNKNOWN and finding.id not in CORE_IDS:
        return ()
    return tuple(piece for piece in finding.evidence if not piece.text.strip() or piece.text.strip() not in finding.summary)


def remedy(text: str, pen: Pen) -> Iterator[Text]:
    """The remedy's own lines, never wrapped, so that they can be copied; a here-document starts at the margin, as it must."""
    margin = "" if "<<" in text else _INDENT
    for line in remedy_text(text).split("\n"):
        yield Text(margin).append_text(pen.outside(line, "" if line.lstrip().startswith("#") else "cyan"))


def _head(finding: Finding, pen: Pen, mark: Text, verdict: Text) -> Text:
    line = Text.assemble(mark, " ", verdict, "  " if verdict.plain else "", pen.outside(finding.id, "bold"))
    if finding.subject:
        line.append("  ").append_text(pen.outside(finding.subject))
    return line if line.cell_len <= pen.width else fit(line, pen.width)


def _evidence(evidence: Evidence, pen: Pen, verbose: bool) -> Iterator[Text]:
    source = pen.outside(evidence.source)
    lines = [line for line in shown_lines(evidence.text) if line.strip()]
    if not verbose:
        text = Text.assemble(_INDENT, source, ": " if lines else "", pen.outside(lines[0].strip() if lines else ""))
        more = f"  (+{len(lines) - 1} line{'s' if len(lines) > 2 else ''})" if len(lines) > 1 else ""
        text = fit(text, pen.width - len(more)).append(more)
        text.stylize(QUIET)
        yield text
        return
    yield Text.assemble(_INDENT, source, ":", style=QUIET)
    for line in lines:
        yield Text(f"{_INDENT}  ").append_text(pen.outside(line, QUIET))


def _paragraph(text: Text, pen: Pen) -> Iterator[Text]:
    for line in wrap(text, max(pen.width - len(_INDENT), 16)):
        yield Text(_INDENT).append_text(line)

"""What every terminal renderer shares: glyphs, colours, and text that fits, with an ASCII form where the stream is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from nearsocket.model import exitcode
from nearsocket.model.finding import CORE_IDS, Finding, Status
from nearsocket.model.text import one_line, visible

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
#: No line of a page is longer; what a server says may be.
LONGEST_LINE = 8192

#: Worst first: the order of findings and hosts on the page.
SEVERITY = tuple(reversed(exitcode.SEVERITY))
PROBLEMS = SEVERITY[:3]
STYLES = {
    Status.FAIL: "bold red",
    Status.UNKNOWN: "bold magenta",
    Status.WARN: "bold yellow",
    Status.PASS: "green",
    Status.NOT_APPLICABLE: "dim",
}
FRAME, QUIET, NEAR, FAR = "dim", "dim", "green", "bold red"


@dataclass(frozen=True)
class Glyphs:
    """The characters that draw: one set for UTF-8, one for everything else; each is one cell wide."""

    corners: str  # top left, top right, bottom left, bottom right
    horizontal: str
    vertical: str
    tee_left: str
    tee_right: str
    crossing: str
    thread: str
    arrow_left: str
    arrow_right: str
    used: str
    cache: str
    free: str
    marks: str  # in the order of SEVERITY
    waived: str


UNICODE = Glyphs("╭╮╰╯", "─", "│", "├", "┤", "┿", "━", "◀", "▶", "█", "▒", "░", "✗?!✓-", "~")
ASCII = Glyphs("++++", "-", "|", "+", "+", "+", "=", "<", ">", "#", "=", ".", "x?!+-", "~")


@dataclass(frozen=True)
class Pen:
    """How to write on one console: its glyphs, encoding and width in cells."""

    glyphs: Glyphs
    encoding: str
    width: int

    @classmethod
    def of(cls, console: Console) -> Pen:
        """The pen for that console."""
        return cls(ASCII if console.options.ascii_only else UNICODE, console.encoding, max(console.width, 20))

    def outside(self, text: str, style: str = "") -> Text:
        """Text from outside on one line: control characters and what the encoding lacks are escaped, markup stays text."""
        safe = one_line(text, LONGEST_LINE)
        try:
            safe.encode(self.encoding)
        except (UnicodeError, LookupError):
            safe = safe.encode("ascii", "backslashreplace").decode("ascii")
        return Text(safe, style)

    def mark(self, status: Status) -> Text:
        """The one-cell mark of that status."""
        return Text(self.glyphs.marks[SEVERITY.index(status)], STYLES[status])


def bounded(text: str, limit: int) -> str:
    """Outside text of several lines made visible, its end cut off where it has more than `limit` characters, which it then says."""
    if len(text) <= limit:
        return visible(text)
    return f"{visible(text[:limit])}\n... cut here, {len(text)} characters in all"


def shown_lines(text: str) -> list[str]:
    """Outside text made visible, as lines; of a line that is too long only a little more than a page takes."""
    return [visible(line[: LONGEST_LINE + 1]) for line in text.replace("\r\n", "\n").split("\n")]


def remedy_text(text: str) -> str:
    """The remedy as pages show it. One that is too long to be looked through is not shown at all: half a command does harm."""
    text = text.strip("\n")
    if len(text) > LONGEST_LINE:
        return f"# the remedy has {len(text)} characters and is not shown; --json has it"
    return visible(text)


def fit(text: Text, width: int) -> Text:
    """The text in at most `width` cells; what is cut off ends in two dots."""
    if text.cell_len <= width:
        return text
    cut = text.copy()
    cut.truncate(max(width - 2, 0), overflow="crop")
    return cut.append(".." if width >= 2 else "." * width)


def pad(text: Text, width: int) -> Text:
    """The text in exactly `width` cells."""
    cut = fit(text, width).copy()
    return cut.append(" " * (width - cut.cell_len))


def size(count: int) -> str:
    """Bytes for people: three figures and a binary unit, such as `18.4 MiB`."""
    for unit, word in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            value = count / unit
            return f"{value:.0f} {word}" if value >= 100 else f"{value:.1f} {word}".replace(".0 ", " ")
    return f"{count} B"


def word(status: Status) -> str:
    """The status as the page writes it: problems in capitals."""
    return status.value.upper() if status in PROBLEMS else status.value


def counts(findings: Iterable[Finding]) -> dict[Status, int]:
    """How many findings of each status count, worst first; waived ones do not."""
    known = [finding.status for finding in findings if finding.waived is None]
    return {status: known.count(status) for status in SEVERITY}


def tally(findings: Iterable[Finding], among: Iterable[Status] = SEVERITY) -> list[Text]:
    """The counts as coloured words, such as `2 fail`, zeros left out."""
    found = counts(findings)
    return [Text(f"{found[s]} {s.value.replace('-', ' ')}", STYLES[s].replace("bold ", "")) for s in among if found[s]]


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first: fail, unknown (core ids before others), warn, pass, not applicable; else in the order of the checks."""
    return sorted(findings, key=lambda finding: (SEVERITY.index(finding.status), finding.id not in CORE_IDS))


def wrap(text: Text, width: int) -> list[Text]:
    """The text in lines of at most `width` cells, broken at spaces, a longer word inside itself."""
    lines: list[Text] = []
    rest = text
    while rest.cell_len > width:
        plain, at, cells = rest.plain, 0, 0
        for index, character in enumerate(plain):
            cells += cell_len(character)
            if cells > width:
                break
            at = index + 1
        space = plain.rfind(" ", 1, at + 1)
        cut = space if space > 0 else max(at, 1)
        head, rest = rest.divide([cut])
        head.rstrip()
        lines.append(head)
        if space > 0:
            rest = rest[1:]
    return [*lines, rest]

"""`nearsocket explain`: judge pasted texts, no host needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from nearsocket.commands import options
from nearsocket.model import exitcode
from nearsocket.model.errors import UsageError
from nearsocket.model.explain import Explained, Kind
from nearsocket.model.explain import explain as judge
from nearsocket.model.parsers.text import decode, is_binary
from nearsocket.report import findings as pages
from nearsocket.report.json import finding as finding_json
from nearsocket.report.json import printable
from nearsocket.report.terminal import console
from nearsocket.report.text import STYLES, Pen, by_severity, word, wrap

#: A day of NCCL's log is far below this; more is a wrong file.
MOST_BYTES = 64 << 20
STANDARD_INPUT = "-"


@click.command("explain")
@click.option("--json", "as_json", is_flag=True, help="One JSON list, an object for each file (docs/explain.md).")
@options.near
@click.option("--strict", is_flag=True, help="Every unknown is 3, every warning 2.")
@click.option("-v", "--verbose", is_flag=True, help="All evidence, passes too.")
@click.argument("files", metavar="FILE ...", nargs=-1, required=True)
def explain(files: tuple[str, ...], near: frozenset[int] | None, as_json: bool, strict: bool, verbose: bool) -> int:
    """Judge pasted text: a /proc/PID/numa_maps, an NCCL log, `nvidia-smi topo -m` or `numactl -H`; `-` is standard input.

    What a file is shows in its content. Without --near placement is unknown: none of these texts says where the GPUs are.

    Exit codes: 0 all pass or not applicable, 1 warnings, 2 failures, 3 a core finding is unknown or a text could not be
    read, 64 wrong usage. The worst file decides, in the order 2, 3, 1, 0.
    """
    if files.count(STANDARD_INPUT) > 1:
        raise UsageError("expected standard input (-) once, found it twice")
    texts = [(name, _read(name)) for name in files]
    judged = [judge(_shown(name), text, near) for name, text in texts]
    if as_json:
        _write_json(judged)
    else:
        _write_pages(judged, verbose)
    return exitcode.worst_of(result.code(strict) for result in judged)


def _shown(name: str) -> str:
    """The name as JSON can hold it: bytes that are no text become the replacement character."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read(name: str) -> str:
    """The text of that file, whatever encoding it was pasted in.

    Raises UsageError, one line, for what cannot be judged at all: missing, a folder, no permission, binary, too large.
    """
    if name == STANDARD_INPUT and sys.stdin is None:
        raise UsageError("expected standard input for -, found it closed", "name a file with the pasted text")
    try:
        if name == STANDARD_INPUT:
            raw = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as stream:
                raw = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UsageError(f"expected a text file, found {_shown(name)!r}: {reason}", _hint(error)) from None
    if len(raw) > MOST_BYTES:
        hint = "keep the lines that matter: grep -E 'nccl-|NCCL' FILE > PART"
        raise UsageError(f"expected at most {MOST_BYTES >> 20} MiB of text, found more in {_shown(name)!r}", hint)
    if is_binary(raw):
        raise UsageError(
            f"expected a text file, found {_shown(name)!r}: it is binary (NUL bytes)", "name the file with the pasted text"
        )
    return decode(raw)


def _hint(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "numa_maps of another user's process needs root: sudo cat /proc/PID/numa_maps > FILE"
    if isinstance(error, ProcessLookupError):
        return "the process is gone; find the engine's processes with nvidia-smi"
    return "name a file with the pasted text, or - for standard input"


def _write_json(judged: list[Explained]) -> None:
    """One JSON list on standard output: printable ASCII and line feeds alone."""
    whole = [_entry(result) for result in judged]
    click.echo(printable(whole, 2))


def _entry(result: Explained) -> dict[str, Any]:
    return {
        "file": result.file,
        "kind": result.kind.value,
        "status": result.status.value,
        "reason": result.reason,
        "facts": dict(result.facts),
        "findings": [finding_json(found) for found in result.findings],
    }


def _write_pages(judged: list[Explained], verbose: bool) -> None:
    """A block for each file, worst first: its kind and status, then its findings."""
    to = console(sys.stdout)
    pen = Pen.of(to)
    order = sorted(judged, key=lambda result: -exitcode.SEVERITY.index(result.status))
    for number, result in enumerate(order):
        if number:
            to.print()
        head = Text.assemble(pen.mark(result.status), " ", (word(result.status), STYLES[result.status]), "  ")
        head.append_text(pen.outside(result.file, "bold")).append(f"  {result.kind.value}")
        to.print(head)
        if result.kind is Kind.UNRECOGNISED and result.reason:
            for line in wrap(pen.outside(result.reason), pen.width - 4):
                to.print(Text("    ").append_text(line))
        for line in pages.problems(result.findings, pen, verbose):
            to.print(line)
        for found in by_severity(result.findings):
            if found.status.value in ("pass", "not-applicable"):
                line = Text.assemble(pen.mark(found.status), " ", pen.outside(found.id, "bold"), "  ", pen.outside(found.summary))
                to.print(line)
                if verbose:
                    for piece in found.evidence:
                        to.print(Text("    ").append_text(pen.outside(f"{piece.source}: {piece.text}", "dim")))

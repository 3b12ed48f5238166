"""The forms that a report can have: one renderer a file, loaded when it is asked for."""

from __future__ import annotations

import enum
import importlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field

from nearsocket.model.measured import Measured
from nearsocket.model.report import Report

#: Cells of the terminal's page where it goes into a file.
_PAGE_WIDTH = 100


class Format(enum.StrEnum):
    """The forms; the value is the word on the command line."""

    TERMINAL = "terminal"
    HTML = "html"
    JSON = "json"
    JSONL = "jsonl"
    JUNIT = "junit"
    PROMETHEUS = "prometheus"
    MARKDOWN = "markdown"


#: What a file's name says about the form that is wanted, where nothing else does.
SUFFIXES = {
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".json": Format.JSON,
    ".jsonl": Format.JSONL,
    ".xml": Format.JUNIT,
    ".prom": Format.PROMETHEUS,
    ".md": Format.MARKDOWN,
}


@dataclass(frozen=True)
class Wish:
    """What a renderer may want to know beside the report.

    `about`: a check's id to what must be true, one line. `strict`: how findings were counted. `probes`: what was measured, for the
    HTML page. `quiet` and `verbose` are for the terminal's page.
    """

    about: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    probes: tuple[Measured, ...] = ()
    quiet: bool = False
    verbose: bool = False


def render(report: Report, form: Format, wish: Wish) -> str:
    """The report in that form, ending in a line feed where it holds anything; UTF-8 can encode it."""
    text = _rendered(report, form, wish)
    return text if not text or text.endswith("\n") else text + "\n"


def _rendered(report: Report, form: Format, wish: Wish) -> str:
    module = importlib.import_module(f"nearsocket.report.{form.value}")
    match form:
        case Format.TERMINAL:
            return _page(report, wish)
        case Format.HTML:
            made = module.render(report, wish.about, wish.probes)
        case Format.JUNIT:
            made = module.render(report, wish.strict)
        case _:
            made = module.render(report)
    return str(made)


def _page(report: Report, wish: Wish) -> str:
    """The page as a stream that is no terminal gets it."""
    from nearsocket.report import terminal

    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    terminal.show(report, terminal.console(stream, _PAGE_WIDTH), quiet=wish.quiet, verbose=wish.verbose)
    stream.flush()
    return raw.getvalue().decode()

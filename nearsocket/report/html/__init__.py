"""The report as one HTML file that needs nothing else: no network, no other file, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nearsocket import __version__
from nearsocket.model.measured import Measured
from nearsocket.model.report import Report
from nearsocket.model.text import visible
from nearsocket.report.html.view import BUDGETS, CELLS, MARKS, Page, page
from nearsocket.report.text import SEVERITY

_FOLDER = Path(__file__).parent
#: A page that is larger takes long to open and is stopped by mail servers; evidence is shortened until it is not.
LARGEST_BYTES = 5_000_000
#: No name or summary is longer on the page.
_LONGEST = 1000


def render(report: Report, about: Mapping[str, str], probes: Sequence[Measured] = ()) -> str:
    """The page; `about` is a check's id to what must be true, `probes` what was measured on these hosts or on others.

    At most LARGEST_BYTES, if shortening evidence gets it there.
    """
    for budget in BUDGETS:
        made = _rendered(page(report, about, budget, probes))
        if len(made.encode()) <= LARGEST_BYTES:
            break
    return made


def _rendered(shown: Page) -> str:
    style, script = _asset("style.css"), _asset("script.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    made: str = _template().render(
        page=shown,
        statuses=SEVERITY,
        marks=MARKS,
        cells=CELLS,
        version=__version__,
        style=Markup(style),  # noqa: S704 - a file of this folder
        script=Markup(script),  # noqa: S704 - a file of this folder
        policy=policy,
    )
    return made


def _asset(name: str) -> str:
    """A file of this folder that is set into the page."""
    return (_FOLDER / name).read_text(encoding="utf-8").strip()


def _source(text: str) -> str:
    """The text's hash as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _template() -> Any:
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_outside,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["whole"] = _whole
    return made.get_template("page.html.j2")


def _outside(value: Any) -> Any:
    """Every text that the template sets down, made visible before it is escaped; only this project's own markup is not."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value if len(value) <= _LONGEST else f"{value[:_LONGEST]} ...")
    return value


def _whole(value: str) -> Markup:
    """Evidence and remedies, whose length has been seen to, visible and escaped."""
    return Markup.escape(visible(value))

"""Builds the documentation as a static site: `python -m nearsocket.commands.site FOLDER`. A link that leads nowhere is an error.

Nothing but markdown-it-py, which rich brings anyway, and jinja2: a site generator would be a dozen more packages to lock and to
keep, for a search box and themes that these forty pages do not need.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from nearsocket.control import whole
from nearsocket.model.errors import NearsocketError
from nearsocket.paths import source_folder

#: What is copied as it is, so that pages can link to it.
_COPIED = (".json",)
#: The parts of the navigation: title and folder below docs.
_PARTS = (("Guides", ""), ("Commands", "commands"), ("Checks", "checks"))


@dataclass(frozen=True)
class Page:
    """One page: where it stands in the checkout and in the site, its title, its Markdown as tokens."""

    source: PurePosixPath
    target: PurePosixPath
    title: str
    tokens: tuple[Token, ...]

    @property
    def anchors(self) -> frozenset[str]:
        """The ids of its headings."""
        return frozenset(str(token.attrGet("id")) for token in self.tokens if token.type == "heading_open")


def build(root: Path, folder: Path) -> list[str]:
    """Write the site of the checkout `root` into `folder`, and return what is wrong with its links, a line each."""
    pages = {page.source: page for page in _pages(root)}
    faults: list[str] = []
    template = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("site.html.j2")
    for page in pages.values():
        faults += _relink(root, page, pages)
        body = Markup(_parser().renderer.render(list(page.tokens), _parser().options, {}))  # noqa: S704 - HTML in the text is escaped
        up = "../" * (len(page.target.parts) - 1)
        path = folder / page.target
        path.parent.mkdir(parents=True, exist_ok=True)
        whole.write(path, template.render(page=page, body=body, up=up, parts=_navigation(pages)), 0o644)
    for source in sorted(path for path in (root / "docs").rglob("*") if path.suffix in _COPIED):
        target = folder / source.relative_to(root / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return faults


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _pages(root: Path) -> Iterator[Page]:
    for path in [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]:
        source = PurePosixPath(path.relative_to(root).as_posix())
        below = source.relative_to("docs") if source.parts[0] == "docs" else source
        target = below.with_name("index.html" if below.name == "README.md" else below.stem.lower() + ".html")
        text = re.sub(r"^<!--.*?-->\n", "", path.read_text(encoding="utf-8"))
        tokens = _parser().parse(text)
        titles = [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]
        used: set[str] = set()
        for at, token in enumerate(tokens):
            if token.type == "heading_open":
                token.attrSet("id", _anchor(tokens[at + 1].content, used))
        yield Page(source, target, titles[0] if titles else source.stem, tuple(tokens))


def _anchor(title: str, used: set[str]) -> str:
    """The id that GitHub gives a heading, so that links hold in both places."""
    plain = re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
    name, number = plain, 0
    while name in used:
        number += 1
        name = f"{plain}-{number}"
    used.add(name)
    return name


def _relink(root: Path, page: Page, pages: dict[PurePosixPath, Page]) -> Iterator[str]:
    """Point links to pages and copied files at their place in the site, take out those to other files; yields the faults."""
    for block in page.tokens:
        kept: list[Token] = []
        dropped = 0
        for token in block.children or []:
            if token.type == "link_open":
                link, fault = _link(root, page, str(token.attrGet("href")), pages)
                if fault:
                    yield f"{page.source}: {fault}"
                if link is None:
                    dropped += 1
                    continue
                token.attrSet("href", link)
            elif token.type == "link_close" and dropped:
                dropped -= 1
                continue
            kept.append(token)
        if block.children is not None:
            block.children = kept


def _link(root: Path, page: Page, href: str, pages: dict[PurePosixPath, Page]) -> tuple[str | None, str]:
    """The link in the site, None where it has no place there, and what is wrong with it."""
    parts = urlsplit(href)
    if parts.scheme or parts.netloc:
        return href, ""
    goal = PurePosixPath(os.path.normpath(page.source.parent / unquote(parts.path))) if parts.path else page.source
    anchor = f"#{parts.fragment}" if parts.fragment else ""
    if (root / goal).is_dir() and goal / "README.md" in pages:
        goal = goal / "README.md"
    if goal in pages:
        if parts.fragment and parts.fragment not in pages[goal].anchors:
            return None, f"{href}: no heading of that name"
        return os.path.relpath(pages[goal].target, page.target.parent) + anchor, ""
    if not (root / goal).exists() or goal.parts[0] == "..":
        return None, f"{href}: no such file"
    if goal.parts[0] == "docs" and goal.suffix in _COPIED:
        return os.path.relpath(goal.relative_to("docs"), page.target.parent), ""
    return None, ""


def _navigation(pages: dict[PurePosixPath, Page]) -> list[tuple[str, list[Page]]]:
    found = []
    for title, folder in _PARTS:
        here = [page for page in pages.values() if page.source.parent == PurePosixPath("docs") / folder]
        found.append((title, sorted(here, key=lambda page: (page.target.name != "index.html", page.title.lower()))))
    return found


def main(arguments: list[str]) -> int:
    """Build the site of the source checkout into the folder given; the exit code: 1 where a link leads nowhere."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m nearsocket.commands.site FOLDER\n")
        return 64
    try:
        faults = build(source_folder(), Path(arguments[0]))
    except NearsocketError as error:
        sys.stderr.write(f"nearsocket: {error.message}\n")
        return error.exit_code
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The documentation as a site: every page is there, every link leads somewhere, markup in a page stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nearsocket.commands import site

ROOT = Path(__file__).parent.parent.parent


class Links(HTMLParser):
    """The links and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        if tag == "a":
            self.links.append(named.get("href") or "")
        if named.get("id"):
            self.ids.add(str(named["id"]))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this checkout."""
    folder = tmp_path_factory.mktemp("site")
    assert site.build(ROOT, folder) == []
    return folder


def test_every_page_of_the_docs_is_in_the_site(built: Path) -> None:
    wanted = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    wanted = {re.sub(r"README\.html$", "index.html", name) for name in wanted} | {"index.html", "changelog.html"}
    assert {path.relative_to(built).as_posix() for path in built.rglob("*.html")} == wanted


def test_every_link_within_the_site_leads_to_a_page_and_a_heading(built: Path) -> None:
    pages = {path.resolve(): Links(path.read_text(encoding="utf-8")) for path in built.rglob("*.html")}
    for path, found in pages.items():
        for link in found.links:
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            goal = (path.parent / name).resolve() if name else path
            assert goal.is_file(), f"{path}: {link}"
            assert not anchor or anchor in pages[goal].ids, f"{path}: {link}"


def test_tables_code_and_headings_are_what_they_should_be(built: Path) -> None:
    page = (built / "commands" / "audit.html").read_text(encoding="utf-8")
    assert '<h1 id="nearsocket-audit">nearsocket audit</h1>' in page
    assert "<code>--output FILE</code>" in page
    assert "DIR/&lt;host&gt;.snapshot.json" in page


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[x](not-there.md)", "docs/a.md: not-there.md: no such file"),
        ("[x](b.md#not-there)", "docs/a.md: b.md#not-there: no heading of that name"),
        ("[x](../../../etc/passwd)", "docs/a.md: ../../../etc/passwd: no such file"),
    ],
)
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, text: str, fault: str) -> None:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    for name, body in (("README.md", "# R"), ("CHANGELOG.md", "# C"), ("docs/a.md", f"# A\n\n{text}"), ("docs/b.md", "# B")):
        (root / name).write_text(body)
    assert site.build(root, tmp_path / "out") == [fault]


def test_a_link_to_a_source_file_becomes_plain_text_and_markup_stays_text(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    (root / "code.py").write_text("")
    for name, body in (("README.md", "# R"), ("CHANGELOG.md", "# C"), ("docs/a.md", "# A\n\n[x](../code.py) <script>1</script>")):
        (root / name).write_text(body)
    assert site.build(root, tmp_path / "out") == []
    page = (tmp_path / "out" / "a.html").read_text()
    assert "<p>x &lt;script&gt;1&lt;/script&gt;</p>" in page

"""Whatever a server says about itself is harmless in every form: markup, escapes, right-to-left marks, lines without end."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from nearsocket.model.errors import EXIT_FAILURES
from nearsocket.model.finding import Evidence, Finding, Status, Waived
from nearsocket.model.host import NodeClaim
from nearsocket.model.report import Maintenance, Report
from nearsocket.report.formats import Format, Wish, render
from tests import build
from tests.report import scenarios
from tests.report.scenarios import EVIL, one

#: What each form's reader would obey.
MARKUP = [
    EVIL,
    "<script>alert(1)</script>",
    "</style></svg></title><img src=x onerror=alert(1)>",
    "\"><svg onload='alert(1)'>",
    "{{ 7*7 }}{% raw %}",
    "]]><!--<![CDATA[",
    "&lt;b&gt; &#x202e; \u202egpj.exe\u2066\u200f",
    "'; DROP TABLE hosts; --",
    "```\n# big\n```sh\nrm -rf /\n```",
    "[x](javascript:alert(1)) ![y](http://198.51.100.1/z) @all #1 :skull: http://198.51.100.1/ www.example.org",
    'a"} 1\nnearsocket_host_read{host="b"} 1',
    '\\n\\" \ufffe\uffff\ud800 \x00\x7f\x85\u2028',
    "| a | b |\n| --- | --- |\n1. x\n- y\n=====",
    "שלום עולם مرحبا",
]
TEXTS = st.one_of(
    st.text(max_size=60), st.sampled_from(MARKUP), st.text(st.sampled_from("<>&\"'`{}[]|*_#\\\n\r\x1b\u202e:/.-= ab1"))
)
VOID = {"meta", "link", "input", "img", "br", "hr"}


def everywhere(text: str) -> Report:
    """A report that has this text wherever a server or a user's check can put one."""
    gpus = (build.gpu(0, name=text, uuid=text, links={build.gpu(1).pci: text}), build.gpu(1, pci=text, driver=text))
    lost = build.gpu(2, node=None, socket=None, claims=(NodeClaim(text, None, text),))
    host = scenarios.placed(
        {0: build.RING_BYTES}, name=text, kernel=text, gpus=(*gpus, lost), notes=(text, text), arc_bytes=1 << 30
    )
    files = tuple(dataclasses.replace(b, file=text, policies=(text,)) for r in host.replicas for b in r.buffers)
    replicas = tuple(dataclasses.replace(r, name=text, container=text, buffers=files) for r in host.replicas)
    silent = dataclasses.replace(replicas[0], name=text + "2", buffers=())
    host = dataclasses.replace(host, replicas=(*replicas, silent))
    found = (
        Finding("a.b", Status.FAIL, text, text, (Evidence(text, text), Evidence(text, text)), text),
        Finding("a.c", Status.PASS, text, text, (Evidence(text, text), Evidence("here", "x"))),
        Finding("a.d", Status.WARN, text, text, (), text, Waived(text, text, text)),
        Finding("nccl.buffer-placement", Status.UNKNOWN, text, text),
        Finding("a.e", Status.NOT_APPLICABLE, text, text),
    )
    hosts = (one(host, *found, name=text), one(None, found[3], name=text + "3", reason=text, taken_at=text))
    return Report((*hosts, one(host, *found, name=text + "4", maintenance=Maintenance(text, text))), Status.FAIL, EXIT_FAILURES)


class Outline(HTMLParser):
    """The tags and attributes of a page, without its texts; raises where a tag is closed that is not open."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}
        self.links += [value or "" for name, value in attributes if name in ("href", "src", "action", "xlink:href")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def page(text: str) -> str:
    """The HTML page that has the text everywhere."""
    return render(everywhere(text), Format.HTML, Wish({"a.b": text}))


@settings(max_examples=60)
@given(TEXTS)
@example(MARKUP[1])
@example(MARKUP[2])
def test_html_has_the_same_elements_whatever_the_texts_hold(text: str) -> None:
    plain, evil = Outline(page("x")), Outline(page(text))
    # An empty text may leave its element out or add the word `empty`; texts of other lengths change how many dots a text has.
    allowed = set(plain.tags) | {"i", "pre"}
    assert set(evil.tags) <= allowed
    assert evil.tags.count("script") == evil.tags.count("style") == 1
    assert evil.tags.count("section") == plain.tags.count("section")
    assert not {name for name in evil.attributes if name.startswith("on") or name == "style"}
    assert all(link.startswith(("#h", "#findings", "data:image/svg+xml,")) for link in evil.links)


@settings(max_examples=60)
@given(TEXTS)
def test_html_holds_no_control_character_and_no_mark_of_direction(text: str) -> None:
    whole = page(text)
    assert all(character.isprintable() or character == "\n" for character in whole)


@settings(max_examples=60)
@given(TEXTS)
@example(MARKUP[0])
@example(MARKUP[5])
def test_junit_is_well_formed_and_has_the_same_cases_whatever_the_texts_hold(text: str) -> None:
    xml = render(everywhere(text), Format.JUNIT, Wish())
    suites = JUnitXml.fromstring(xml.encode())
    assert [len(list(suite)) for suite in suites] == [5, 1, 5]
    assert {element.tag for element in ElementTree.fromstring(xml).iter()} <= {
        *("testsuites", "testsuite", "testcase", "failure", "error", "skipped", "system-out")
    }
    assert all(line.isprintable() for line in xml.split("\n"))


@settings(max_examples=60)
@given(TEXTS)
@example(MARKUP[10])
def test_metrics_have_the_same_names_and_labels_whatever_the_texts_hold(text: str) -> None:
    def shape(of: str) -> list[tuple[str, frozenset[str]]]:
        families = text_string_to_metric_families(render(everywhere(of), Format.PROMETHEUS, Wish()))
        return sorted({(s.name, frozenset(s.labels)) for family in families for s in family.samples}, key=str)

    assert shape(text) == shape("x")


@settings(max_examples=60)
@given(TEXTS)
@example(MARKUP[8])
@example(MARKUP[9])
@example(MARKUP[12])
def test_markdown_has_the_same_blocks_and_no_link_whatever_the_texts_hold(text: str) -> None:
    def tokens(of: str) -> list[str]:
        parser = MarkdownIt("gfm-like", {"linkify": False, "html": True}).enable(["table"])
        found = parser.parse(render(everywhere(of), Format.MARKDOWN, Wish()))
        kinds = [token.type for token in found if not token.type.startswith(("fence", "paragraph", "inline"))]
        inner = {child.type for token in found for child in token.children or ()}
        return [*kinds, *sorted(inner & {"link_open", "image", "html_inline", "em_open", "strong_open", "s_open"})]

    assert tokens(text) == tokens("x")


@pytest.mark.parametrize("form", [form for form in Format if form not in (Format.JSON, Format.JSONL)])
@pytest.mark.parametrize("kind", ["a", "\x1b", "\u202e", "<", "`", "word "])
def test_a_line_of_ten_megabytes_stays_short_and_quick(form: Format, kind: str) -> None:
    text = kind * (10_000_000 // len(kind))
    wrong = Finding("a.b", Status.FAIL, text, text, (Evidence(text, text),), text)
    host = build.host(name=text, kernel=text, gpus=(build.gpu(0, name=text), build.gpu(1)), notes=(text,))
    start = time.process_time()
    whole = render(Report((one(host, wrong), one(None, wrong, name=text, reason=text)), Status.FAIL, 2), form, Wish(verbose=True))
    assert len(whole) < 1_500_000
    assert time.process_time() - start < 20


def test_a_line_of_ten_megabytes_is_whole_in_json() -> None:
    text = "\u202e" * 3_000_000
    made = Report((one(build.host(), Finding("a.b", Status.FAIL, text, text)),), Status.FAIL, 2)
    assert json.loads(render(made, Format.JSON, Wish()))["hosts"][0]["findings"][0]["summary"] == text
    assert json.loads(render(made, Format.JSONL, Wish()).splitlines()[1])["summary"] == text


def test_letters_that_run_from_right_to_left_are_kept_and_set_apart() -> None:
    text = "שלום"
    assert re.search(f"<bdi[^>]*>{text}</bdi>", page(text))

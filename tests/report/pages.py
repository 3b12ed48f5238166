"""What the tests of the page in a browser share: snapshots by their shape, a fleet, a tab, and how to show and to look."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nearsocket.control import checks
from nearsocket.control.audit import Manner, audit
from nearsocket.control.targets import resolve
from nearsocket.model.measured import Measured
from nearsocket.model.report import Report
from nearsocket.report import html
from tests.report import browser

DATA = Path(__file__).parent.parent / "data"
#: Snapshots by the shape that they have.
HOSTS = {
    "one socket": "hosts/one-socket",
    "two sockets, far": "hosts/two-socket-far",
    "two sockets, near": "hosts/two-socket-clean",
    "four nodes": "hosts/snc2-open",
    "eight nodes": "hosts/snc4",
    "eight GPUs": "hosts/eight-gpus",
    "two replicas": "hosts/two-replicas",
    "no source knows": "hosts/no-source-knows",
    "sources disagree": "hosts/sources-disagree",
    "real": "real/shm-cumem-off",
    "no GPU": "hosts/no-gpu",
}
LOADED = checks.load([DATA.parent.parent / "checks"])


@cache
def audited(*names: str) -> Report:
    """The audit of these snapshots, or of all in a folder."""
    paths = [str(path if path.is_dir() else path.with_suffix(".snapshot.json")) for path in (DATA / name for name in names)]
    return audit(resolve(paths).targets, Manner(checks=LOADED))


def fleet(size: int) -> Report:
    """A fleet of that size, its hosts like the snapshots that there are, each with a name of its own."""
    base = audited("hosts", "real")
    hosts = (dataclasses.replace(base.hosts[n % len(base.hosts)], name=f"gpu-{n + 1:03d}") for n in range(size))
    return dataclasses.replace(base, hosts=tuple(hosts))


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    if browser.executable() is None:
        pytest.fail("expected Chromium, found none (Debian, Ubuntu: apt-get install chromium)")
    with browser.page(tmp_path_factory.mktemp("profile")) as page:
        yield page


def show(tab: browser.Page, folder: Path, made: Report, probes: tuple[Measured, ...] = (), **how: Any) -> None:
    """The report on the screen."""
    path = folder / "report.html"
    path.write_text(html.render(made, {check.id: check.summary for check in LOADED}, probes), encoding="utf-8")
    tab.open(path, **how)


def seen(tab: browser.Page, selector: str) -> int:
    """How many such elements are shown."""
    found = tab.ask(f"[...document.querySelectorAll({selector!r})].filter(e => e.checkVisibility()).length")
    assert isinstance(found, int)
    return found

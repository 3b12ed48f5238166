"""`deploys/remove.py`, a freeze and a taken port as a person meets them, over a real sshd, against the real program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control import applying
from tests.control.server import Keys, serving, wrapper
from tests.control.test_site import TWO, Site
from tests.onhost.apply.made import Host
from tests.plan.hosts import four_on_one_socket


@pytest.fixture
def site(tmp_path: Path, keys: Keys) -> Iterator[Site]:
    line = applying.prepare(tmp_path / "place", four_on_one_socket().to_json())
    with serving(tmp_path / "server", keys, wrapper(tmp_path, line)) as server:
        yield Site(tmp_path, keys, server)


def test_what_came_by_site_goes_by_remove(site: Site) -> None:
    root = site.place / "root"
    before = Host(root).tree_of_files()
    site.write(TWO)
    assert site.run("site.py", "-y")[0] == 0
    code, said, actions = site.run("remove.py", "-y")
    assert code == 0, said
    assert actions == ["apply"]
    assert site.system.state["active"] == {}
    assert Host(root).tree_of_files() == before
    assert not (root / "run/nearsocket").exists()


def test_a_frozen_host_fails_the_run_with_the_reason_and_a_dry_run_says_so(site: Site) -> None:
    site.write(TWO, nearsocket_freeze={"until": "9999-12-31", "reason": "audit week"})
    code, said, _ = site.run("site.py", "-y")
    assert code == 1
    assert "frozen until 9999-12-31 by the inventory: audit week" in said
    assert not (site.place / "root/etc/nearsocket").exists()
    code, said, _ = site.run("site.py", "--dry")
    assert code == 0, said
    assert "a change is refused" in said


@pytest.mark.slow
def test_an_override_goes_on_and_kept_engines_run_on(site: Site) -> None:
    site.write(TWO, nearsocket_freeze={"until": "9999-12-31", "reason": "audit week"})
    code, said, _ = site.run("site.py", "-y", "--data", "override_freeze=a GPU died")
    assert code == 0, said
    assert "overridden: a GPU died" in said
    assert "a GPU died" in (site.place / "root/var/lib/nearsocket/overrides.log").read_text()
    running = site.system.state["active"]
    code, said, _ = site.run("remove.py", "-y", "--data", "keep_engines=true", "--data", "override_freeze=leaving")
    assert code == 0, said
    assert site.system.state["active"] == running
    assert (site.place / "root/etc/systemd/system/nearsocket-sglang-a.service").is_file()

"""Behind a boot: sshd answers before everything of the driver runs; CDI's files may be links, and long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nearsocket.model.driver.orders import Action
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect import containers
from nearsocket.onhost.collect.files import Context
from nearsocket.onhost.reprovision import facts, proof
from nearsocket.onhost.reprovision.sight import Eyes
from tests.onhost.reprovision.conftest import Site
from tests.onhost.reprovision.standin import NEW, OLD

SWITCHES = {"version": f"Fabric Manager version is : {NEW}", "nvswitches": 4}


class Time:
    """A clock that goes on when somebody waits; `then`: what happens at which second."""

    def __init__(self, site: Site, then: dict[float, dict[str, str]] | None = None) -> None:
        self.now, self.site, self.then = 0.0, site, then or {}

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for at in [at for at in self.then if at <= self.now]:
            self.site.machine.change(fabricmanager={**SWITCHES, **self.then.pop(at)})

    def eyes(self) -> Eyes:
        return Eyes(self.site.tree, Systemctl(self.site.machine), lambda: self.now, self.pause)


@pytest.fixture
def booted(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The host in its new boot, a fabric manager that is not begun yet."""
    monkeypatch.setattr(facts, "SETTLE_S", 90.0)
    site.good(Action.REHEARSE, Action.PREPARE, Action.UPGRADE, Action.REBOOT)
    site.machine.change(fabricmanager={**SWITCHES, "unit": "inactive"})
    return site


def test_a_fabric_manager_that_starts_behind_sshd_is_waited_for(booted: Site) -> None:
    time = Time(booted, {20: {"unit": "activating"}, 200: {"unit": "active"}})
    host = proof.settled(booted.tree, time.eyes(), NEW, 2)
    assert host.driver.module_loaded == NEW
    assert time.now == 200, "one that is starting trains links: it has longer than one that is not begun"


def test_one_that_never_starts_is_the_reason(booted: Site) -> None:
    time = Time(booted)
    with pytest.raises(Exception, match="fabric manager does not run"):
        proof.settled(booted.tree, time.eyes(), NEW, 2)
    assert 80 <= time.now <= 90


def test_another_module_in_memory_is_not_waited_for(booted: Site) -> None:
    time = Time(booted)
    with pytest.raises(Exception, match=f"the module in memory is {NEW}"):
        proof.settled(booted.tree, time.eyes(), OLD, 2)
    assert time.now == 0


def specified(site: Site, name: str) -> str:
    """A specification of the old driver's library, which went; nvidia-ctk writes where it is told."""
    text = json.dumps({"kind": "nvidia.com/gpu", "mounts": [{"hostPath": f"/usr/lib/libcuda.so.{OLD}"}]})
    (site.root / "etc/cdi" / name).write_text(text)
    (site.root / "usr/lib").mkdir(parents=True)
    (site.root / f"usr/lib/libcuda.so.{NEW}").touch()
    return text


def test_a_specification_behind_a_link_is_made_anew_where_it_lies(site: Site) -> None:
    site.good(Action.REHEARSE, Action.PREPARE, Action.UPGRADE)
    text = specified(site, "real.json")
    link = site.root / "etc/cdi/nvidia.json"
    link.symlink_to(site.root / "etc/cdi/real.json")
    site.machine.change(cdi={"/etc/cdi/nvidia.json": text})
    answer = site.good(Action.REBOOT, Action.AFTER)
    assert link.is_symlink()
    assert NEW in link.read_text()
    assert "/etc/cdi/nvidia.json was made anew; as it was: /var/lib/nearsocket/reprovision/etc-cdi-nvidia.json" in answer.notes
    assert (site.root / "var/lib/nearsocket/reprovision/etc-cdi-nvidia.json").read_text() == text


def test_a_long_specification_is_judged_by_its_end_too(site: Site) -> None:
    """A host's reading is cut at some length; libraries stand behind the devices."""
    site.good(Action.REHEARSE, Action.PREPARE, Action.UPGRADE)
    text = specified(site, "nvidia.json")
    site.machine.change(cdi={"/etc/cdi/nvidia.json": text[:30]})
    site.good(Action.REBOOT, Action.AFTER)
    assert NEW in (site.root / "etc/cdi/nvidia.json").read_text()


def test_the_collector_has_room_for_many_instances(tmp_path: Path) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    text = "kind: nvidia.com/gpu\n" + "".join(f"- path: /dev/nvidia-caps/nvidia-cap{at}\n" for at in range(4000)) + "end\n"
    assert len(text) > 1 << 16
    (tmp_path / "etc/cdi/nvidia.yaml").write_text(text)
    data = containers.cdi(Context(tmp_path)).data
    assert data is not None
    assert data["/etc/cdi/nvidia.yaml"].rstrip().endswith("end")

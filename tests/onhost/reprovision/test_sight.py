"""What replicas' containers see behind the new driver, asked on the host: failures, notes, and what is left behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from nearsocket.model.driver.orders import Action, Phase
from nearsocket.model.plan.values import Gate
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.command import CommandTimeout, Output
from nearsocket.onhost.reprovision import facts, kept
from nearsocket.onhost.reprovision.sight import Eyes
from tests.onhost.reprovision.conftest import UNITS, Site, records
from tests.onhost.reprovision.standin import OLD
from tests.onhost.reprovision.test_steps import BACK, WHOLE


def runs(site: Site) -> list[list[str]]:
    return [words for words in site.machine.state["calls"] if words[0] == "/usr/bin/docker" and words[1] == "run"]


def rewrite(site: Site, **more: object) -> None:
    """Other start records of the same replicas."""
    for path, text in records("a", **more).items():  # type: ignore[arg-type]
        (site.tree.current / path).write_text(text)


def test_each_replicas_container_is_asked_with_its_units_request_before_any_starts(site: Site) -> None:
    notes = site.good(*WHOLE[1:5]).notes
    assert notes == ("containers see their GPUs: a 1 (libcuda), b 1 (libcuda)",)
    asked = runs(site)
    assert [[word for word in words if "gpu=" in word] for words in asked] == [
        ["--device=nvidia.com/gpu=GPU-00000000"],
        ["--device=nvidia.com/gpu=GPU-00000001"],
    ]
    for words in asked:
        assert "--cgroup-parent=nearsocket-probe.slice" in words
        assert "--network=none" in words
    calls = site.machine.state["calls"]
    assert calls.index(asked[1]) < max(at for at, words in enumerate(calls) if "rm" in words[:2])
    site.good(*WHOLE[5:])
    assert site.up == set(UNITS)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("gpu-unseen", "expected the container of replica a to see 1 GPUs, found 0 (libcuda)"),
        ("no-cdi", "expected the container of replica a to start with its 1 GPUs, found: docker: Error response from daemon: CDI"),
        ("gpu-hangs", "expected the container of replica a to start with its 1 GPUs, found: no answer in 120 s"),
    ],
)
def test_a_container_that_gets_fewer_gpus_than_its_replica_has_is_a_failure_with_the_remedy(
    site: Site, fault: str, said: str
) -> None:
    site.good(*WHOLE[1:4])
    site.machine.fault(fault)
    answer = site.do(Action.AFTER)
    assert str(answer.error).startswith(said)
    assert "nvidia-ctk cdi generate" in str(answer.hint)
    assert (site.up, kept.held(site.tree), site.machine.state["containers"]) == (set(), ("a", "b"), [])
    site.machine.fault()
    site.good(*BACK)
    assert (site.versions, site.up) == ({OLD}, set(UNITS))


def test_a_container_that_cannot_be_run_at_all_is_a_note(site: Site) -> None:
    site.good(*WHOLE[1:4])
    site.machine.fault("no-image")
    notes = site.good(Action.AFTER).notes
    told = [f"replica {name}: whether its container sees its GPUs is not known: docker: Error response" for name in "ab"]
    assert [note.startswith(wanted) for note, wanted in zip(notes, told, strict=True)] == [True, True]
    assert "No such image" in notes[0]


def test_a_replica_without_a_start_record_is_a_note(site: Site) -> None:
    site.good(*WHOLE[1:4])
    (site.tree.current / "replicas/a.json").unlink()
    notes = site.good(Action.AFTER).notes
    assert notes[0] == "containers see their GPUs: b 1 (libcuda)"
    assert notes[1].startswith("replica a: whether its container sees its GPUs is not known: its start record: ")


def test_an_image_without_cudas_library_is_counted_by_device_nodes_and_says_so(site: Site) -> None:
    rewrite(site, gpus=2, gate=Gate.GPUS)
    site.good(*WHOLE[1:4])
    site.machine.fault("no-libcuda")
    assert site.good(Action.AFTER).notes == ("containers see their GPUs: a 2 (/dev/nvidiaN), b 1 (/dev/nvidiaN)",)
    assert '--gpus="device=GPU-00000000,GPU-00000001"' in runs(site)[0]


def test_by_index_a_gpu_is_asked_for_by_the_index_that_it_has_in_this_boot(site: Site) -> None:
    rewrite(site, gpus=2, gate=Gate.CDI_INDEX)
    site.good(*WHOLE[1:5])
    assert [word for word in runs(site)[0] if "gpu=" in word] == ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1"]


def test_what_a_boot_brings_late_is_waited_for_and_no_longer_than_its_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "SETTLE_S", 30.0)
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    eyes = Eyes(site.tree, Systemctl(site.machine), lambda: now[0], pause)
    here = facts.manifest(site.tree)
    assert here is not None
    site.machine.change(late=3)
    found = eyes.look(site.machine.host(), here.replicas)
    assert [one.fault for one in found] == [None, None]
    assert now == [15.0]
    site.machine.change(late=99)
    assert all(one.fault for one in eyes.look(site.machine.host(), here.replicas))
    assert now[0] == 40.0, "all replicas have one time together"


def test_one_that_did_not_run_before_or_runs_already_decides_nothing(site: Site) -> None:
    site.machine(["systemctl", "stop", UNITS[1]], 1)
    site.good(*WHOLE[1:5])
    site.do(Action.START, replica="a")
    site.machine.fault("gpu-unseen")
    notes = site.good(Action.AFTER).notes
    assert notes[0].startswith("replica b: expected the container of replica b to see 1 GPUs, found 0 (libcuda)")
    assert site.state.phase is Phase.PROVEN


def test_on_the_way_back_it_is_a_note_and_keeps_nobody_down(site: Site) -> None:
    site.good(*WHOLE[1:5])
    site.good(*BACK[:2])
    site.machine.fault("gpu-unseen")
    notes = site.good(Action.AFTER).notes
    assert all("found 0 (libcuda)" in note for note in notes)
    site.good(*BACK[3:])
    assert site.up == set(UNITS)


def test_no_call_of_the_look_may_hold_an_upgrade_up_for_hours(site: Site) -> None:
    limits: dict[str, float] = {}

    def run(argv: Sequence[str], limit_s: float) -> Output:
        limits[" ".join(argv[:2])] = limit_s
        return site.machine(argv, limit_s)

    here = facts.manifest(site.tree)
    assert here is not None
    Eyes(site.tree, Systemctl(run)).look(site.machine.host(), here.replicas)
    assert limits["systemctl start"] == 120.0
    assert max(limits.values()) == 120.0


def test_one_container_that_was_slow_is_asked_once_more_though_its_time_is_over(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "SETTLE_S", 90.0)
    now, slow = [0.0], [1]

    def run(argv: Sequence[str], limit_s: float) -> Output:
        if slow[0] and "--name=nearsocket-sight-a" in argv and any("gpu=" in word for word in argv):
            slow[0] -= 1
            now[0] += limit_s
            raise CommandTimeout(f"docker run: no answer in {limit_s:g} s")
        return site.machine(argv, limit_s)

    def pause(seconds: float) -> None:
        now[0] += seconds

    here = facts.manifest(site.tree)
    assert here is not None
    eyes = Eyes(site.tree, Systemctl(run), lambda: now[0], pause)
    assert [one.fault for one in eyes.look(site.machine.host(), here.replicas)] == [None, None]
    slow[0], now[0] = 2, 0.0
    found = eyes.look(site.machine.host(), here.replicas)
    assert str(found[0].fault).endswith("no answer in 120 s")
    assert now[0] == 245.0


def test_a_gpu_that_nvml_names_late_is_looked_for_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "SETTLE_S", 90.0)
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    first = dataclasses.replace(site.machine.host(), gpus=())
    here = facts.manifest(site.tree)
    assert here is not None
    eyes = Eyes(site.tree, Systemctl(site.machine), lambda: now[0], pause)
    assert [one.fault for one in eyes.look(first, here.replicas)] == [None, None]
    assert now == [10.0]

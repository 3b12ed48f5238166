"""What the apply itself sees before it writes: a GPU that was taken since the survey, a container that a reload would strip."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nearsocket.model.generation import Generation
from nearsocket.model.host import Host as HostModel
from nearsocket.model.order import Order
from nearsocket.model.outcome import Outcome
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from nearsocket.onhost.apply import guard
from nearsocket.onhost.apply.run import apply
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.runner import USUAL_WHOLE_S
from tests import build
from tests.onhost.apply.made import PROGRAM, Host, generation

#: A container of `--gpus` under Docker with systemd as its cgroup driver: a hook gave it its GPUs.
HOOKED = dataclasses.replace(
    build.host(), sources={**build.host().sources, "docker.info": build.source(data={"CgroupDriver": "systemd"})}
)
IDLE = dataclasses.replace(build.host(), processes=(), containers=())
GPU = build.host().gpus[0].pci


@pytest.fixture
def host(root: Path) -> Host:
    return Host(root)


def seen(host: Host, made: Generation | None, sight: HostModel, looks: list[str] | None = None, **options: object) -> Outcome:
    """An apply that sees that host."""

    def look() -> HostModel:
        (looks if looks is not None else []).append("look")
        return sight

    return apply(Order(made, **options), PROGRAM, host.tree, Systemctl(host.system), look=look)  # type: ignore[arg-type]


def on(gpu: str, made: Generation) -> Generation:
    replicas = tuple(dataclasses.replace(replica, gpus=(gpu,)) for replica in made.manifest.replicas)
    return dataclasses.replace(made, manifest=dataclasses.replace(made.manifest, replicas=replicas))


@pytest.mark.parametrize("dry", [True, False])
def test_a_reload_that_would_strip_a_container_writes_nothing_and_shows_the_remedy(host: Host, dry: bool) -> None:
    before = host.tree_of_files()
    outcome = seen(host, generation({"a": "one"}), HOOKED, dry=dry)
    assert outcome.error is not None
    assert "container sglang" in outcome.error
    assert "--device nvidia.com/gpu=all" in (outcome.hint or "")
    assert "accept_reload_risk=true" in (outcome.hint or "")
    assert host.tree_of_files() == before
    assert host.system.calls("daemon-reload") == []


def test_with_leave_the_reload_is_done(host: Host) -> None:
    assert seen(host, generation({"a": "one"}), HOOKED, accept_reload_risk=True).error is None
    assert len(host.system.calls("daemon-reload")) == 1


def test_the_host_is_looked_at_only_where_a_reload_or_a_new_gpu_is_to_come(host: Host) -> None:
    looks: list[str] = []
    made = on(GPU, generation({"a": "one"}))
    assert seen(host, made, IDLE, looks).error is None
    assert len(looks) == 1
    assert seen(host, made, HOOKED, looks).changes == ()
    noted = on(GPU, generation({"a": "one"}, extra={"note.txt": "x\n"}))
    assert seen(host, noted, HOOKED, looks).error is None
    assert len(looks) == 1


def test_a_gpu_that_somebody_took_since_the_survey_stops_the_apply(host: Host) -> None:
    before = host.tree_of_files()
    outcome = seen(host, on(GPU, generation({"a": "one"})), build.host(), accept_reload_risk=True)
    assert outcome.error is not None
    assert f"expected GPU {GPU} to be free, found process" in outcome.error
    assert host.tree_of_files() == before


@pytest.mark.parametrize("state", ["stopped by its policy", "start limit reached"])
def test_a_gpu_that_somebody_took_while_its_replica_was_down_is_not_taken_back(host: Host, state: str) -> None:
    made = on(GPU, generation({"a": "one"}))
    assert seen(host, made, IDLE).error is None
    host.system.change(active={})
    outcome = seen(host, made, build.host(), accept_reload_risk=True)
    assert f"expected GPU {GPU} to be free, found process" in (outcome.error or "")
    assert host.system.state["active"] == {}
    assert seen(host, made, IDLE).error is None
    assert set(host.system.state["active"]) == {"nearsocket-x-a.service"}


def test_a_gpu_of_a_replica_that_runs_is_moved_to_another_one_without_being_asked_for(host: Host) -> None:
    looks: list[str] = []
    made = on(GPU, generation({"a": "one"}))
    assert seen(host, made, IDLE).error is None
    moved = on(GPU, generation({"b": "one"}))
    assert seen(host, moved, build.host(), looks, allow_removals=True, accept_reload_risk=True).error is None
    assert looks == []


def test_with_a_generation_that_cannot_be_read_strangers_still_keep_their_gpus_and_ours_are_known_by_name(host: Host) -> None:
    made = on(GPU, generation({"a": "one"}))
    assert seen(host, made, IDLE).error is None
    (host.tree.current / "manifest.json").write_text("{")
    host.system.change(active={})
    outcome = seen(host, made, build.host(), accept_reload_risk=True)
    assert f"expected GPU {GPU} to be free, found process" in (outcome.error or "")
    box = dataclasses.replace(build.host().containers[0], name="nearsocket-sglang-a")
    ours = dataclasses.replace(build.host(), containers=(box,))
    assert seen(host, made, ours, accept_reload_risk=True).error is None


def test_going_back_is_guarded_as_going_forward_is(host: Host) -> None:
    host.apply(generation({"a": "one"}))
    host.apply(generation({"a": "two"}))
    host.system.change(images=[replica.image for replica in generation({"a": "one"}).manifest.replicas])
    host.at("/models/m").mkdir(parents=True)
    outcome = seen(host, None, HOOKED)
    assert outcome.error is not None
    assert "daemon-reload" in outcome.error
    assert host.tree.number() == 2
    assert seen(host, None, IDLE).error is None
    assert host.tree.number() == 1


def test_the_guard_asks_once_more_where_something_was_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Snapshot("h", "2026-01-01T00:00:00Z", None, {}, {}, {"containers": Source(SourceStatus.TIMEOUT, reason="docker ps")})
    good = Snapshot("h", "2026-01-01T00:00:00Z", None, {}, {}, {"containers": Source(SourceStatus.OK, data=[])})
    for answers, wanted in (([late, good], SourceStatus.OK), ([late, late], SourceStatus.TIMEOUT), ([good], SourceStatus.OK)):
        left = list(answers)
        limits: list[float] = []

        def collect(limit_s: float, _left: list[Snapshot] = left, _limits: list[float] = limits, **_named: object) -> Snapshot:
            _limits.append(limit_s)
            return _left.pop(0)

        monkeypatch.setattr(guard, "collect", collect)
        assert guard.look("/").source("containers").status is wanted
        assert left == []
        assert all(more > 3 * USUAL_WHOLE_S for more in limits[1:])  # so that docker has four times its 8 s

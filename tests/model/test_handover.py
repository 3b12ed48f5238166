"""Whom a replica takes over from: the one unit or container on its GPUs, or a refusal that says what was found."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model import handover
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import ReplicaEntry
from nearsocket.model.handover import Handover, handovers
from nearsocket.model.host import Host, Process, Unit
from nearsocket.model.settings import Adopt
from tests import build
from tests.onhost.apply.made import generation

HOST = build.host()
BOTH = tuple(gpu.pci for gpu in HOST.gpus)
OLD = Unit("glm.service", "active", "running", 1, "", "", "", "", "docker run --name sglang image", "")

ENGINE = "{ path=/usr/bin/python3 ; argv[]=/usr/bin/python3 -m sglang.launch_server --tp 2 ; ignore_errors=no ; pid=1 }"


def wanted(gpus: tuple[str, ...] = BOTH) -> tuple[ReplicaEntry, ...]:
    return (dataclasses.replace(generation({"a": "one"}).manifest.replicas[0], gpus=gpus),)


def found(host: Host, how: Adopt | None = Adopt.NOW, gpus: tuple[str, ...] = BOTH) -> tuple[Handover, ...]:
    return handovers(host, wanted(gpus), {"a": how} if how else {}, None)


def test_a_container_that_no_unit_runs_is_taken_over_by_its_name_with_its_restart_policy() -> None:
    read = {"containers": build.source(data=[{"id": HOST.containers[0].id, "restart": "always"}])}
    (one,) = found(dataclasses.replace(HOST, units=(), sources={**HOST.sources, **read}))
    assert (one.old_unit, one.old_container, one.restart) == (None, "sglang", "always")
    assert (one.replica, one.unit, one.how) == ("a", "nearsocket-x-a.service", Adopt.NOW)


def test_a_container_that_a_unit_runs_is_taken_over_by_that_unit() -> None:
    (one,) = found(dataclasses.replace(HOST, units=(OLD,)), Adopt.NEXT_RESTART)
    assert (one.old_unit, one.old) == ("glm.service", "glm.service")


def test_a_unit_that_runs_the_engine_without_a_container_is_taken_over_too() -> None:
    for changes in ({"exec_start": ENGINE}, {"exec_start": "/opt/start.sh", "main_pid": bare("glm.service")[0].pid}):
        unit = dataclasses.replace(OLD, **changes)  # type: ignore[arg-type]
        (one,) = found(dataclasses.replace(HOST, processes=bare("glm.service"), containers=(), units=(unit,)))
        assert (one.old_unit, one.old_container) == ("glm.service", None)


@pytest.mark.parametrize("name", ["cron.service", "ssh.service", "slurmd.service"])
def test_a_service_that_only_started_the_engine_is_never_stopped_for_it(name: str) -> None:
    """Its control group has the engine in it; its own command is another one."""
    unit = Unit(name, "active", "running", 1, "", "", "", "", "{ path=/usr/sbin/x ; argv[]=/usr/sbin/x -f ; ignore_errors=no }", "")
    for units in ((unit,), ()):
        with pytest.raises(NearsocketError, match=f"in {name}, whose own command is not an engine"):
            found(dataclasses.replace(HOST, processes=bare(name), containers=(), units=units))


def test_a_users_own_unit_is_refused() -> None:
    path = "/user.slice/user-1000.slice/user@1000.service/app.slice/tmux.service"
    inside = tuple(dataclasses.replace(p, cgroup=path) for p in bare("tmux.service"))
    unit = dataclasses.replace(OLD, id="tmux.service", exec_start=ENGINE)
    with pytest.raises(NearsocketError, match=r"of tmux\.service, a unit of a user's own"):
        found(dataclasses.replace(HOST, processes=inside, containers=(), units=(unit,)))


def test_a_unit_that_runs_something_else_beside_the_engine_is_refused() -> None:
    other = dataclasses.replace(HOST.processes[0], pid=9, ppid=1, container=None, unit="glm.service", engine=None, gpus=())
    unit = dataclasses.replace(OLD, exec_start=ENGINE)
    with pytest.raises(NearsocketError, match="which runs process 9 too"):
        found(dataclasses.replace(HOST, processes=(*bare("glm.service"), other), containers=(), units=(unit,)))


def bare(unit: str) -> tuple[Process, ...]:
    """The engine's processes without a container, in that unit's control group."""
    return tuple(dataclasses.replace(p, container=None, unit=unit, cgroup=f"/system.slice/{unit}") for p in HOST.processes)


@pytest.mark.parametrize("how", [None, Adopt.OBSERVE])
def test_nobody_is_taken_over_from_who_is_not_named_for_it(how: Adopt | None) -> None:
    assert found(HOST, how) == ()


def test_where_nobody_holds_the_gpus_any_more_nothing_is_to_be_handed_over() -> None:
    assert found(dataclasses.replace(HOST, processes=(), containers=())) == ()


def test_what_runs_by_hand_several_engines_and_one_on_further_gpus_are_refused() -> None:
    by_hand = dataclasses.replace(
        HOST, processes=tuple(dataclasses.replace(p, container=None, unit=None) for p in HOST.processes), containers=()
    )
    with pytest.raises(NearsocketError, match="which no unit and no container runs"):
        found(by_hand)
    with pytest.raises(NearsocketError, match="which is not this replica's"):
        found(dataclasses.replace(HOST, units=()), gpus=BOTH[:1])
    other = build.container(id="f" * 64, name="other", gpu_requests=("driver= count=0 ids=0 capabilities=gpu",))
    with pytest.raises(NearsocketError, match=r"several: .*container other"):
        found(dataclasses.replace(HOST, units=(), containers=(*HOST.containers, other)))


def test_a_handover_survives_its_way() -> None:
    (one,) = found(dataclasses.replace(HOST, units=(OLD,)))
    assert handover.from_value(handover.to_value(one)) == one

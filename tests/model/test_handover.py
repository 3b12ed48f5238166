"""Whom a replica takes over from: the one unit or container on its GPUs, or a refusal that says what was found."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model import handover
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import ReplicaEntry
from nearsocket.model.handover import Handover, handovers
from nearsocket.model.host import Host, Unit
from nearsocket.model.settings import Adopt
from tests import build
from tests.onhost.apply.made import generation

HOST = build.host()
BOTH = tuple(gpu.pci for gpu in HOST.gpus)
OLD = Unit("glm.service", "active", "running", 1, "", "", "", "", "docker run --name sglang image", "")


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
    bare = tuple(dataclasses.replace(p, container=None, unit="glm.service") for p in HOST.processes)
    (one,) = found(dataclasses.replace(HOST, processes=bare, containers=()))
    assert (one.old_unit, one.old_container) == ("glm.service", None)


@pytest.mark.parametrize("how", [None, Adopt.OBSERVE])
def test_nobody_is_taken_over_from_who_is_not_named_for_it(how: Adopt | None) -> None:
    assert found(HOST, how) == ()


def test_where_nobody_holds_the_gpus_any_more_nothing_is_to_be_handed_over() -> None:
    assert found(dataclasses.replace(HOST, processes=(), containers=())) == ()


def test_what_runs_by_hand_several_engines_and_one_on_further_gpus_are_refused() -> None:
    by_hand = dataclasses.replace(
        HOST, processes=tuple(dataclasses.replace(p, container=None) for p in HOST.processes), containers=()
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

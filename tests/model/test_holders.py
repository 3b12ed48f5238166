"""Whose a GPU is: a process's, a container's that was given it before any process came, or nobody's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model import holders
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest
from nearsocket.model.host import Host
from tests import build
from tests.onhost.apply.made import generation

ENGINE = ("python3", "-m", "sglang.launch_server", "--port", "30000")


def host(**changes: Any) -> Host:
    """One running container of Docker, and no process on any GPU."""
    box = build.container(**{"gpu_requests": (), "command": ENGINE, **changes})
    return dataclasses.replace(build.host(), processes=(), containers=(box,), units=())


GPU0, GPU1 = (gpu for gpu in build.host().gpus)


def manifest(gpus: tuple[str, ...], container: str = "nearsocket-x-a") -> Manifest:
    made = generation({"a": "one"}).manifest
    return dataclasses.replace(made, replicas=(dataclasses.replace(made.replicas[0], gpus=gpus, container=container),))


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu_requests": ("driver= count=0 ids=0 capabilities=gpu",)},
        {"gpu_requests": (f"driver= count=0 ids={GPU0.uuid} capabilities=gpu",)},
        {"gpu_requests": ("driver=cdi count=0 ids=nvidia.com/gpu=0 capabilities=",)},
        {"cdi_devices": (f"nvidia.com/gpu={GPU0.uuid}",)},
        {"devices": ("/dev/nvidiactl", "/dev/nvidia0")},
    ],
)
def test_a_container_holds_the_gpus_that_it_was_given_by_name_before_its_first_process(changes: dict[str, Any]) -> None:
    for command in (ENGINE, ("sleep", "inf")):
        found = host(**changes, command=command)
        assert holders.holder_of(found, GPU0.pci) == "container sglang"
        assert holders.holder_of(found, GPU1.pci) is None


@pytest.mark.parametrize(
    "changes", [{"gpu_requests": ("driver= count=-1 ids= capabilities=gpu",)}, {"cdi_devices": ("nvidia.com/gpu=all",)}]
)
def test_every_gpu_is_held_by_an_engine_and_not_by_a_monitor(changes: dict[str, Any]) -> None:
    assert holders.holder_of(host(**changes), GPU1.pci) == "container sglang"
    assert holders.holder_of(host(**changes, command=("dcgm-exporter",)), GPU1.pci) is None


def test_a_process_is_named_with_its_container_and_the_unit_that_runs_it() -> None:
    whole = build.host()
    held = holders.holder_of(whole, GPU0.pci)
    assert held is not None
    assert held.startswith("process ")
    assert "of container sglang" in held
    loose = dataclasses.replace(
        whole, containers=(), processes=tuple(dataclasses.replace(p, container=None, unit="old.service") for p in whole.processes)
    )
    assert "of old.service" in (holders.holder_of(loose, GPU0.pci) or "")


def test_what_a_replica_of_ours_holds_is_ours_by_its_container_its_slice_or_its_unit() -> None:
    whole = build.host()
    assert holders.holder_of(whole, GPU0.pci, manifest((GPU0.pci,), container="sglang")) is None
    bare = dataclasses.replace(whole, containers=())
    here = manifest((GPU0.pci,))
    for changes in ({"cgroup": "/nearsocket.slice/nearsocket-a.slice/docker-1.scope"}, {"unit": "nearsocket-x-a.service"}):
        mine = tuple(dataclasses.replace(p, **changes) for p in whole.processes)
        assert holders.holder_of(dataclasses.replace(bare, processes=mine), GPU0.pci, here) is None
    assert holders.holder_of(bare, GPU0.pci, here) is not None


def test_not_knowing_who_holds_a_gpu_is_no_leave_to_take_it() -> None:
    blind = dataclasses.replace(build.host(), processes=(), containers=(), sources={"processes": build.source(status="timeout")})
    with pytest.raises(NearsocketError, match="expected to see who holds GPU"):
        holders.refuse_held(blind, manifest((GPU0.pci,)).replicas, None)


def test_a_gpu_that_a_replica_here_has_is_not_new_and_one_that_it_moves_to_is() -> None:
    whole = build.host()
    wanted = manifest((GPU0.pci,)).replicas
    holders.refuse_held(whole, wanted, manifest((GPU0.pci,)))
    for here in (None, manifest((GPU1.pci,))):
        with pytest.raises(NearsocketError, match=f"expected GPU {GPU0.pci} to be free, found process") as error:
            holders.refuse_held(whole, wanted, here)
        assert "adopt" in (error.value.hint or "")

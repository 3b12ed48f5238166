"""A replica that is observed has its GPUs, CPUs and port, and nothing is written for it; one taken over is like any other."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.control import converge
from nearsocket.control.converge import Leave
from nearsocket.control.target import Target, Way
from nearsocket.model import read
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Record
from nearsocket.model.outcome import Installed
from nearsocket.model.plan.make import plan
from nearsocket.model.settings import Adopt, Settings
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from tests.importing.inspects import docker, snapshot
from tests.plan.hosts import asked, four_on_one_socket, replica
from tests.plan.rendered import TEMPLATES, made

HOST = read.host(four_on_one_socket())
FIRST = ("0000:c1:00.0", "0000:c2:00.0")
NOTHING = Installed(None, None, None, False)
SGLANG = ["python3", "-m", "sglang.launch_server", "--model-path", "/srv/models/glm", "--tp", "2", "--port", "30000"]


def test_nothing_is_written_for_a_replica_that_is_observed() -> None:
    generation = made(HOST, asked(replica("a", gpus=FIRST, adopt=Adopt.OBSERVE)))
    assert [entry.path for entry in generation.manifest.files] == ["fingerprint.json"]
    assert (generation.manifest.units, generation.manifest.links, generation.manifest.replicas) == ((), (), ())


def test_its_gpus_and_port_are_taken_all_the_same() -> None:
    wanted = plan(HOST, asked(replica("a", gpus=FIRST, adopt=Adopt.OBSERVE, port=30000), replica("b")))
    observed, beside = wanted.replicas
    assert not {gpu.pci for gpu in observed.gpus} & {gpu.pci for gpu in beside.gpus}
    assert not observed.cpus & beside.cpus
    assert beside.port == 30001
    assert [entry.name for entry in wanted.managed] == ["b"]


def test_what_a_plan_would_not_do_is_no_reason_to_refuse_one_that_runs() -> None:
    binds = replica("a", gpus=FIRST, arguments=("--numa-node", "0", "0"), binding=None)
    assert plan(HOST, asked(binds)).refused
    assert not plan(HOST, asked(dataclasses.replace(binds, adopt=Adopt.OBSERVE))).refused


@pytest.mark.parametrize("how", [Adopt.NOW, Adopt.NEXT_RESTART])
def test_taking_over_renders_what_a_replica_of_its_own_would_be(how: Adopt) -> None:
    plain, taken = made(HOST, asked(replica("a", gpus=FIRST))), made(HOST, asked(replica("a", gpus=FIRST, adopt=how)))
    assert plain.manifest.digest == taken.manifest.digest


def serving(installed: Installed = NOTHING) -> Snapshot:
    """A container of Docker on the first two GPUs that a reload leaves alone."""
    base = snapshot(docker(SGLANG, HostConfig__Privileged=True))
    source = Source(SourceStatus.OK, data=dataclasses.asdict(installed))
    return dataclasses.replace(base, sources={**base.sources, "installed": source})


def prepared(settings: Settings, installed: Installed = NOTHING) -> converge.Prepared:
    target = Target("gpu1", Way.LOCAL, settings=settings)
    return converge.prepare(target, serving(installed), Record("o", "2030-01-01T00:00:00Z", "0"), Leave(), TEMPLATES)


def test_a_gpu_with_a_container_on_it_is_refused_by_name_before_its_first_process() -> None:
    with pytest.raises(NearsocketError, match=r"GPU 0000:c1:00\.0 to be free, found container glm-main"):
        prepared(asked(replica("a", gpus=FIRST)))


@pytest.mark.parametrize("how", [Adopt.NOW, Adopt.NEXT_RESTART])
def test_the_order_names_whom_the_replica_takes_over_from(how: Adopt) -> None:
    order = prepared(asked(replica("a", gpus=FIRST, adopt=how))).order
    assert order is not None
    (one,) = order.handovers
    assert (one.replica, one.old_container, one.how, one.restart) == ("a", "glm-main", how, "unless-stopped")


def test_an_engine_that_is_observed_hands_nothing_over_and_stops_nothing_beside_it() -> None:
    order = prepared(asked(replica("a", gpus=FIRST, adopt=Adopt.OBSERVE), replica("b", port=30001))).order
    assert order is not None
    assert order.handovers == ()
    assert [entry.name for entry in order.generation.manifest.replicas] == ["b"] if order.generation else False


def test_now_is_an_order_even_where_the_generation_is_in_force_already() -> None:
    digest = made(HOST, asked(replica("a", gpus=FIRST))).manifest.digest
    installed = Installed(1, digest, "0", True, (), ("a",))
    assert prepared(asked(replica("a", gpus=FIRST, adopt=Adopt.NOW)), installed).order is not None
    assert prepared(asked(replica("a", gpus=FIRST, adopt=Adopt.NEXT_RESTART)), installed).order is None

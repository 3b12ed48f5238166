"""Which replicas of a plan are probed before a start, as what, and what the proof of their path rests on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nearsocket import paths
from nearsocket.control import container, converge, fleet
from nearsocket.control.converge import Leave
from nearsocket.control.probe import path
from nearsocket.control.target import Target, Way
from nearsocket.model import read
from nearsocket.model.errors import UsageError
from nearsocket.model.generation import Record
from nearsocket.model.order import Part
from nearsocket.model.outcome import Installed
from nearsocket.model.plan.fingerprint import of_host
from nearsocket.model.plan.make import plan
from nearsocket.model.probe.order import Backend
from nearsocket.model.probe.path import PathProbe
from nearsocket.model.settings import Adopt, BeforeStart, PathSettings, ReplicaSettings
from nearsocket.model.snapshot import Source, SourceStatus
from tests.plan.hosts import IMAGE, asked, four_on_one_socket, replica

HOST = read.host(four_on_one_socket())
NEVER = PathSettings(BeforeStart.NEVER)


def probes(*replicas: ReplicaSettings, near: frozenset[int] | None = None) -> tuple[PathProbe, ...]:
    return path.probes(HOST, plan(HOST, asked(*replicas)), near)


def test_a_replicas_own_image_environment_gpus_and_binding_are_probed() -> None:
    (found,) = probes(replica("a", nccl={"NCCL_PROTO": "LL"}))
    made = plan(HOST, asked(replica("a", nccl={"NCCL_PROTO": "LL"}))).replicas[0]
    assert (found.replica, found.image, found.fingerprint) == ("a", IMAGE.reference, of_host(HOST).digest)
    assert found.gpus == tuple(gpu.pci for gpu in made.gpus)
    assert found.start.ranks.environment == container.environment(made)
    assert set(container.run_binding(made)) <= set(found.start.argv)
    assert found.start.ranks.sizes == (12 << 10, 1 << 20, 48 << 20)
    assert (found.start.runtime, found.start.ranks.limit_s) == ("/usr/bin/docker", 120.0)


def test_the_container_has_a_name_that_the_next_apply_knows_and_no_other_replica_has() -> None:
    names = [found.start.container for found in probes(replica("a"), replica("b"))]
    assert names == ["nearsocket-path-a-0", "nearsocket-path-b-0"]


def test_two_plans_of_the_same_give_the_same_probe() -> None:
    assert probes(replica("a")) == probes(replica("a"))


@pytest.mark.parametrize(
    "changed",
    [
        replica("a", nccl={"NCCL_PROTO": "LL"}),
        replica("a", image=dataclasses.replace(IMAGE, reference=IMAGE.reference.replace("0" * 64, "1" * 64))),
        replica("a", binding=frozenset()),
        replica("a", gpus=("2", "3")),
    ],
    ids=["environment", "image", "binding", "GPUs"],
)
def test_whatever_the_path_depends_on_changes_what_its_proof_rests_on(changed: ReplicaSettings) -> None:
    assert probes(changed)[0].basis != probes(replica("a"))[0].basis


def test_what_the_path_does_not_depend_on_changes_nothing() -> None:
    other = replica("a", environment={"FOO": "1"}, arguments=("--log-level=debug",), model="/srv/models/n")
    assert probes(other)[0].basis == probes(replica("a"))[0].basis


def test_one_that_says_never_one_of_one_gpu_and_one_that_is_only_observed_are_not_probed() -> None:
    assert probes(replica("a", probe=NEVER)) == ()
    assert probes(replica("a", count=1)) == ()
    assert probes(replica("a", adopt=Adopt.OBSERVE)) == ()


def test_a_labs_ranks_leave_out_the_prefill_size_and_the_users_word_on_nodes_goes_along() -> None:
    (found,) = probes(replica("a", probe=PathSettings(backend=Backend.STANDIN, limit_s=60)), near=frozenset({1}))
    assert (found.start.ranks.sizes, found.start.ranks.limit_s, found.near) == ((12 << 10, 1 << 20), 60.0, (1,))


@pytest.mark.parametrize(("part", "count"), [(None, 2), (Part.ENGINE, 2), (Part.TUNE, 0), (Part.IMAGE, 0)])
def test_an_apply_that_starts_replicas_takes_their_probes_along_and_gets_the_time_for_them(part: Part | None, count: int) -> None:
    nothing = Source(SourceStatus.OK, data=dataclasses.asdict(Installed(None, None, None, False)))
    snapshot = four_on_one_socket(installed=nothing)
    target = Target("gpu1", Way.LOCAL, settings=asked(replica("a"), replica("b")))
    order = converge.prepare(target, snapshot, Record("o", "t", "0"), Leave(), paths.templates_folder(), part).order
    assert order is not None
    assert len(order.probes) == count
    assert path.limit_s(order.probes) >= 120 * count


def fleet_file(folder: Path, probe: str) -> Path:
    file = folder / "fleet.yaml"
    serve = f"{{engine: sglang, image: '{IMAGE.reference}', model: /m, gpu_count: 2, probe: {probe}}}"
    file.write_text(f"defaults:\n  serve: {serve}\nhosts:\n  - name: h\n    replicas: [{{name: a}}]\n")
    return file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", PathSettings()),
        ("{before_start: never}", NEVER),
        ("{backend: standin, limit: 90s}", PathSettings(BeforeStart.AUTO, Backend.STANDIN, 90)),
    ],
)
def test_a_fleet_file_says_whether_how_and_for_how_long(tmp_path: Path, text: str, expected: PathSettings) -> None:
    [target] = fleet.read(fleet_file(tmp_path, text)).targets
    assert target.settings
    assert target.settings.replicas[0].probe == expected


@pytest.mark.parametrize("text", ["{before_start: yes}", "{backend: mpi}", "{limit: 1s}", "{limits: 60s}"])
def test_a_fleet_file_that_says_something_else_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="probe"):
        fleet.read(fleet_file(tmp_path, text))

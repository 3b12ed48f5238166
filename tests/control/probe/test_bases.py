"""What a probe runs on a host: the replica's own image, environment, GPUs and binding, or bare ranks."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.control import audit, container
from nearsocket.control.probe import bases, engines
from nearsocket.control.probe.bases import Wish, subjects
from nearsocket.control.target import Target, Way
from nearsocket.control.transport.process import Children
from nearsocket.model import places, programs, read
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.plan.layers import NEEDS_SYS_NICE
from nearsocket.model.plan.make import plan, slug
from nearsocket.model.probe import planning
from nearsocket.model.probe.order import Backend
from nearsocket.model.probe.planning import Binding
from nearsocket.model.settings import Verify
from tests.plan.hosts import IMAGE, asked, eight, four_on_one_socket, replica

HOST = read.host(four_on_one_socket())
SETTINGS = asked(replica("a"), replica("b"))


def test_a_replica_is_probed_in_its_image_with_its_environment_and_its_gpus() -> None:
    first, second = subjects(HOST, SETTINGS, Wish())
    made = plan(HOST, SETTINGS).replicas[0]
    assert (first.name, first.image) == ("replica a", IMAGE.reference)
    assert first.gpus == tuple(gpu.pci for gpu in made.gpus)
    assert not set(first.gpus) & set(second.gpus)
    assert first.base.environment == container.environment(made)
    words = first.base.argv[Binding.CONFIGURED]
    assert words[:3] == ("/usr/bin/docker", "run", "-i")
    assert words[words.index("--entrypoint=") + 1] == IMAGE.reference
    assert words[-1] == "python3"
    assert "--pull=never" in words
    assert [word for word in words if word.startswith("--device=")] == [f"--device=nvidia.com/gpu={gpu.uuid}" for gpu in made.gpus]


def test_the_replicas_own_binding_is_in_force_as_configured_and_in_no_other_start() -> None:
    (subject,) = subjects(HOST, asked(replica("a")), Wish())
    made = plan(HOST, asked(replica("a"))).replicas[0]
    words = {binding: subject.base.argv[binding] for binding in Binding}
    # Its /dev/shm is there only while its unit is up: the probe makes one with the same options.
    mine = (
        {word.replace(f"source={made.shm.point},", "source=@FOLDER@/shm,") for word in container.run_binding(made)}
        if made.shm
        else set()
    )
    assert mine and mine <= set(words[Binding.CONFIGURED])
    assert planning.start(subject.base, planning.CONFIGURED, 0).shm == "mode=1777,size=17179869184,mpol=bind:1"
    assert planning.start(subject.base, "naive", 1, Binding.NAIVE).shm == ""
    assert "--cpuset-mems=1" in words[Binding.NEAR]
    assert "--cpuset-mems=0" in words[Binding.FAR]
    assert subject.base.far == (0,)
    bound = ("--cpuset", "numactl", "--membind", "--mount=type=bind,source=/run/nearsocket/shm")
    assert not [word for word in words[Binding.NAIVE] if word.startswith(bound)]


def test_neither_the_model_nor_a_secret_enters_a_probe() -> None:
    secret = replica("a", secrets={"HF_TOKEN": "/etc/token"})
    (subject,) = subjects(HOST, asked(secret), Wish())
    said = " ".join(subject.base.argv[Binding.CONFIGURED]) + str(subject.base.environment)
    assert "HF_TOKEN" not in said
    assert "/etc/token" not in said
    assert "/srv/models" not in said


def test_ranks_that_bind_themselves_do_so_as_the_engine_does() -> None:
    host = eight()
    made = plan(host, asked(replica("a", count=8))).replicas[0]
    (subject,) = subjects(host, asked(replica("a", count=8)), Wish())
    assert made.ranks
    assert [place.bind for place in subject.base.places] == [(node,) for node in made.ranks]
    assert subject.base.far == ()


def test_gpus_by_dockers_own_option_stay_one_word() -> None:
    host = read.host(four_on_one_socket(cdi=False))
    (subject,) = subjects(host, asked(replica("a")), Wish())
    (word,) = [word for word in subject.base.argv[Binding.CONFIGURED] if word.startswith("--gpus=")]
    assert word.startswith('--gpus="device=GPU-')
    assert word.endswith('"')


def test_a_capability_is_given_only_where_a_layer_needs_it() -> None:
    made = plan(HOST, asked(replica("a"))).replicas[0]
    words = subjects(HOST, asked(replica("a")), Wish())[0].base.argv[Binding.CONFIGURED]
    assert ("--cap-add=SYS_NICE" in words) == any(made.uses(layer) for layer in NEEDS_SYS_NICE)


def test_bare_ranks_take_every_gpu_or_those_named() -> None:
    (every,) = subjects(HOST, None, Wish(python="/usr/bin/python3"))
    assert every.gpus == tuple(sorted(gpu.pci for gpu in HOST.gpus))
    assert every.base.argv == {}
    (two,) = subjects(HOST, None, Wish(python="/usr/bin/python3", gpus=(1, 3)))
    assert [place.device for place in two.base.places] == [1, 3]
    assert {place.near for place in two.base.places} == {(1,)}


def test_two_ranks_on_one_gpu_are_asked_for_by_name_and_get_what_nccl_needs() -> None:
    (one,) = subjects(HOST, None, Wish(python="/usr/bin/python3", gpus=(0,), each=2))
    assert [place.device for place in one.base.places] == [0, 0]
    assert one.base.environment["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"
    assert one.base.environment["NCCL_MAX_CTAS"] == "4"


@pytest.mark.parametrize(
    ("wish", "error", "said"),
    [
        (Wish(), UsageError, "expected what is served there"),
        (Wish(python="p", gpus=(0,)), NearsocketError, "expected 2 to 16 ranks, found 1"),
        (Wish(python="p", gpus=(0, 9)), UsageError, "expected indices below 4, found 9"),
        (Wish(python="p", each=8), NearsocketError, "expected 2 to 16 ranks, found 32"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_its_reason(wish: Wish, error: type[NearsocketError], said: str) -> None:
    with pytest.raises(error, match=said):
        subjects(HOST, None, wish)


def test_a_replica_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="expected one of a, b, found 'c'"):
        subjects(HOST, SETTINGS, Wish(replicas=("c",)))


def test_gloo_needs_no_gpu() -> None:
    idle = dataclasses.replace(HOST, gpus=())
    assert len(bases.bare(idle, Wish(Backend.GLOO, "python3")).base.places) == 2


def test_a_replicas_address_is_what_its_host_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target("h", Way.LOCAL, settings=SETTINGS)
    monkeypatch.setattr(audit, "collect", lambda *words: four_on_one_socket())
    ports = {one.name: one.port for one in plan(HOST, SETTINGS).replicas}
    assert engines.found(target, "b", 1, Children()) == engines.Found(f"http://127.0.0.1:{ports['b']}", "sglang")
    with pytest.raises(UsageError, match="expected --replica and one of a, b"):
        engines.found(target, None, 1, Children())
    assert engines.found(Target("h", Way.LOCAL), None, 1, Children()) == engines.Found(engines.DEFAULT_URL, "sglang")


def test_a_replicas_engine_is_asked_with_the_key_that_its_proof_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = replica("a", secrets={"API_KEY": "/etc/keys/a", "HF_TOKEN": "/etc/hf"}, verify=Verify(api_key="API_KEY"))
    monkeypatch.setattr(audit, "collect", lambda *words: four_on_one_socket())
    found = engines.found(Target("h", Way.LOCAL, settings=asked(keyed)), None, 1, Children())
    assert found.key_file == "/etc/keys/a"


@pytest.mark.parametrize(
    ("given", "count", "own", "expected"),
    [
        ((), 1, None, (None,)),
        ((), 2, "/own", ("/own", None)),
        (("/a",), 2, "/own", ("/a", None)),
        (("/a", "/b"), 2, None, ("/a", "/b")),
    ],
)
def test_files_of_keys_go_to_the_engines_in_their_order(
    given: tuple[str, ...], count: int, own: str | None, expected: tuple[str | None, ...]
) -> None:
    assert engines.key_files(given, count, own) == expected


def test_a_probe_runs_in_no_replicas_slice() -> None:
    """Whoever looks at a replica by its slice must not take a probe's ranks for the engine's; no replica can have that slice."""
    for subject in subjects(HOST, SETTINGS, Wish()):
        for words in subject.base.argv.values():
            assert f"--cgroup-parent={programs.PROBE_SLICE}" in words
    slices = {container.slice_name(one) for one in plan(HOST, SETTINGS).replicas}
    assert programs.PROBE_SLICE not in slices
    assert f"nearsocket-{slug('probe')}.slice" == programs.PROBE_SLICE
    assert places.reserved("probe")

"""What a plan refuses, and what it says then."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from nearsocket.model import read
from nearsocket.model.host import Engine, Host
from nearsocket.model.plan.make import plan
from nearsocket.model.plan.values import Plan
from nearsocket.model.settings import GIB, Image, Layer, Limits, Settings, TuneSettings
from tests.plan.hosts import IMAGE, asked, eight, four_on_one_socket, replica
from tests.snapshots.machines import memoryless_node, no_source_knows, one_socket, snc4, vfio

SPAN = ["0000:17:00.0", "0000:c1:00.0"]


def four() -> Host:
    return read.host(four_on_one_socket())


def layers(*names: str) -> frozenset[Layer]:
    return frozenset(map(Layer, names))


CASES: list[tuple[str, Callable[[], Host], Settings, str, str]] = [
    ("spans-unbound", eight, asked(replica(gpus=SPAN, binding=layers("shm", "numactl"))), "sockets 0-1", "per-rank"),
    (
        "too-many",
        four,
        asked(replica("a"), replica("b"), replica("c")),
        "2 GPUs wanted and 0 of 4 left: more replicas than GPUs",
        "take",
    ),
    ("no-index", four, asked(replica(gpus=["7"])), "GPU 7: this host has no such GPU (it has 0 at 0000:c1:00.0", "audit"),
    ("no-address", four, asked(replica(gpus=["0000:99:00.0"])), "no such GPU", "audit"),
    ("named-twice", four, asked(replica(gpus=["0", "0000:C1:00.0"])), "named twice", "once"),
    ("taken", four, asked(replica("a", gpus=["0"]), replica("b", gpus=["0"])), "already replica a's", "another"),
    (
        "passed-through",
        lambda: read.host(vfio()),
        asked(replica(gpus=["0000:21:00.0"])),
        "handed to a virtual machine",
        "give it back",
    ),
    (
        "memoryless",
        lambda: read.host(memoryless_node()),
        asked(replica()),
        "node 1 near its GPUs has no memory",
        "topology.node-population",
    ),
    ("node-unknown", lambda: read.host(no_source_knows()), asked(replica(count=1)), "socket is known of 0", "`near`"),
    (
        "node-unknown-named",
        lambda: read.host(no_source_knows()),
        asked(replica(gpus=["0"])),
        "socket of GPU 0000:c1:00.0 is not",
        "`near`",
    ),
    (
        "bind-does-not-fit",
        four,
        asked(replica(binding=layers("numactl"), host_memory_bytes=300 * GIB)),
        "300.0 GiB declared do not fit into 256.0 GiB of node 1",
        "host_memory",
    ),
    (
        "others-take-it",
        four,
        asked(*(replica(name, binding=layers("cpuset"), host_memory_bytes=150 * GIB) for name in "ab")),
        "150.0 GiB declared beside 150.0 GiB of other replicas do not fit",
        "host_memory",
    ),
    (
        "cache-not-declared",
        four,
        asked(replica(binding=layers("numactl"), arguments=("--enable-hierarchical-cache",))),
        "--enable-hierarchical-cache keeps a cache in host memory and host_memory is not declared",
        "declare",
    ),
    (
        "shm-too-large",
        four,
        asked(replica(binding=layers("shm"), limits=Limits(shm_bytes=400 * GIB))),
        "caps of 400.0 GiB",
        "host_memory",
    ),
    (
        "no-numactl",
        four,
        asked(replica(binding=layers("numactl"), image=dataclasses.replace(IMAGE, numactl=False))),
        "the image has no numactl",
        "leave the layer out",
    ),
    (
        "nothing-remains",
        four,
        asked(replica(binding=layers("cumem"), nccl={"NCCL_CUMEM_ENABLE": "0"})),
        "no layer can hold it near (cumem: the settings say NCCL_CUMEM_ENABLE=0)",
        "binding: none",
    ),
    ("port-twice", four, asked(replica("a", port=1000), replica("b", port=1000)), "port 1000 is already replica a's", "own port"),
    (
        "own-binding",
        four,
        asked(replica(arguments=("--numa-node", "0", "0"))),
        "--numa-node in its settings binds as well",
        "take it out",
    ),
    ("own-variable", four, asked(replica(environment={"SGLANG_AUTO_NUMA_BIND": "1"})), "SGLANG_AUTO_NUMA_BIND=1", "take it out"),
    (
        "patch-on-four",
        four,
        asked(replica(count=4, image=dataclasses.replace(IMAGE, patch="chunked-pcie-allreduce"))),
        "4 GPUs: the patch is made for two",
        "upstream",
    ),
    ("cpus", four, asked(replica(limits=Limits(cpus=99))), "99 CPUs wanted, its share is 14", "limits.cpus"),
    (
        "split-socket",
        eight,
        asked(*(replica(n, count=c) for n, c in (("a", 3), ("b", 3), ("c", 2)))),
        "no socket has 2 free GPUs",
        "span",
    ),
]


@pytest.mark.parametrize(("make", "wanted", "reason", "hint"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_refused_with_the_reason_and_what_to_do(make: Callable[[], Host], wanted: Settings, reason: str, hint: str) -> None:
    made = plan(make(), wanted)
    assert made.refused
    assert any(reason in refusal.reason and hint in refusal.hint for refusal in made.refusals), made.refusals


def test_more_replicas_than_cores_are_refused() -> None:
    host = four()
    nodes = tuple(dataclasses.replace(node, cpus=frozenset(sorted(node.cpus)[:1])) for node in host.nodes)
    made = plan(dataclasses.replace(host, nodes=nodes), asked(replica("a"), replica("b")))
    assert [refusal.subject for refusal in made.refusals] == ["a", "b"]
    assert "has 1 cores for 2 replicas" in made.refusals[0].reason


def used(made: Plan, name: str = "a") -> set[str]:
    one = next(one for one in made.replicas if one.name == name)
    return {state.layer.value for state in one.layers if state.used}


@pytest.mark.parametrize(
    ("make", "changes", "expected"),
    [
        (four, {}, {"cumem", "shm", "numactl"}),
        (four, {"host_memory_bytes": 300 * GIB}, {"cumem", "shm"}),
        (four, {"arguments": ("--hicache-ratio=2",)}, {"cumem", "shm"}),
        (four, {"image": Image(IMAGE.reference, numactl=False)}, {"cumem", "shm", "cpuset"}),
        (four, {"image": Image(IMAGE.reference, nccl="2.22.3")}, {"shm", "numactl"}),
        (four, {"image": Image(IMAGE.reference, release="0.5.3")}, {"shm", "numactl"}),
        (four, {"environment": {"NCCL_CUMEM_HOST_ENABLE": "0"}}, {"shm", "numactl"}),
        (four, {"count": 1}, {"shm", "numactl"}),
        (four, {"binding": frozenset()}, set()),
        (four, {"binding": layers("cpuset", "cumem")}, {"cpuset", "cumem"}),
        (eight, {"gpus": SPAN}, {"cumem", "per-rank"}),
        (eight, {"gpus": SPAN, "binding": layers("per-rank", "shm")}, {"per-rank"}),
        (lambda: read.host(one_socket()), {}, set()),
        (lambda: read.host(snc4()), {}, {"cumem", "shm", "numactl"}),
    ],
    ids=str,
)
def test_the_layers_that_remain(make: Callable[[], Host], changes: dict[str, Any], expected: set[str]) -> None:
    made = plan(make(), asked(replica(**changes)))
    assert not made.refused, made.refusals
    assert used(made) == expected


def test_a_driver_that_may_crash_shuts_the_gate_and_the_other_layers_remain() -> None:
    host = four()
    made = plan(dataclasses.replace(host, driver=dataclasses.replace(host.driver, cuda=12080)), asked(replica()))
    assert used(made) == {"shm", "numactl"}
    assert "before CUDA 13.0 the probe may crash" in made.replicas[0].layers[0].reason


def test_nodes_that_are_no_range_get_no_mount() -> None:
    host = four()
    odd = {0: 1, 1: 0}
    nodes = tuple(dataclasses.replace(node, socket=odd[node.id]) for node in host.nodes)
    extra = dataclasses.replace(nodes[0], id=3, socket=0, cpus=frozenset({100, 101}))
    made = plan(
        dataclasses.replace(host, nodes=(*nodes, extra), gpus=tuple(dataclasses.replace(g, socket=0) for g in host.gpus)),
        asked(replica()),
    )
    assert made.replicas[0].near == {1, 3}
    assert "shm" not in used(made)
    assert "numactl" in used(made)


def test_measured_memory_counts_where_it_is_more_than_declared() -> None:
    made = plan(four(), asked(replica(host_memory_bytes=10 * GIB)), {"a": 300 * GIB})
    assert "numactl" not in used(made)
    assert any("300.0 GiB measured" in state.reason for state in made.replicas[0].layers)


def test_huge_pages_and_arc_are_taken_off() -> None:
    host = four()
    memory = dataclasses.replace(host.nodes[1].memory, hugepages_bytes=100 * GIB)  # type: ignore[type-var]
    nodes = (host.nodes[0], dataclasses.replace(host.nodes[1], memory=memory))
    small = dataclasses.replace(host, nodes=nodes, arc_bytes=100 * GIB)
    reason = next(
        s.reason for s in plan(small, asked(replica(host_memory_bytes=107 * GIB))).replicas[0].layers if s.layer is Layer.NUMACTL
    )
    assert "107.0 GiB declared do not fit into 106.0 GiB of node 1 (less huge pages and ARC)" in reason


def test_the_recipes_shape_shares_one_socket() -> None:
    made = plan(four(), asked(replica("a"), replica("b")))
    a, b = made.replicas
    assert (a.sockets, b.sockets) == ((1,), (1,))
    assert {*a.cpus} & {*b.cpus} == set()
    assert [gpu.pci for gpu in b.gpus] == ["0000:c3:00.0", "0000:c4:00.0"]
    assert (a.port, b.port) == (30000, 30001)


def test_replicas_spread_over_the_sockets_and_the_larger_one_comes_first() -> None:
    made = plan(eight(), asked(replica("a"), replica("b", count=4), replica("c")))
    assert {one.name: one.sockets for one in made.replicas} == {"a": (1,), "b": (0,), "c": (1,)}


def test_eight_gpus_over_two_sockets_bind_rank_by_rank() -> None:
    made = plan(eight(), asked(replica(count=8, engine=Engine.VLLM)))
    assert made.replicas[0].ranks == (0, 0, 0, 0, 1, 1, 1, 1)
    assert made.replicas[0].shm is None


def test_who_holds_a_gpu_and_is_not_ours_is_named() -> None:
    from tests.snapshots.hosts import two_socket_bound

    made = plan(read.host(two_socket_bound()), asked(replica()))
    assert any("not managed here" in note for note in made.notes)


def test_tuning_is_refused_where_tuned_says_otherwise_and_left_to_it_where_it_agrees() -> None:
    conf = "[main]\nsummary=x\n[sysctl]\nkernel.numa_balancing=0\nvm.zone_reclaim_mode=1\n"
    host = read.host(four_on_one_socket(tuned={"active_profile": "hpc-compute", "profile/tuned.conf": conf}))
    agreed = plan(host, Settings(tune=TuneSettings(numa_balancing=0, swappiness=10)))
    assert dict(agreed.sysctl) == {"vm.swappiness": "10"}
    assert any("left to tuned's profile hpc-compute" in decision.reason for decision in agreed.decisions)
    assert "sets 1" in plan(host, Settings(tune=TuneSettings(zone_reclaim_mode=0))).refusals[0].reason


def test_nothing_is_tuned_unless_it_is_asked_for() -> None:
    made = plan(four(), Settings())
    assert (dict(made.sysctl), made.transparent_hugepages, made.refused) == ({}, None, False)


def test_a_limit_of_cpus_keeps_whole_cores_of_every_socket() -> None:
    made = plan(eight(), asked(replica(count=8, limits=Limits(cpus=9)))).replicas[0]
    assert made.cpus == {1, 17, 2, 18, 9, 25, 10, 26}


def test_without_siblings_each_cpu_counts_as_a_core() -> None:
    host = read.host(
        four_on_one_socket(cpus={"online": "0-31", **{f"cpu{n}/topology/physical_package_id": str(n // 8 % 2) for n in range(32)}})
    )
    [one] = plan(host, asked(replica())).replicas
    assert len(one.cpus) == 15
    assert any("siblings not known" in decision.reason for decision in one.decisions)


def test_unread_memory_forbids_a_hard_bind_and_no_mount() -> None:
    host = four()
    nodes = tuple(dataclasses.replace(node, memory=None) for node in host.nodes)
    made = plan(dataclasses.replace(host, nodes=nodes), asked(replica()))
    assert used(made) == {"cumem", "shm"}


def test_the_users_word_on_near_places_gpus_whose_node_nobody_knows() -> None:
    made = plan(read.host(no_source_knows(), near=frozenset({1})), asked(replica()))
    assert not made.refused
    assert (made.replicas[0].sockets, made.replicas[0].near) == ((1,), {1})

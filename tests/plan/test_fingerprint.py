"""The fingerprint, and what a start does where the host is no longer the plan's."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model import read
from nearsocket.model.errors import NearsocketError
from nearsocket.model.host import Host, Node
from nearsocket.model.plan.fingerprint import IN_FORCE, Fingerprint, Verdict, decide, from_json, of_host
from nearsocket.model.plan.memory import about
from nearsocket.model.settings import GIB, OnChange
from nearsocket.model.snapshot import Source, SourceStatus
from tests.plan.hosts import four_on_one_socket
from tests.snapshots.machines import snc4

GPUS = ("0000:c1:00.0", "0000:c2:00.0")


@pytest.fixture
def planned() -> Fingerprint:
    return of_host(read.host(four_on_one_socket()))


def with_node(prints: Fingerprint, at: int, **changes: object) -> Fingerprint:
    nodes = tuple(dataclasses.replace(n, **changes) if n.id == at else n for n in prints.nodes)  # type: ignore[arg-type]
    return dataclasses.replace(prints, nodes=nodes)


def with_gpu(prints: Fingerprint, pci: str, **changes: object) -> Fingerprint:
    gpus = tuple(dataclasses.replace(g, **changes) if g.pci == pci else g for g in prints.gpus)  # type: ignore[arg-type]
    return dataclasses.replace(prints, gpus=gpus)


def test_the_same_host_starts_without_a_word(planned: Fingerprint) -> None:
    decision = decide(planned, planned, GPUS, OnChange.REFUSE)
    assert (decision.verdict, decision.warnings) == (Verdict.START, ())
    assert decision.uuids[GPUS[0]] == planned.gpus[0].uuid


def test_a_gpu_that_is_gone_is_refused_whatever_the_policy(planned: Fingerprint) -> None:
    found = dataclasses.replace(planned, gpus=planned.gpus[1:])
    decision = decide(planned, found, GPUS, OnChange.UNBOUND)
    assert decision.verdict is Verdict.REFUSE
    assert decision.warnings == ("GPU 0000:c1:00.0 is gone",)


def test_a_gpu_of_another_replica_does_not_count(planned: Fingerprint) -> None:
    found = dataclasses.replace(planned, gpus=planned.gpus[:2])
    assert decide(planned, found, GPUS, OnChange.REFUSE).verdict is Verdict.START


def test_another_card_in_the_slot_warns_and_keeps_the_digest(planned: Fingerprint) -> None:
    found = with_gpu(planned, GPUS[1], uuid="GPU-new")
    decision = decide(planned, found, GPUS, OnChange.REFUSE)
    assert decision.verdict is Verdict.START
    assert "another card in this slot (GPU-new" in decision.warnings[0]
    assert decision.uuids[GPUS[1]] == "GPU-new"
    assert found.digest == planned.digest


@pytest.mark.parametrize(("policy", "verdict"), [(OnChange.UNBOUND, Verdict.UNBOUND), (OnChange.REFUSE, Verdict.REFUSE)])
def test_an_snc_flip_goes_unbound_and_loud_or_is_refused(planned: Fingerprint, policy: OnChange, verdict: Verdict) -> None:
    flipped = dataclasses.replace(of_host(read.host(snc4())), gpus=planned.gpus)
    decision = decide(planned, flipped, GPUS, policy)
    assert decision.verdict is verdict
    assert "node 7 is new" in decision.warnings
    assert flipped.digest != planned.digest


def test_a_gpu_that_moved_to_another_node_counts_as_a_change(planned: Fingerprint) -> None:
    decision = decide(planned, with_gpu(planned, GPUS[0], node=0, socket=0), GPUS, OnChange.UNBOUND)
    assert decision.verdict is Verdict.UNBOUND
    assert decision.warnings == ("GPU 0000:c1:00.0: node 0 on socket 0, was node 1 on socket 1",)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"memory_bytes": 255 * GIB}, Verdict.START),
        ({"memory_bytes": 192 * GIB}, Verdict.UNBOUND),
        ({"memory_bytes": None}, Verdict.UNBOUND),
        ({"cpus": "8-14"}, Verdict.UNBOUND),
        ({"socket": 0}, Verdict.UNBOUND),
    ],
)
def test_a_kernels_share_of_memory_is_no_change_and_a_lost_module_is(
    planned: Fingerprint, change: dict[str, object], verdict: Verdict
) -> None:
    assert decide(planned, with_node(planned, 1, **change), GPUS, OnChange.UNBOUND).verdict is verdict


@given(gib=st.floats(0.5, 4096), moved=st.integers(-(1 << 18), 1 << 18))
def test_what_memtotal_moves_by_between_boots_is_hardly_ever_another_plan(gib: float, moved: int) -> None:
    before = int(gib * GIB)
    assert abs(about(before) - before) <= before / 256
    assert abs(about(before + moved) - about(before)) in (0, 1 << (before.bit_length() - 8), 1 << (before.bit_length() - 7))


def test_a_reboot_that_moves_memtotal_is_the_same_plan() -> None:
    host = read.host(four_on_one_socket())
    moved = dataclasses.replace(host, nodes=tuple(_less(node, 3 << 20) for node in host.nodes))
    assert of_host(moved) == of_host(host)


def _less(node: Node, by: int) -> Node:
    assert node.memory
    return dataclasses.replace(node, memory=dataclasses.replace(node.memory, total_bytes=node.memory.total_bytes - by))


def test_it_comes_back_from_json_and_nothing_else_does(planned: Fingerprint) -> None:
    assert from_json(planned.to_json()) == planned
    for broken in ({}, {"schema": "other"}, {**planned.to_json(), "nodes": [{}]}, {**planned.to_json(), "gpus": None}):
        with pytest.raises(NearsocketError):
            from_json(broken)


def booted(planned: Fingerprint, moved_bytes: int, in_force: str | None = None) -> Host:
    """The host after a boot that moved that much from node 0 to node 1; `in_force`: the text there, None for what was planned."""
    host = read.host(four_on_one_socket())
    text = json.dumps(planned.to_json()) if in_force is None else in_force
    nodes = []
    for node in host.nodes:
        assert node.memory is not None
        total = node.memory.total_bytes + (moved_bytes if node.id else -moved_bytes)
        nodes.append(dataclasses.replace(node, memory=dataclasses.replace(node.memory, total_bytes=total)))
    return dataclasses.replace(host, nodes=tuple(nodes), sources={**host.sources, IN_FORCE: Source(SourceStatus.OK, text=text)})


def test_memory_that_a_boot_moved_between_nodes_keeps_the_fingerprint_in_force(planned: Fingerprint) -> None:
    total = planned.nodes[0].memory_bytes
    assert total is not None
    assert of_host(booted(planned, total // 30)) == planned
    lost = of_host(booted(planned, total // 10))
    assert lost.digest != planned.digest
    assert lost.nodes[0].memory_bytes == about(total - total // 10)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00", '{"schema": "nearsocket.fingerprint/1", "nodes": 5, "gpus": []}'])
def test_a_fingerprint_in_force_that_cannot_be_read_holds_nothing(planned: Fingerprint, text: str) -> None:
    total = planned.nodes[0].memory_bytes
    assert total is not None
    assert of_host(booted(planned, total // 30, text)).nodes[0].memory_bytes == about(total - total // 30)


def test_a_node_of_the_fingerprint_in_force_whose_memory_is_no_number_holds_nothing(planned: Fingerprint) -> None:
    value = planned.to_json()
    value["nodes"][0]["memory_bytes"] = "much"
    total = planned.nodes[0].memory_bytes
    assert total is not None
    found = of_host(booted(planned, total // 30, json.dumps(value)))
    assert found.nodes[0].memory_bytes == about(total - total // 30)
    assert found.nodes[1].memory_bytes == planned.nodes[1].memory_bytes

"""The chunked all-reduce patch: for two GPUs of one socket over a host bridge, refused on anything else."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model.plan.eligibility import patch
from tests.build import gpu, host

ONE, OTHER = gpu(0), gpu(1)


@pytest.mark.parametrize("word", ["PHB", "NODE", "SYS"])
def test_two_gpus_of_a_socket_over_a_host_bridge_are_eligible(word: str) -> None:
    pair = (dataclasses.replace(ONE, links={OTHER.pci: word}, nvlinks_active=0), OTHER)
    assert patch(host(gpus=pair), pair).eligible


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"links": {OTHER.pci: "NV18"}}, {}, "have NVLink"),
        ({"links": {OTHER.pci: "SYS"}, "nvlinks_active": 4}, {"nvlinks_active": 4}, "have NVLink"),
        ({"links": {OTHER.pci: "PIX"}}, {}, "linked by PIX, not over a host bridge"),
        ({"links": {OTHER.pci: "PXB"}}, {}, "linked by PXB"),
        ({}, {}, "not known (no topology from NVML)"),
        ({"links": {OTHER.pci: "SYS"}, "socket": 0, "node": 0}, {}, "on sockets 0, 1"),
        ({"links": {OTHER.pci: "SYS"}, "socket": None, "node": None}, {}, "whether the GPUs share a socket is not known"),
    ],
)
def test_anything_else_is_refused_with_its_reason(first: dict[str, object], second: dict[str, object], reason: str) -> None:
    pair = (dataclasses.replace(ONE, **first), dataclasses.replace(OTHER, **second))  # type: ignore[arg-type]
    verdict = patch(host(gpus=pair), pair)
    assert not verdict.eligible
    assert reason in verdict.reason


def test_larger_groups_and_split_pairs_are_sent_to_upstreams_backend() -> None:
    four = tuple(gpu(n) for n in range(4))
    assert "unpatched" in patch(host(gpus=four), four).instead
    assert "4 GPUs" in patch(host(gpus=four), four).reason
    assert not patch(host(), (ONE,)).eligible


def test_the_users_word_on_near_tells_that_a_socket_is_shared() -> None:
    pair = tuple(dataclasses.replace(g, socket=None, node=None, links={o.pci: "PHB"}) for g, o in ((ONE, OTHER), (OTHER, ONE)))
    assert patch(host(gpus=pair, near=frozenset({1})), pair).eligible

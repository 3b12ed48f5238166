"""topology.*: GPUs' nodes, nodes' population, PCIe links."""

from __future__ import annotations

import pytest

from nearsocket.model.host import Gpu, NodeClaim, NodeMemory, PciLink
from tests import build
from tests.build import GIB
from tests.checks.judging import findings, host_with, one, status

NODE, POPULATION, LINK = "topology.gpu-node", "topology.node-population", "topology.pcie-link"


def claims(*words: tuple[str, int | None, str] | tuple[str, int | None, str, frozenset[int]]) -> Gpu:
    return build.gpu(0, claims=tuple(NodeClaim(*word) for word in words))


def judged(*words: tuple[str, int | None, str] | tuple[str, int | None, str, frozenset[int]]) -> str:
    return one(NODE, build.host(gpus=(claims(*words),))).status.value


def test_agreeing_sources_pass_one_finding_a_gpu() -> None:
    found = findings(NODE, build.host())
    assert [f.status.value for f in found] == ["pass", "pass"]
    assert "sysfs says node 1; nvml says node 1" in found[0].summary


def test_sources_of_two_sockets_fail_with_both_texts() -> None:
    finding = one(NODE, build.host(gpus=(claims(("sysfs", 0, "0"), ("nvml", 1, "12-23,36-47")),)))
    assert finding.status.value == "fail"
    assert {e.text for e in finding.evidence} == {"0", "12-23,36-47"}


def test_different_nodes_of_one_socket_warn() -> None:
    nodes = (build.node(0), build.node(1), build.node(2, socket=1))
    gpu = claims(("sysfs", 1, "1"), ("nvml", 2, "24-35"))
    assert status(NODE, build.host(nodes=nodes, gpus=(gpu,))) == "warn"


def test_a_claim_that_spans_a_socket_agrees_with_its_nodes() -> None:
    nodes = (build.node(0), build.node(1), build.node(2, socket=1))
    gpu = claims(("sysfs", 1, "1"), ("nvml", None, "12-35", frozenset({1, 2})))
    assert status(NODE, build.host(nodes=nodes, gpus=(gpu,))) == "pass"


def test_a_claim_over_both_sockets_says_nothing() -> None:
    assert judged(("nvml", None, "0-47", frozenset({0, 1}))) == "unknown"
    assert judged(("sysfs", 1, "1"), ("nvml", None, "0-47", frozenset({0, 1}))) == "pass"


def test_only_nvml_knows_so_nccl_does_not() -> None:
    finding = one(NODE, build.host(gpus=(claims(("sysfs", None, "-1"), ("nvml", 1, "12-23")),)))
    assert finding.status.value == "warn"
    assert "echo 1 | sudo tee /sys/bus/pci/devices/0000:c1:00.0/numa_node" in (finding.remedy or "")


def test_only_sysfs_knows_passes() -> None:
    assert judged(("sysfs", 1, "1"), ("nvml", None, "N/A")) == "pass"


def test_no_word_anywhere_is_unknown() -> None:
    assert judged(("sysfs", None, "-1"), ("nvml", None, "N/A")) == "unknown"
    assert status(NODE, build.host(gpus=(build.gpu(0, claims=()),))) == "unknown"


def test_a_node_that_is_not_online_fails() -> None:
    assert judged(("sysfs", 5, "5")) == "fail"


def test_minus_one_on_the_only_node_passes() -> None:
    gpu = claims(("sysfs", None, "-1"))
    assert status(NODE, build.host(nodes=(build.node(0),), gpus=(gpu,))) == "pass"
    without_numa = build.host(nodes=(), gpus=(gpu,), sources={"nodes": build.source(status="absent")})
    assert status(NODE, without_numa) == "pass"


def test_minus_one_on_the_only_socket_of_several_nodes_warns() -> None:
    nodes = (build.node(0), build.node(1, socket=0))
    assert status(NODE, build.host(nodes=nodes, gpus=(claims(("sysfs", None, "-1")),))) == "warn"


def test_nodes_that_were_not_read_do_not_hide_agreement() -> None:
    assert status(NODE, host_with({"nodes": build.source(status="denied")}, nodes=())) == "pass"


def test_escapes_in_a_claim_do_not_reach_the_summary() -> None:
    assert "\x1b" not in one(NODE, build.host(gpus=(claims(("sysfs", None, "\x1b[31m-1")),))).summary


def memory(total: int) -> NodeMemory:
    return NodeMemory(total, total // 2)


def test_even_nodes_pass() -> None:
    assert status(POPULATION, build.host()) == "pass"


@pytest.mark.parametrize(("few", "wanted"), [(224, "warn"), (250, "pass")])
def test_a_missing_module_warns_and_the_kernels_own_share_does_not(few: int, wanted: str) -> None:
    assert status(POPULATION, build.host(nodes=(build.node(0, memory=memory(few * GIB)), build.node(1)))) == wanted


def test_small_machines_are_not_called_uneven() -> None:
    nodes = (build.node(0, memory=memory(600 << 20)), build.node(1, memory=memory(760 << 20)))
    assert status(POPULATION, build.host(nodes=nodes)) == "pass"


def test_a_near_node_without_memory_fails() -> None:
    assert status(POPULATION, build.host(nodes=(build.node(0), build.node(1, memoryless=True, memory=None)))) == "fail"


def test_a_far_node_without_memory_and_one_without_cpus_warn() -> None:
    assert status(POPULATION, build.host(nodes=(build.node(0, memoryless=True), build.node(1)))) == "warn"
    expander = build.node(2, cpus=frozenset(), socket=1)
    assert status(POPULATION, build.host(nodes=(build.node(0), build.node(1), expander))) == "warn"


def test_an_empty_far_node_passes() -> None:
    empty = build.node(2, cpus=frozenset(), memoryless=True, memory=None, socket=0)
    finding = one(POPULATION, build.host(nodes=(build.node(0), build.node(1), empty)))
    assert finding.status.value == "pass"
    assert "node 2 is empty" in finding.summary


def test_nodes_of_gpu_memory_are_not_judged() -> None:
    own = build.node(2, cpus=frozenset(), memory=memory(96 * GIB), socket=1)
    host = build.host(gpus=(build.gpu(0, name="NVIDIA GH200 480GB"),), nodes=(build.node(0), build.node(1), own))
    finding = one(POPULATION, host)
    assert finding.status.value == "pass"
    assert "node 2 is GPU memory" in finding.summary


def test_memory_that_was_not_read_is_unknown() -> None:
    assert status(POPULATION, build.host(nodes=(build.node(0), build.node(1, memory=None)))) == "unknown"


X16 = PciLink(32.0, 16, 32.0, 16)
IDLE = PciLink(2.5, 16, 32.0, 16)


def link(own: PciLink, *above: PciLink) -> str:
    bridges = tuple(f"0000:c0:0{n}.0" for n in range(len(above)))
    gpu = build.gpu(0, link=own, bridges=bridges, bridge_links=dict(zip(bridges, above, strict=True)))
    return one(LINK, build.host(gpus=(gpu,))).status.value


@pytest.mark.parametrize(
    ("own", "above", "wanted"),
    [
        (X16, (X16,), "pass"),
        (IDLE, (IDLE,), "pass"),  # an idle GPU lowers its speed
        (PciLink(16.0, 16, 32.0, 16), (PciLink(16.0, 16, 16.0, 16),), "pass"),  # a generation 4 slot
        (PciLink(32.0, 8, 32.0, 16), (PciLink(32.0, 8, 32.0, 16),), "fail"),  # trained down
        (PciLink(32.0, 8, 32.0, 16), (PciLink(32.0, 8, 32.0, 8),), "warn"),  # a narrow slot
        (PciLink(16.0, 16, 32.0, 16), (PciLink(2.5, 1, 2.5, 1),), "pass"),  # a hypervisor's port
        (PciLink(16.0, 8, 32.0, 16), (PciLink(2.5, 1, 2.5, 1),), "fail"),
        (X16, (), "pass"),
        (PciLink(), (), "unknown"),
        (PciLink(None, 255, None, 63), (), "unknown"),
        (X16, (X16, X16, X16), "pass"),  # a switch
        (X16, (PciLink(32.0, 8, 32.0, 16), PciLink(32.0, 8, 32.0, 8), X16), "warn"),
        (IDLE, (PciLink(16.0, 16, 16.0, 16), PciLink(16.0, 16, 32.0, 16), IDLE), "warn"),  # generation 4 above a switch
        (X16, (PciLink(2.5, 1, 2.5, 1), X16, X16), "pass"),  # the switch is real, the root port is not
        (X16, (X16, PciLink(), X16), "pass"),
    ],
)
def test_width_now_and_speed_at_most_decide(own: PciLink, above: tuple[PciLink, ...], wanted: str) -> None:
    assert link(own, *above) == wanted


def nvml(**pcie: int) -> str:
    entry = {"pci": build.gpu(0).pci, "pcie": pcie}
    own = PciLink() if "width" in pcie else X16
    host = host_with({"nvml": build.source(data={"gpus": [entry]})}, gpus=(build.gpu(0, link=own, bridges=(), bridge_links={}),))
    return status(LINK, host)


def test_nvml_tells_what_sysfs_does_not() -> None:
    assert nvml(width=16, max_width=16) == "pass"
    assert nvml(width=8, max_width=16) == "fail"


def test_nvmls_own_maximum_below_both_ends_warns() -> None:
    assert nvml(gen=1, max_gen=5) == "pass"
    assert nvml(gen=1, max_gen=3) == "warn"

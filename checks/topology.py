"""Where GPUs, memory and CPUs are, and how the GPUs are connected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nearsocket.model.check import check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Gpu, Host
from nearsocket.model.verdicts import gpunode, pcie, population, scope
from nearsocket.model.verdicts.reading import named, nvml_gpu, refused


@check(id="topology.gpu-node")
def gpu_node(host: Host) -> Iterator[Finding]:
    """Every GPU's node is known, and the sources that name it agree.

    Near and far mean nothing without it. sysfs (numa_node) can say -1 where NVML knows, and the other way round, so every
    source's word is kept and compared. Sources that span all nodes of one socket (SNC, NPS) agree with each node of it.

    - pass: a node (or socket) is named and nothing contradicts it; or the host has one node only.
    - warn: different nodes of one socket; or only NVML knows it, so that NCCL, which reads sysfs, binds to none.
    - fail: sources name nodes of different sockets, or a node that is not online.
    - unknown: no source names a node, or the nodes or GPUs could not be read.
    - not-applicable: no GPU on this host; the reason names what was read.
    """
    absent = scope.without_gpu(host)
    if absent:
        yield absent
        return
    sockets = {node.id: node.socket for node in host.nodes}
    if not sockets and not refused(host, "nodes"):
        sockets = {0: 0}  # a kernel without NUMA has no node files and one node
    for gpu in host.gpus:
        yield gpunode.judge_claims(named(gpu), gpu.claims, sockets, gpu.pci)


@check(id="topology.node-population")
def node_population(host: Host) -> Iterator[Finding]:
    """Every node has memory and CPUs, in even amounts, and the nodes near GPUs have memory.

    - pass: each node with CPUs has memory, about as much as the others; empty nodes far from GPUs do not
      matter, and nodes that are a GPU's own memory (Grace) are not judged.
    - warn: a node with CPUs and no memory, one with memory and no CPU (NCCL's ranks can disagree there), or a node with
      over 10 % and 4 GiB less than another (a missing module costs bandwidth).
    - fail: a node near a GPU has no memory, so every host buffer of that GPU is far.
    - unknown: a node's memory could not be read.
    - not-applicable: no GPU, or a kernel without NUMA.
    """
    absent = scope.without_near(host) or scope.without_nodes(host)
    if absent:
        yield absent
        return
    read, own = (scope.nodes_read(host),), scope.own_nodes(host)
    yield population.judge_nodes(host.name, host.nodes, own, read, scope.gpu_memory_nodes(host))


@check(id="topology.pcie-link")
def pcie_link(host: Host) -> Iterator[Finding]:
    """Every GPU's PCIe link has the width and can reach the speed that GPU and slot allow.

    What GPUs exchange through host memory crosses this link twice. An idle GPU lowers its link's speed, so the speed of
    the moment is not judged: the width is, and the speed that both ends (and NVML) say they can reach. A port above whose
    width differs from the GPU's own is a hypervisor's and is left out.

    - pass: full width; the slot's own speed limit is named where it is below the GPU's.
    - warn: a slot narrower than the GPU, a speed limited below both ends, or a narrower link further up.
    - fail: fewer lanes than both ends can use.
    - unknown: neither sysfs nor NVML tells the width.
    - not-applicable: no GPU on this host.
    """
    absent = scope.without_gpu(host)
    if absent:
        yield absent
        return
    for gpu in host.gpus:
        yield pcie.judge_link(gpu, _nvml_pcie(host, gpu))


def _nvml_pcie(host: Host, gpu: Gpu) -> Mapping[str, Any]:
    """NVML's `pcie` map of this GPU, empty where it was not read."""
    found = nvml_gpu(host, gpu).get("pcie")
    return found if isinstance(found, Mapping) else {}

"""Decides whether a question arises on a host: whether it has GPUs, which nodes are near, whether anything can be far."""

from __future__ import annotations

import re
from typing import Optional

from nearsocket.model import cpulist, near
from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, unknown
from nearsocket.model.host import Host
from nearsocket.model.verdicts import binding
from nearsocket.model.verdicts.reading import because, files, mapping, refused, text, told, why

#: GPUs whose memory the kernel manages as nodes of their own, by name.
_COHERENT = re.compile(r"\bG[BH][0-9]{2,3}\b")


def without_gpu(host: Host) -> Optional[Finding]:
    """The finding to give where no GPU is seen, None where there is one.

    not-applicable where the places that show GPUs were read and show none; unknown where one of them was refused or
    something else says that there are GPUs.
    """
    if host.gpus:
        return None
    places = tuple(Evidence(name, _no_gpu(host, name)) for name in ("pci", "nvml"))
    seen = "; ".join(place.text for place in places)
    signs = _signs(host)
    if signs:
        summary = f"no GPU is seen, and yet {signs[0].source} shows an NVIDIA driver at work: {seen}"
        return unknown(host.name, summary, places + signs, "lspci -Dnn | grep -i nvidia; nvidia-smi -L")
    if not host.source("pci").ok and (refused(host, "pci") or refused(host, "nvml")):
        return unknown(host.name, f"whether there are GPUs is not known: {seen}", places, "lspci -Dnn | grep -i nvidia")
    return not_applicable(host.name, f"no GPU on this host ({seen})", places)


def without_driver(host: Host) -> Optional[Finding]:
    """Like `without_gpu`; not-applicable too where every GPU is handed to a virtual machine, so that no driver of ours runs."""
    absent = without_gpu(host)
    if absent or near.usable(host):
        return absent
    held = tuple(told(f"pci {gpu.pci} driver", gpu.driver) for gpu in host.gpus)
    return not_applicable(host.name, "every GPU is handed to a virtual machine", held)


def without_near(host: Host) -> Optional[Finding]:
    """Like `without_gpu`, but the user's word on where GPUs are (`--near`) is enough to go on."""
    return None if host.near is not None else without_gpu(host)


def without_far(host: Host) -> Optional[Finding]:
    """The finding to give where nothing can be near or far: no GPU, or all memory on the GPUs' socket; unknown
    where `--near` names a node that the host lacks. None where it can."""
    absent = without_near(host) or without_nodes(host)
    if absent:
        return absent
    wrong = near.misnamed(host)
    if wrong:
        return unknown(host.name, wrong, (nodes_read(host),), "numactl -H  # then name the nodes of the GPUs' socket")
    if _nothing_far(host):
        return not_applicable(host.name, "all memory is on the GPUs' socket, nothing can be far", (nodes_read(host),))
    return None


def without_nodes(host: Host) -> Optional[Finding]:
    """The finding to give where the nodes are not known (unknown) or the kernel has none (not-applicable). None where they are."""
    if host.nodes:
        return None
    if refused(host, "nodes"):
        return unknown(host.name, f"the nodes are not known: {why(host, 'nodes')}", because(host, "nodes"), "numactl -H")
    return not_applicable(host.name, f"one node, nothing can be far ({why(host, 'nodes')})", because(host, "nodes"))


def _nothing_far(host: Host) -> bool:
    """Whether all memory lies near every GPU: one socket, or the other sockets have none. A GPU without a known node forbids it."""
    if near.one_socket(host):
        return True
    memory = binding.memory_nodes(host)
    places = [host.near] if host.near is not None else [near.of_device(host, gpu) for gpu in near.usable(host)]
    return bool(memory and places) and all(place is not None and memory <= place for place in places)


def own_nodes(host: Host) -> frozenset[int]:
    """The nodes that GPUs sit on themselves, where memory is taken first; those of the socket where only that is known."""
    if host.near is not None:
        return host.near
    own: set[int] = set()
    for gpu in near.usable(host):
        own |= {gpu.node} if gpu.node is not None else near.of_device(host, gpu) or set()
    return frozenset(own)


def gpu_memory_nodes(host: Host) -> frozenset[int]:
    """The nodes that are GPUs' own memory: those without CPUs where the GPUs are coherent ones (GH200, GB200, ...)."""
    if not any(_COHERENT.search(gpu.name) for gpu in host.gpus):
        return frozenset()
    return frozenset(node.id for node in host.nodes if node.cpuless)


def near_unknown(host: Host) -> Finding:
    """The finding to give where GPUs are there and no source says which nodes are near."""
    claims = tuple(told(f"{claim.source} {gpu.pci}", claim.text) for gpu in host.gpus for claim in gpu.claims)
    summary = "which nodes are near is not known: no source names a GPU's node (see topology.gpu-node)"
    return unknown(
        host.name,
        summary,
        claims or because(host, "pci", "nvml"),
        f"nearsocket audit --near 0 {host.name}  # with the nodes of the GPUs' socket",
    )


def no_memory(nodes: frozenset[int]) -> Finding:
    """The finding to give where GPUs sit on nodes that have no memory."""
    summary = "a GPU sits on it and it has no memory (see topology.node-population): its buffers lie elsewhere"
    evidence = Evidence("nodes has_memory", f"lacks node {cpulist.render(nodes)}")
    return failed(f"node {cpulist.render(nodes)}", summary, (evidence,), "numactl -H")


def nodes_read(host: Host) -> Evidence:
    """The nodes that are online, as evidence."""
    online = files(host, "nodes").get("online") or cpulist.render(node.id for node in host.nodes)
    return told("nodes online", online) if online else told("nodes", why(host, "nodes"))


def _no_gpu(host: Host, name: str) -> str:
    if not host.source(name).ok:
        return why(host, name)
    return f"{name} was read and lists no GPU"


def _signs(host: Host) -> tuple[Evidence, ...]:
    """What shows an NVIDIA GPU although neither PCI nor NVML lists one."""
    signs = [told(f"driver.files {path}", found) for path, found in files(host, "driver.files").items() if path.startswith("gpus/")]
    if text(host, "nvidia.smi").startswith("GPU "):
        signs.append(told("nvidia.smi", text(host, "nvidia.smi")))
    if mapping(host, "nvml").get("gpus"):
        signs.append(told("nvml", "lists GPUs that could not be read"))
    return tuple(signs)

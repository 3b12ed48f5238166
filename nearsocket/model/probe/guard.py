"""Whether a probe may run: nobody else holds its GPUs, and no engine runs where a node is to be filled. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Optional

from nearsocket.model.host import Host, Process
from nearsocket.model.text import brief
from nearsocket.model.verdicts.groups import groups, holds_gpu, unlisted_memory


def holder(host: Host, gpus: Collection[str], filling: bool = False) -> Optional[str]:
    """Who is in the way, in words; None where nobody is. `gpus`: the probe's, by PCI address.

    GPU memory that is in use by processes which do not show counts as held: a probe must not guess.
    """
    for process in host.processes:
        held = sorted(set(process.gpus) & set(gpus))
        if held and holds_gpu(host, process):
            return f"{_named(process)} holds GPU {brief(held[0], 20)}"
    mine = dataclasses.replace(host, gpus=tuple(gpu for gpu in host.gpus if gpu.pci in gpus))
    hidden = unlisted_memory(mine)
    if hidden is not None:
        return hidden
    if filling:
        for group in groups(host):
            return f"{group.subject} runs, and filling a node takes page cache and speed from it"
    return None


def _named(process: Process) -> str:
    name = brief(process.title or process.comm, 60)
    where = f", container {brief(process.container, 20)}" if process.container else ""
    return f"process {process.pid} ({name}{where})"

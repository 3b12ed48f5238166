"""Whether a probe may run: nobody else holds its GPUs, and no engine runs where a node is to be filled. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Optional

from nearsocket.model import holders
from nearsocket.model.host import Host
from nearsocket.model.text import brief
from nearsocket.model.verdicts.groups import groups, holds_gpu, unlisted_memory


def holder(host: Host, gpus: Collection[str], filling: bool = False) -> Optional[str]:
    """Who is in the way, in words; None where nobody is. `gpus`: the probe's, by PCI address.

    A container that was given a GPU holds it while it still reads its weights and has no process there. GPU memory that is in use
    by processes which do not show counts as held: a probe must not guess.
    """
    for found in holders.holding(host, gpus):
        if found.process is None or holds_gpu(host, found.process):
            return f"{holders.named(host, found)} holds GPU {brief(found.gpu, 20)}"
    mine = dataclasses.replace(host, gpus=tuple(gpu for gpu in host.gpus if gpu.pci in gpus))
    hidden = unlisted_memory(mine)
    if hidden is not None:
        return hidden
    if filling:
        for group in groups(host):
            return f"{group.subject} runs, and filling a node takes page cache and speed from it"
    return None

"""Kernel parameters that decide, or seem to decide, where memory lies."""

from __future__ import annotations

from collections.abc import Iterator

from nearsocket.model.check import check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host
from nearsocket.model.verdicts import parameters, scope


@check(id="kernel.numa-balancing")
def numa_balancing(host: Host) -> Iterator[Finding]:
    """Automatic NUMA balancing is off.

    It unmaps pages to see who touches them and moves them after the CPU. Engines whose processes are bound gain nothing and
    pay page faults; pinned buffers cannot be moved at all.

    - pass: the parameter is 0.
    - warn: it is not; many distributions switch it on wherever there are several nodes.
    - unknown: it could not be read.
    - not-applicable: no GPU, all memory on one socket, or a kernel without it.
    - fail cannot occur: it costs some speed, it breaks nothing.
    """
    yield scope.without_far(host) or parameters.judge_numa_balancing(host)


@check(id="kernel.zone-reclaim-mode")
def zone_reclaim_mode(host: Host) -> Iterator[Finding]:
    """Nobody relies on zone_reclaim_mode to keep buffers near.

    With the old LRU a value of 1 makes a full node drop its own page cache first. With the multi-generational LRU, the
    default of newer kernels, it did nothing when tried (Linux 7.3; it did on 6.1, and on 7.3 with the value 7 or lru_gen off).
    tuned's hpc-compute profile sets it. Bind the engines; then the value does not matter.

    - pass: 0, the default; or a value that has an effect with this kernel's LRU, and the summary says that it is no cure.
    - warn: set, and without effect because of the multi-generational LRU.
    - unknown: the parameter, or with a value other than 0 the LRU, could not be read.
    - not-applicable: no GPU, all memory on one socket, or a kernel without it.
    - fail cannot occur: nccl.placement-enforced judges the placement itself.
    """
    yield scope.without_far(host) or parameters.judge_zone_reclaim(host)

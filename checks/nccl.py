"""Where NCCL's host buffers lie, and what keeps them there."""

from __future__ import annotations

from collections.abc import Iterable

from nearsocket.model.check import check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host
from nearsocket.model.verdicts import proof
from nearsocket.model.verdicts.groupfacts import every_group
from nearsocket.model.verdicts.groups import hidden_processes


@check("nccl.buffer-placement")
def buffer_placement(host: Host) -> Iterable[Finding]:
    """Every ring buffer that GPUs exchange data through lies on the GPUs' own socket.

    **Judged**: each `/dev/shm/nccl-*` file of ring size, merged over the processes that map it, against the nodes of those
    processes' GPUs; and cuMem's buffers by NCCL's log. Proxy pools and control files carry no GPU data and are not judged.
    In a group over two sockets a file may lie at either end of its link.

    **Why**: an all-reduce through a far buffer takes two to three times as long (48 MiB: 2.3 ms near, 5.7 ms far).

    - **pass**: every file has at least 99 % of its bytes accounted for, all near; or every `numa N` line of the log is near.
    - **warn**: a file has at most 1 % of its bytes far.
    - **fail**: a file is far, or split with more than 1 % far; or a `numa N` line is far.
    - **unknown**: a file is incomplete, the GPUs' nodes are not known, processes could not be read, or nothing is shown. The
      absence of nccl- lines proves nothing.
    - **not-applicable**: no process holds a GPU or an nccl- file, the log shows only P2P or NVLink, or no buffers in host
      memory are needed (one rank on one GPU, NVLink between all GPUs).

    **Remedy**: pinned pages cannot be moved; restart the engine bound, or with cuMem.

    **Source**: move_pages(2) or /proc/PID/numa_maps; NCCL src/transport/shm.cc and src/include/alloc.h.
    """
    idle, running = every_group(host)
    return [idle] if idle else [*map(proof.placement, running), *hidden_processes(host)]


@check("nccl.placement-enforced")
def placement_enforced(host: Host) -> Iterable[Finding]:
    """Buffers are near by force, so that the next restart cannot put them elsewhere.

    **Judged**: for each rank, where a new /dev/shm file can land: the mount's policy, else the task's policy, within the
    cpuset, all as they are in force now. Or cuMem, proven by NCCL's log. A mapping's own policy column proves nothing.

    **Why**: an unbound engine draws again at every start; full page cache on the near node decides the draw.

    - **pass**: every rank is held near by a bound policy, a cpuset or a bound mount; or cuMem holds all buffers near.
    - **warn**: near or not, it is luck: `default`, `prefer`, `interleave` and CPU sets alone hold nothing. Or the binding is
      newer than buffers that lie far.
    - **fail**: a rank is held on far nodes.
    - **unknown**: the GPU's node or the policy could not be read.
    - **not-applicable**: nothing runs, the log shows only P2P or NVLink, or no buffers in host memory are needed.

    **Remedy**: a cpuset, a bound policy, a /dev/shm mounted with `mpol=bind:NODE`, or cuMem.

    **Source**: /proc/PID/status, first line of /proc/PID/numa_maps, mount options; Linux mm/shmem.c; run in the lab.
    """
    idle, running = every_group(host)
    return [idle] if idle else list(map(proof.enforced, running))

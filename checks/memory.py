"""Whether near nodes have room, and what decides where files in /dev/shm go."""

from __future__ import annotations

from collections.abc import Iterator

from nearsocket.model.check import check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host
from nearsocket.model.verdicts import mountpolicy, nearmemory, scope


@check(id="memory.near-free")
def near_free(host: Host) -> Iterator[Finding]:
    """Every node that a GPU sits on has free memory for the next start's host buffers.

    Reading weights fills a node with page cache. With zone_reclaim_mode=0 Linux then takes pages from another socket rather
    than drop that cache, and NCCL's buffers land far: each restart draws again. Only a cure by force holds (cuMem, a bound
    process or cpuset, a bound /dev/shm mount); freeing the node helps until weights are read again. Look before a start
    and after the load. Enough is 4 GiB, on small nodes a tenth.

    - pass: enough is free; or page cache fills the node and every running engine is held near by force.
    - warn: page cache fills the node and nothing holds the next start near.
    - fail: short even when all cache is reclaimed, so that a bound start runs out of memory (warn where engines that are
      held near fill it themselves).
    - unknown: the node's memory or the GPUs' nodes are not known, or `--near` names a node that the host lacks.
    - not-applicable: no GPU, or all memory is on the GPUs' socket.
    """
    absent = scope.without_far(host)
    own = scope.own_nodes(host)
    if absent or not own:
        yield absent or scope.near_unknown(host)
        return
    for node in host.nodes:
        if node.id in own and not node.memoryless:
            yield nearmemory.judge_near_free(host, node)
    missing = own - {node.id for node in host.nodes if not node.memoryless}
    if missing:
        yield scope.no_memory(missing)


@check(id="memory.zfs-arc")
def zfs_arc(host: Host) -> Iterator[Finding]:
    """ZFS's cache (ARC) leaves the near nodes their memory.

    The ARC is not page cache: drop_caches does not empty it, and nobody chooses its node. Its limit is what helps.

    - pass: the ARC holds at most a tenth of all memory.
    - warn: it holds more.
    - fail: it holds more and a near node is short of memory.
    - unknown: its statistics or the memory could not be read.
    - not-applicable: no ZFS, no GPU, or all memory is on the GPUs' socket.
    """
    yield scope.without_far(host) or nearmemory.judge_arc(host, scope.own_nodes(host))


@check(id="memory.shm-mount-policy")
def shm_mount_policy(host: Host) -> Iterator[Finding]:
    """A memory policy on /dev/shm, or on a replica's own mount of it, names near nodes that the cpuset allows.

    `mpol=bind` on the mount decides before the task's policy does, for any engine and any NCCL, and needs no capability. It
    is ignored where the task's cpuset shares no node with it, and it is wrong for a group over two sockets on one mount.

    - pass: the mount is bound to near nodes, and the cpuset allows one of them.
    - warn: it allows far nodes too, or only prefers (prefer, local): under pressure the pages go far.
    - fail: it names far nodes only, or the cpuset makes the kernel ignore it.
    - unknown: mounts, processes or near nodes are not known, or the policy's text was not understood.
    - not-applicable: no such mount has a policy, no GPU, or all memory is on the GPUs' socket.
    """
    absent = scope.without_far(host)
    if absent:
        yield absent
        return
    yield from mountpolicy.judge_mounts(host)

"""Judges the memory policy (mpol) of tmpfs mounts that hold NCCL's files, against where the GPUs are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from nearsocket.model import cpulist, near
from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import Host, Mount, Process
from nearsocket.model.verdicts.binding import parse_policy
from nearsocket.model.verdicts.groups import groups, quoted, who
from nearsocket.model.verdicts.reading import because, refused, told, why

SHM = "/dev/shm"  # noqa: S108 - the mount that NCCL writes to, not a temporary file of ours


def judge_mounts(host: Host) -> Iterator[Finding]:
    """One finding for each mount with a policy, as a replica's ranks see it, then for such mounts of the host itself."""
    seen: set[str] = set()
    made = 0
    for group in groups(host):
        for rank in group.ranks:
            mount = rank.shm_mount
            if mount is not None and mount.policy:
                seen.add(mount.policy)
                made += 1
                subject = f"{group.subject}, {who(rank)}"
                yield judge_policy(subject, mount, near.of_process(host, rank), rank)
    for mount in host.mounts:
        if mount.policy and mount.point in _shm_points(host) and (mount.point != SHM or mount.policy not in seen):
            made += 1
            yield judge_policy(mount.point, mount, near.of_host(host))
    if not made:
        yield _none(host)


def judge_policy(subject: str, mount: Mount, near_nodes: Optional[frozenset[int]], rank: Optional[Process] = None) -> Finding:
    """One mount's policy against near nodes and, for a rank, against the nodes that its cpuset allows."""
    mode, nodes = parse_policy(mount.policy)
    evidence = [told(f"mount {mount.point}", f"{mount.kind} mpol={mount.policy}")]
    wanted = f"mpol=bind:{cpulist.render(near_nodes or ())}"
    bind = f"sudo mount -o remount,{wanted} {quoted(mount.point)}  # holds for new files: restart the engine"
    if not mode or (mode not in ("local", "default") and not nodes):
        return unknown(subject, f"the mount's policy {mount.policy} was not understood", evidence, f"findmnt {quoted(mount.point)}")
    if near_nodes is None:
        summary = f"mpol={mount.policy}, and which nodes are near is not known"
        return unknown(subject, summary, evidence, "nearsocket audit --near NODES")
    evidence.append(Evidence("near nodes", cpulist.render(near_nodes)))
    allowed = rank.mems_allowed if rank else frozenset()
    if rank:
        evidence.append(Evidence(f"/proc/{rank.pid}/status", f"Mems_allowed_list: {cpulist.render(allowed) or 'not read'}"))
    if nodes and allowed and not nodes & allowed:
        summary = f"mpol={mount.policy} is ignored: the cpuset allows node {cpulist.render(allowed)} only"
        remedy = (
            f"docker update --cpuset-mems={cpulist.render(near_nodes)} CONTAINER  # or give the mount a policy within the cpuset"
        )
        return failed(subject, summary, evidence, remedy)
    if mode in ("bind", "interleave", "weighted interleave") and nodes:
        far = nodes - near_nodes
        if not nodes & near_nodes:
            return failed(subject, f"mpol={mount.policy} puts every file on a far node", evidence, bind)
        if far:
            return warned(subject, f"mpol={mount.policy} allows far node {cpulist.render(far)}", evidence, bind)
        return passed(subject, f"mpol={mount.policy}, near", evidence)
    if nodes and not nodes & near_nodes:
        return failed(subject, f"mpol={mount.policy} prefers a far node", evidence, bind)
    return warned(
        subject, f"mpol={mount.policy} is a wish: a near node full of page cache sends files to a far one", evidence, bind
    )


def _shm_points(host: Host) -> set[str]:
    """The host's mounts that hold NCCL's files: /dev/shm, and what containers have mounted there."""
    bound = {source for c in host.containers for source, destination, _ in c.mounts if destination.rstrip("/") == SHM}
    return {SHM, *bound}


def _none(host: Host) -> Finding:
    for name in ("mounts", "processes"):
        if refused(host, name) and not (name == "mounts" and host.mounts):
            summary = f"whether a mount has a policy is not known: {why(host, name)}"
            return unknown(host.name, summary, because(host, name), "findmnt -t tmpfs")
    points = Evidence("mounts", "; ".join(f"{m.point} {','.join(m.options)}" for m in host.mounts if m.point == SHM) or f"no {SHM}")
    return not_applicable(host.name, "no mount of NCCL's files has a memory policy; the task's own decides", (points,))

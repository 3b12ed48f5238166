"""Where a rank's own memory can lie, told by what the kernel allows; pages are not counted (that grows with the process)."""

from __future__ import annotations

from nearsocket.model import cpulist
from nearsocket.model.finding import Status
from nearsocket.model.host import Host, Process
from nearsocket.model.near import of_process
from nearsocket.model.verdicts.binding import RankVerdict, memory_reach, parse_policy
from nearsocket.model.verdicts.groups import who


def judge_locality(host: Host, process: Process) -> RankVerdict:
    """Judge one rank's reachable memory nodes against its GPU's socket."""
    near, reach, name = of_process(host, process), memory_reach(host, process), who(process)
    if near is None:
        return RankVerdict(process, Status.UNKNOWN, f"{name}: the node of its GPU is not known")
    if reach is None:
        return RankVerdict(process, Status.UNKNOWN, f"{name}: its memory policy could not be read")
    nodes, at = f"node {cpulist.render(reach.nodes)}", f"node {cpulist.render(near)}"
    if not reach.nodes & near:
        return RankVerdict(process, Status.FAIL, f"{name} can take memory from {nodes} only, its GPU is at {at}")
    if reach.nodes <= near:
        return RankVerdict(process, Status.PASS, f"{name} can take memory from {nodes} only, near its GPU")
    mode, spread = parse_policy(process.policy)
    if "interleave" in mode and spread - near:
        return RankVerdict(
            process, Status.WARN, f"{name} spreads its memory over node {cpulist.render(spread)}, its GPU is at {at}"
        )
    return RankVerdict(process, Status.UNKNOWN, f"{name} may take memory from {nodes}; where its pages lie was not measured")

"""How much of /dev/shm NCCL's files need, against what the rank's own /dev/shm holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from nearsocket.model.finding import Evidence, Status
from nearsocket.model.host import Host, Process
from nearsocket.model.roles import BUFFSIZE_BYTES, PAGE_BYTES, POOL_SIZES, RING_BASE_BYTES
from nearsocket.model.text import brief
from nearsocket.model.verdicts.engine_env import lookup, outcome
from nearsocket.model.verdicts.groups import Group, who
from nearsocket.model.verdicts.placement import mib
from nearsocket.model.verdicts.transport import group_buffers

#: Channels of two ranks over SHM as NCCL 2.30.7 makes them by itself.
DEFAULT_CHANNELS = 2
#: Each rank receives from both neighbours of a channel's ring and tree.
FILES_PER_CHANNEL = 2


@dataclass(frozen=True)
class Room:
    """One rank's /dev/shm: status, phrase, evidence."""

    process: Process
    status: Status
    text: str
    evidence: tuple[Evidence, ...]


def ring_bytes(group: Group) -> int:
    """The size of one ring file, from NCCL_BUFFSIZE where the environment sets it, in whole pages."""
    simple = _number(lookup(group, "NCCL_BUFFSIZE").value) or BUFFSIZE_BYTES
    return (RING_BASE_BYTES + simple + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES + PAGE_BYTES


def needed_bytes(group: Group) -> tuple[int, str]:
    """What one communicator of this group takes, channels x 2 x ranks ring files and a proxy pool a rank, with the sum in words."""
    least, most = (_number(lookup(group, name).value) for name in ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"))
    channels = max(1, min(max(DEFAULT_CHANNELS, least or 0), most or least or DEFAULT_CHANNELS))
    ranks, ring = len(group.ranks), ring_bytes(group)
    files = channels * FILES_PER_CHANNEL * ranks
    pools = ranks * max(POOL_SIZES)
    words = (
        f"{files} ring buffers ({channels} channels x {FILES_PER_CHANNEL} x {ranks} ranks) of {mib(ring)} and {mib(pools)} of pools"
    )
    return files * ring + pools, words


def judge_room(host: Host, group: Group, process: Process) -> Room:
    """Judge the /dev/shm that this rank sees: files that are mapped prove that they fit, else the need is estimated."""
    size, free, name = process.shm_size_bytes, process.shm_free_bytes, who(process)
    need, words = needed_bytes(group)
    if size is None or free is None:
        return Room(process, Status.UNKNOWN, f"{name}: the size of its /dev/shm could not be read", ())
    mount = process.shm_mount
    options = brief(",".join(mount.options), 80) if mount else "mount not read"
    evidence = (
        Evidence(f"/proc/{process.pid}/root/dev/shm", f"{size} bytes, {free} free ({options})"),
        Evidence("estimate", f"{need} bytes: {words}"),
    )
    holds = size // ring_bytes(group)
    figure = f"{_amount(size)} with {_amount(free)} free, holds {holds} ring buffers; one communicator takes {mib(need)}"
    if group_buffers(host, group):
        if free < ring_bytes(group):
            return Room(process, Status.WARN, f"{name}: full, the next communicator fails ({figure})", evidence)
        status = Status.WARN if size < need else Status.PASS
        return Room(process, status, f"{name}: {figure}", evidence)
    if free >= need:
        return Room(process, Status.PASS, f"{name}: {figure}", evidence)
    # Files are sure to come where cuMem is off; else NCCL may do without them.
    status = Status.FAIL if outcome(group).status is Status.FAIL else Status.WARN
    return Room(process, status, f"{name}: {'too small' if size < need else 'filled by others'} ({figure})", evidence)


def _amount(count: int) -> str:
    return mib(count) if count < 4 << 30 else f"{count / (1 << 30):.1f} GiB"


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 and int(text) else None

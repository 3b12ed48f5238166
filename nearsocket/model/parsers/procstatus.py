"""/proc/PID/status: the lines about identity, capabilities, CPUs and memory nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.parsers import take

_CAP_SYS_NICE = 23  # include/uapi/linux/capability.h


@dataclass(frozen=True)
class ProcStatus:
    """What was read; None (empty for `nspid`) where the line is missing. `uid` is the effective one.

    `cpus` and `mems` are what the kernel allows the task now; `nspid`: its number in each PID namespace, ours first.
    """

    name: Optional[str] = None
    ppid: Optional[int] = None
    uid: Optional[int] = None
    cap_eff: Optional[int] = None
    cpus: Optional[frozenset[int]] = None
    mems: Optional[frozenset[int]] = None
    nspid: tuple[int, ...] = ()

    @property
    def sys_nice(self) -> Optional[bool]:
        """Whether CAP_SYS_NICE is effective."""
        return None if self.cap_eff is None else bool(self.cap_eff >> _CAP_SYS_NICE & 1)


def parse(text: str) -> ProcStatus:
    """The values of this text; lines that cannot be read count as missing."""
    rows: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            rows.setdefault(key.strip(), value.strip())
    uids = [take.number(part) for part in rows.get("Uid", "").split()]
    cap = rows.get("CapEff", "")
    nspid = [take.number(part, 1) for part in rows.get("NSpid", "").split()]
    return ProcStatus(
        name=rows.get("Name"),
        ppid=take.number(rows.get("PPid")),
        uid=uids[1] if len(uids) > 1 else None,
        cap_eff=int(cap, 16) if re.fullmatch(r"[0-9a-fA-F]{1,16}", cap) else None,
        cpus=take.cpus(rows.get("Cpus_allowed_list")) or None,
        mems=take.cpus(rows.get("Mems_allowed_list")) or None,
        nspid=tuple(pid for pid in nspid if pid is not None),
    )

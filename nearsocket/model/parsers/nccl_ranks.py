"""Which process and which rank wrote a line of NCCL's log, and whether one process works for two ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nearsocket.model.parsers.nccl_values import LogLine

ORIGIN = re.compile(
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*):(?P<pid>\d{1,10}):\d{1,10} \[(?P<device>-?\d{1,6})\] (?:\S+:\d+ )?(?:\(\S+\) )?NCCL "
)
RANK = re.compile(r"\brank (?P<rank>\d+) n[Rr]anks (?P<size>\d+)\b")
_COMM_ID = re.compile(r"\bcommId (?P<id>0x[0-9a-f]+)")
_SENDER = re.compile(r"\b(?:Channel|Ring) \d+(?:/\d+)? : (?P<rank>\d+)\[(?P<device>[0-9a-fA-F]+)\] -> \d+\[[0-9a-fA-F]+\] via ")


def process_of(line: LogLine) -> str:
    """The `host:pid` that wrote the line, empty where a prefix of NCCL's is missing."""
    found = ORIGIN.search(line.text)
    return f"{found['host']}:{found['pid']}" if found else ""


def shared_process(lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
    """Lines that show one process at work for two ranks.

    Either two ranks of one communicator id, or ranks on two CUDA devices, or channels that leave from two GPUs: SHM and P2P
    channels are announced by their sender. Several ranks on one device in one process are just its different groups.
    """
    by_comm: dict[tuple[str, str], dict[int, LogLine]] = {}
    by_device: dict[str, dict[tuple[int, str], LogLine]] = {}
    by_sender: dict[str, dict[str, LogLine]] = {}
    for line in lines:
        origin = ORIGIN.search(line.text) if " rank " in line.text or " via " in line.text else None
        if not origin:
            continue
        process = f"{origin['host']}:{origin['pid']}"
        rank, comm, sender = RANK.search(line.text), _COMM_ID.search(line.text), _SENDER.search(line.text)
        if rank and comm:
            by_comm.setdefault((process, comm["id"]), {}).setdefault(int(rank["rank"]), line)
        if rank:
            by_device.setdefault(process, {}).setdefault((int(rank["rank"]), origin["device"]), line)
        if sender:
            by_sender.setdefault(process, {}).setdefault(sender["device"], line)
    for ranks in by_comm.values():
        if len(ranks) > 1:
            return tuple(ranks.values())
    for places in by_device.values():
        if len({rank for rank, _ in places}) > 1 and len({device for _, device in places}) > 1:
            return tuple(places.values())
    for senders in by_sender.values():
        if len(senders) > 1:
            return tuple(senders.values())
    return ()

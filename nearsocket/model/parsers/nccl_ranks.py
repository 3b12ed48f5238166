"""Which process and which rank wrote a line of NCCL's log, and whether one process works for two ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nearsocket.model.parsers.nccl_values import LogLine

ORIGIN = re.compile(
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}):(?P<pid>\d{1,10}):\d{1,10} \[(?P<device>-?\d{1,6})\] "
    r"(?:\S{1,200}:\d{1,6} )?(?:\(\S{1,200}\) )?NCCL "
)
RANK = re.compile(r"\brank (?P<rank>\d{1,9}) n[Rr]anks \d{1,9}\b")
_COMM_ID = re.compile(r"\bcommId (?P<id>0x[0-9a-f]+)")
_BUS = re.compile(r"\bbusId (?P<id>[0-9a-f]+)\b")
_SENDER = re.compile(r"\b(?:Channel|Ring) \d+(?:/\d+)? : (?P<rank>\d+)\[(?P<device>[0-9a-fA-F]+)\] -> \d+\[[0-9a-fA-F]+\] via ")


def process_of(line: LogLine) -> str:
    """The `host:pid` that wrote the line, empty where a prefix of NCCL's is missing."""
    found = ORIGIN.search(line.text) if " NCCL " in line.text else None
    return f"{found['host']}:{found['pid']}" if found else ""


def own_lines(text: str, pids: frozenset[int]) -> str:
    """A log without the lines of processes of other numbers: it can hold earlier runs and other ranks."""
    found = ((ORIGIN.search(line) if " NCCL " in line else None, line) for line in text.splitlines())
    return "\n".join(line for origin, line in found if origin is None or int(origin["pid"]) in pids)


def shared_process(lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
    """Lines that show one process at work for two ranks.

    Either two ranks of one communicator id, or ranks on two GPUs (by bus id, else by CUDA device), or channels that leave
    from two GPUs: SHM and P2P channels are announced by their sender. Several ranks on one GPU in one process are just its
    different groups.
    """
    seen: dict[tuple[str, str], dict[str, LogLine]] = {}
    ranks: dict[str, set[str]] = {}
    for line in lines:
        origin = ORIGIN.search(line.text) if " NCCL " in line.text and (" rank " in line.text or " via " in line.text) else None
        if not origin:
            continue
        process = f"{origin['host']}:{origin['pid']}"
        for kind, value in _marks(line.text, origin["device"]):
            seen.setdefault((process, kind), {}).setdefault(value, line)
        rank = RANK.search(line.text)
        if rank:
            ranks.setdefault(process, set()).add(rank["rank"])
    for (process, kind), found in seen.items():
        if len(found) > 1 and (kind != "device" or len(ranks[process]) > 1):
            return tuple(dict.fromkeys(found.values()))
    return ()


def _marks(text: str, device: str) -> Iterator[tuple[str, str]]:
    """What must be one thing in a process that works for one rank: kind and value."""
    rank, sender = RANK.search(text), _SENDER.search(text)
    if rank:
        comm, bus = _COMM_ID.search(text), _BUS.search(text)
        yield "device", device
        if comm:
            yield f"rank of {comm['id']}", rank["rank"]
        if bus:
            yield "bus", bus["id"]
    if sender:
        yield "sender", sender["device"]

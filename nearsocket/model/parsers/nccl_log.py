"""NCCL's debug log (NCCL_DEBUG=INFO) as values. Messages of NCCL 2.18 to 2.30.7, behind any launcher's prefix.

Ray, MPI, torchrun, docker compose, kubectl and journald put a prefix before each line and several ranks write into one stream,
so nothing here rests on the start of a line, on their order or on the last line being whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.parsers.nccl_buffers import cumem_buffers, mmap_buffers, numa_lines
from nearsocket.model.parsers.nccl_ranks import ORIGIN, RANK, shared_process
from nearsocket.model.parsers.nccl_values import EnvLine, LogBuffer, LogLine, NcclLog, NodeLine, Transport
from nearsocket.model.parsers.text import clean

__all__ = ["EnvLine", "LogBuffer", "LogLine", "NcclLog", "NodeLine", "Transport", "looks_like", "messages", "parse", "told_by"]

_ENV = re.compile(r"\b(?P<name>NCCL_[A-Z0-9_]+) set by environment to (?P<value>.*\S)")
_VERSION = re.compile(
    r"\b(?:NCCL version |using nccl==)(?P<version>\d{1,3}\.\d{1,4}(?:\.\d{1,4})?)"
    r"(?:\S*?(?:\+cuda| compiled with CUDA )(?P<cuda>\d{1,3}\.\d{1,3}))?"
)
_DRIVER = re.compile(r"\bcudaDriverVersion (?P<version>\d{4,6})\b")
_VIA = re.compile(r"(?:-> ?-?\d+(?:\[[0-9a-fA-F]+\])?|\[(?:send|receive)\])(?: \[(?:send|receive)\])? via (?P<via>[A-Za-z].*)")
_AFFINITY = re.compile(
    r"\b(?P<set>Setting )?[Aa]ffinity for GPU (?P<gpu>\d{1,6}) (?:to|is) (?P<cpus>empty, ignoring|[0-9a-fA-Fx,-]+)"
)
#: What others append: old versions the communicator, Ray its count of equal lines.
_NOISE = re.compile(r" (?:comm 0x|\[repeated \d+x ).*")
#: Transport words that a log may end in; any other one on a last line without a line break may be half a word.
_WHOLE = {
    *("SHM/direct", "SHM/direct/direct", "direct shared memory", "P2P/direct pointer"),
    *("P2P/CUMEM", "P2P/CUMEM/read", "P2P/IPC", "P2P/IPC/read"),
}
#: From this version on `Setting affinity` prints ranges instead of hexadecimal words.
RANGES_SINCE = (2, 27)
#: A last line that ends here may have lost the node's second digit.
_HALF_NODE = re.compile(r"\bnuma -?\d*$")
FALLBACK = "cuMem host allocations do not appear to be working"
_MARKS = re.compile(r"\bNCCL (?:INFO|WARN|TRACE|version \d)|\bNCCL_[A-Z0-9_]+ set by environment to ")


def looks_like(text: str) -> int:
    """How many lines of the text are NCCL's."""
    return sum(1 for line in text.splitlines() if "NCCL" in line and _MARKS.search(clean(line)))


def parse(text: str) -> NcclLog:
    """Read a log. Lines that say nothing known are passed over; never raises."""
    return told_by(messages(text), not text or text[-1] in "\r\n")


def messages(text: str) -> list[LogLine]:
    """The log's messages: its lines without colours, those that two writes share cut in two."""
    return _messages([LogLine(number, clean(line)) for number, line in enumerate(text.splitlines(), 1)])


def told_by(lines: Sequence[LogLine], whole_end: bool = True) -> NcclLog:
    """What these messages say. `whole_end` tells whether the last one ended in a line break; never raises."""
    if not whole_end and _HALF_NODE.search(lines[-1].text):
        lines = lines[:-1]
    versions: list[str] = []
    builds: list[str] = []
    drivers: list[int] = []
    env: list[EnvLine] = []
    sources: list[tuple[str, LogLine]] = []
    fallback: list[LogLine] = []
    affinity: dict[int, Optional[str]] = {}
    masks: list[tuple[int, str]] = []
    warnings: list[LogLine] = []
    for line in lines:  # each message has a word of its own; looking for that first is ten times faster than the patterns
        found = _VERSION.search(line.text) if "NCCL version" in line.text or "nccl==" in line.text else None
        if found:
            versions.append(found["version"])
            sources.append(("version", line))
            if found["cuda"]:
                builds.append(found["cuda"])
        found = _DRIVER.search(line.text) if "cudaDriverVersion" in line.text else None
        if found:
            drivers.append(int(found["version"]))
            sources.append(("driver", line))
        found = _ENV.search(line.text) if "set by environment" in line.text else None
        if found:
            env.append(EnvLine(found["name"], re.sub(r"^(-?\d+)\.$", r"\1", _NOISE.sub("", found["value"]).rstrip()), line))
        if FALLBACK in line.text:
            fallback.append(line)
        found = _AFFINITY.search(line.text) if "ffinity for GPU" in line.text else None
        if found and found["set"]:
            masks.append((int(found["gpu"]), found["cpus"]))
        elif found:
            affinity[int(found["gpu"])] = _cpus(found["cpus"])
        if "NCCL WARN " in line.text:
            warnings.append(line)
    as_ranges = bool(versions) and _number(versions[0]) >= RANGES_SINCE
    for gpu, mask in masks:
        affinity[gpu] = _mask(mask, as_ranges)
    numa = tuple(numa_lines(lines))
    mmap, imported = mmap_buffers(lines)
    return NcclLog(
        versions=tuple(dict.fromkeys(versions)),
        cuda_builds=tuple(dict.fromkeys(builds)),
        drivers=tuple(dict.fromkeys(drivers)),
        env=tuple(env),
        transports=tuple(_transports(lines, whole_end)),
        mmap=mmap,
        imported=imported,
        cumem=tuple(cumem_buffers(lines)),
        numa=numa,
        fallback=tuple(fallback),
        affinity=tuple(sorted(affinity.items())),
        ranks=frozenset(
            int(found["rank"]) for line in lines if " rank " in line.text for found in [RANK.search(line.text)] if found
        ),
        shared_process=shared_process(lines),
        warnings=tuple(warnings),
        sources=tuple(sources),
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _messages(lines: Sequence[LogLine]) -> list[LogLine]:
    """The messages: two processes' writes can run together on one line, the second one's host name right after a word."""
    hosts = sorted(
        {found["host"] for line in lines if " NCCL " in line.text for found in [ORIGIN.search(line.text)] if found},
        key=len,
        reverse=True,
    )
    messages: list[LogLine] = []
    for line in lines:
        if line.text.count(" NCCL ") < 2:
            messages.append(line)
            continue
        starts = [_begin(found, hosts) for found in ORIGIN.finditer(line.text)]
        cuts = [0, *starts[1:], len(line.text)]
        messages += [LogLine(line.number, line.text[a:b]) for a, b in zip(cuts, cuts[1:])]
    return messages


def _begin(found: re.Match[str], hosts: Sequence[str]) -> int:
    known = next((host for host in hosts if found["host"].endswith(host)), found["host"])
    return found.end("host") - len(known)


def _cpus(text: str) -> Optional[str]:
    if text.startswith("empty"):
        return None
    try:
        return cpulist.render(cpulist.parse(text.strip(","))) or None
    except ValueError:
        return None


def _mask(text: str, as_ranges: bool) -> Optional[str]:
    """A CPU list from `Setting affinity`'s text: ranges, or words of 32 bits of which all but the first have eight digits."""
    words = text.strip(",").split(",")
    as_ranges = as_ranges or text.startswith("empty")
    hexadecimal = all(len(word.removeprefix("0x")) == 8 for word in words[1:]) and "-" not in text
    if not hexadecimal or as_ranges:
        return _cpus(text)
    try:
        return cpulist.render(cpulist.parse_mask(",".join(words))) or None
    except ValueError:
        return None


def _transports(lines: Sequence[LogLine], whole_end: bool) -> Iterable[Transport]:
    found = [
        Transport(_NOISE.sub("", match["via"]).strip(), line)
        for line in lines
        if " via " in line.text
        for match in [_VIA.search(line.text)]
        if match
    ]
    seen = {transport.word for transport in found[:-1]} | _WHOLE
    if found and not whole_end and found[-1].line is lines[-1] and found[-1].word not in seen:
        found.pop()  # the log ends inside this line; half a word is no transport
    return found

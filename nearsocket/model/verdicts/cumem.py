"""Whether cuMem holds NCCL's host buffers, and on which nodes, told from NCCL's own log.

NCCL takes cuMem for a shared host buffer only if `ncclCuMemEnable() && ncclCuMemHostEnable() && !legacy` (src/transport/shm.cc);
the variable is only the first of the three. Thresholds: src/misc/cudawrap.cc of tags 2.23.4-1 to 2.30.7-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist, nccldebug
from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, passed, unknown
from nearsocket.model.host import BufferRole
from nearsocket.model.parsers.nccl_log import LogLine, NcclLog
from nearsocket.model.roles import role_of
from nearsocket.model.verdicts.placement import NAME_NEAR

CUMEM_ID = "nccl.cumem-in-force"
#: First version with cuMem for host memory; there it is off unless NCCL_CUMEM_HOST_ENABLE=1.
HOST_PATH_SINCE = (2, 23)
#: First version that turns it on by itself.
HOST_PATH_DEFAULT_SINCE = (2, 24)
#: CUDA version of the driver from which on it is on by itself, and below which it cannot be had.
DRIVER_DEFAULT, DRIVER_LEAST = 12060, 12020
#: NCCL's build: below CUDA 12.2 the host path is not compiled in.
BUILD_LEAST = (12, 2)
SHOWN_LINES = 8
#: What the ranks that do not use cuMem warn of when their peers do.
_TORN = re.compile(r"Error while attaching to shared memory segment .*\(size 0\)")

SHOW_MORE = f"{nccldebug.WORDS} {nccldebug.FILE}=/tmp/nccl.%h.%p COMMAND  # start the engine so, send one request, judge those logs"


@dataclass(frozen=True)
class Obstacle:
    """One reason why cuMem is not in force: a stable `name`, its text, what to do, and the log's lines, if any."""

    name: str
    text: str
    remedy: str
    lines: tuple[LogLine, ...] = ()


def parse_version(text: str) -> tuple[int, ...]:
    """`2.30.7` as numbers, for comparing; an empty tuple where it is not of that form."""
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def version_obstacle(version: Optional[str], host_enable: bool = False, lines: tuple[LogLine, ...] = ()) -> Optional[Obstacle]:
    """Why this NCCL version keeps host buffers in /dev/shm; None where it does not, or the version is not known.

    `host_enable`: NCCL_CUMEM_HOST_ENABLE is set to 1, which 2.23 needs.
    """
    number = parse_version(version) if version else ()
    if not number:
        return None
    if number[:2] < HOST_PATH_SINCE:
        text = f"NCCL {version} has no cuMem for host memory (it came with 2.23)"
    elif number[:2] < HOST_PATH_DEFAULT_SINCE and not host_enable:
        text = f"NCCL {version} has cuMem for host memory off unless told (on by itself from 2.24)"
    else:
        return None
    return Obstacle(
        "nccl-version",
        text,
        "pip install --upgrade 'nvidia-nccl-cu12>=2.26.5'  # in the engine's environment; or bind the engine to the near node",
        lines,
    )


def driver_obstacle(cuda: Optional[int], host_enable: bool = False, lines: tuple[LogLine, ...] = ()) -> Optional[Obstacle]:
    """Why this driver (its CUDA version as 12040) keeps host buffers in /dev/shm; None where it does not or is not known."""
    if cuda is None or cuda >= DRIVER_DEFAULT or (host_enable and cuda >= DRIVER_LEAST):
        return None
    shown = f"{cuda // 1000}.{cuda % 1000 // 10}"
    text = f"the driver is for CUDA {shown}; NCCL turns cuMem for host memory on by itself only from 12.6"
    return Obstacle(
        "driver-version",
        text,
        "nvidia-smi | grep -o 'CUDA Version: [0-9.]*'  # install driver 560 or newer, which is for CUDA 12.6",
        lines,
    )


def obstacles(log: NcclLog) -> tuple[Obstacle, ...]:
    """Every reason that the log gives why host buffers of this run are not cuMem's, each its own."""
    found: list[Optional[Obstacle]] = []
    off = tuple(entry.line for entry in log.values("NCCL_CUMEM_ENABLE") if entry.value == "0")
    if off:
        text = "NCCL_CUMEM_ENABLE is 0"
        found.append(
            Obstacle(
                "variable",
                text,
                "export NCCL_CUMEM_ENABLE=1  # in the engine's environment (docker run -e); SGLang sets 0 unless told",
                off,
            )
        )
    host = log.values("NCCL_CUMEM_HOST_ENABLE")
    host_off = tuple(entry.line for entry in host if entry.value == "0")
    host_on = bool(host) and not host_off
    if host_off:
        text = "NCCL_CUMEM_HOST_ENABLE is 0"
        found.append(
            Obstacle(
                "host-enable", text, "unset NCCL_CUMEM_HOST_ENABLE  # and take it out of /etc/nccl.conf and ~/.nccl.conf", host_off
            )
        )
    version = min(log.versions, key=parse_version, default=None)
    found.append(version_obstacle(version, host_on, _told(log, "version")))
    build = min((parse_version(text) for text in log.cuda_builds), default=BUILD_LEAST)
    if build < BUILD_LEAST and not (version and parse_version(version)[:2] < HOST_PATH_SINCE):
        text = f"this NCCL was built for CUDA {'.'.join(map(str, build))}; cuMem for host memory needs a build for 12.2 or newer"
        found.append(
            Obstacle(
                "nccl-build",
                text,
                "pip install --upgrade nvidia-nccl-cu12  # in the engine's environment: a build for CUDA 12.2 or newer",
                _told(log, "version"),
            )
        )
    found.append(driver_obstacle(min(log.drivers, default=None), host_on, _told(log, "driver")))
    if log.fallback:
        text = (
            "NCCL's probe of cuMem host memory failed and it fell back to /dev/shm (usual cause: a container without CAP_SYS_NICE)"
        )
        remedy = "docker run --cap-add SYS_NICE ...  # and as root inside"
        found.append(Obstacle("sys-nice", text, remedy, log.fallback))
    if log.shared_process:
        text = "two ranks share one process; NCCL then always uses /dev/shm"
        found.append(
            Obstacle(
                "shared-process",
                text,
                "torchrun --nproc-per-node=2 COMMAND  # one process for each GPU (nccl-tests: mpirun -np 2 ... -g 1)",
                log.shared_process,
            )
        )
    torn = tuple(line for line in log.warnings if _TORN.search(line.text))
    if torn:
        text = "ranks disagree on where host buffers are (a segment of size 0); usual cause: a node without memory or without CPUs"
        found.append(
            Obstacle(
                "ranks-disagree",
                text,
                "numactl -H  # give each node memory and CPUs, or set NCCL_CUMEM_HOST_ENABLE=0 and bind",
                torn,
            )
        )
    return tuple(obstacle for obstacle in found if obstacle is not None)


def is_direct(word: str) -> bool:
    """Whether GPUs exchange data past host memory: P2P of any kind, or NVLink's own."""
    return word.upper().startswith(("P2P/", "NVLS", "NVLINK"))


def direct_only(log: NcclLog) -> bool:
    """Whether every transport in the log is P2P or NVLink, and no ring file in /dev/shm contradicts that."""
    rings = any(role_of(buffer.size_bytes) is BufferRole.RING for buffer in (*log.mmap, *log.imported))
    return bool(log.transports) and all(is_direct(transport.word) for transport in log.transports) and not rings


def judge_log(log: NcclLog, subject: str = "NCCL log", source: str = "line") -> Finding:
    """`nccl.cumem-in-force` from a log alone: buffers seen in cuMem and no reason against it pass; every reason is named.

    `source` prefixes the evidence's line numbers (`line 12`). A variable that the log does not show may still be set, and one
    that is set to 1 proves nothing by itself: both are unknown as long as no buffer is seen.
    """
    if direct_only(log):
        return not_applicable(
            subject, f"every transport is P2P or NVLink ({_words(log)}): no ring buffer in host memory", _transports(log, source)
        )
    reasons = obstacles(log)
    shm = (*log.mmap, *log.imported)
    buffers = f"{_count(len(shm), 'ring buffer')} in /dev/shm"
    if log.cumem and not shm and not _decisive(reasons):
        lines = _evidence((buffer.line for buffer in log.cumem), source)
        return passed(subject, f"in force: {_count(len(log.cumem), 'host buffer')} in cuMem, none in /dev/shm", lines)
    if reasons:
        seen = f"; {buffers}" if shm else ""
        summary = f"not in force: {'; '.join(reason.text for reason in reasons)}{seen}"
        lines = _evidence((line for reason in reasons for line in reason.lines[:2]), source) + _evidence(
            (b.line for b in shm), source
        )
        return failed(subject, summary, lines, "\n".join(dict.fromkeys(reason.remedy for reason in reasons)))
    if shm:
        summary = f"not in force: {buffers}; the log does not say why: {_possible(log)}"
        return failed(subject, summary, _evidence((b.line for b in shm), source), SHOW_MORE)
    enabled = log.values("NCCL_CUMEM_ENABLE")
    if enabled:
        value = enabled[0].value
        summary = f"NCCL_CUMEM_ENABLE is {value} and nothing speaks against it, but no host buffer is shown"
        return unknown(subject, summary, _evidence((*(entry.line for entry in enabled), *log.warnings), source), SHOW_MORE)
    summary = "neither NCCL_CUMEM_ENABLE nor a host buffer is shown; a variable that is not shown may still be set"
    return unknown(subject, summary, (*_transports(log, source), *_evidence(log.warnings, source)), SHOW_MORE)


def log_placement(log: NcclLog, near: Optional[frozenset[int]], subject: str = "NCCL log", source: str = "line") -> Finding:
    """`nccl.buffer-placement` from a log: every `numa N` line near is proof, a far one fails, none is unknown.

    The driver allocates strictly on that node (FIELD_NOTES 2), so these lines are proof. Buffers in /dev/shm tell no node here.
    """
    if direct_only(log):
        return not_applicable(
            subject, f"every transport is P2P or NVLink ({_words(log)}): no ring buffer in host memory", _transports(log, source)
        )
    nodes = cpulist.render(line.node for line in log.numa if line.node >= 0)
    shown = _evidence((line.line for line in log.numa), source)
    far = [line for line in log.numa if near is not None and line.node >= 0 and line.node not in near]
    if far:
        where = f"node {cpulist.render(line.node for line in far)}"
        summary = (
            f"far: {len(far)} of {_count(len(log.numa), 'cuMem host buffer')} on {where}, GPUs on node {cpulist.render(near or ())}"
        )
        remedy = "cat /sys/bus/pci/devices/*/numa_node  # the driver takes the node from the GPU, and 0 where it is unknown"
        return failed(subject, summary, _evidence((line.line for line in far), source), remedy)
    if any(line.node < 0 for line in log.numa):
        lines = [line.line for line in log.numa if line.node < 0]
        return unknown(
            subject,
            f"{len(lines)} of {_count(len(log.numa), 'cuMem host buffer')} on no node: the driver knew none for the GPU",
            _evidence(lines, source),
            "cat /sys/bus/pci/devices/*/numa_node  # the driver takes the node from the GPU",
        )
    if log.numa and near is None:
        return unknown(
            subject,
            f"{_count(len(log.numa), 'cuMem host buffer')} on node {nodes}; it is not known which nodes are near the GPUs",
            shown,
            NAME_NEAR,
        )
    shm = (*log.mmap, *log.imported)
    if shm:
        summary = f"{_count(len(shm), 'ring buffer')} in /dev/shm; NCCL's log does not tell their node"
        return unknown(
            subject,
            summary,
            _evidence((buffer.line for buffer in shm), source),
            "sudo cat /proc/PID/numa_maps > FILE  # of each rank, and judge those files",
        )
    if log.numa:
        return passed(subject, f"near: {_count(len(log.numa), 'cuMem host buffer')}, all on node {nodes}", shown)
    return unknown(
        subject,
        "no `numa N` line: the log does not tell where host buffers lie",
        _evidence((b.line for b in log.cumem), source),
        SHOW_MORE,
    )


def _decisive(reasons: Iterable[Obstacle]) -> bool:
    """Whether a reason holds even though cuMem buffers are seen: another rank's. Version and driver are refuted by a buffer."""
    return any(reason.name not in {"nccl-version", "nccl-build", "driver-version"} for reason in reasons)


def _possible(log: NcclLog) -> str:
    """What can be the reason where the log names none, leaving out what the log refutes."""
    told = []
    if not log.values("NCCL_CUMEM_ENABLE"):
        told.append("NCCL_CUMEM_ENABLE is 0 (SGLang's default)")
    if not log.versions:
        told.append("NCCL is older than 2.24")
    if not log.drivers:
        told.append("the driver is older than CUDA 12.6")
    if not log.values("NCCL_CUMEM_HOST_ENABLE"):
        told.append("NCCL_CUMEM_HOST_ENABLE is 0")
    told += ["the container lacks CAP_SYS_NICE", "two ranks share one process"]
    return ", or ".join(told)


def _told(log: NcclLog, kind: str) -> tuple[LogLine, ...]:
    line = log.line_of(kind)
    return (line,) if line else ()


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _words(log: NcclLog) -> str:
    return ", ".join(sorted({transport.word for transport in log.transports}))


def _transports(log: NcclLog, source: str) -> tuple[Evidence, ...]:
    first = {transport.word: transport.line for transport in reversed(log.transports)}
    return _evidence(first.values(), source)


def _evidence(lines: Iterable[LogLine], source: str) -> tuple[Evidence, ...]:
    """The first lines as evidence, each once."""
    distinct = dict.fromkeys(lines)
    return tuple(Evidence(f"{source} {line.number}", line.text.strip()) for line in list(distinct)[:SHOWN_LINES])

"""What an NCCL log says, as values; `nccl_log.parse` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class LogLine:
    """One line: its number from 1 and its text without colours."""

    number: int
    text: str


@dataclass(frozen=True)
class EnvLine:
    """One variable as one process reported it."""

    name: str
    value: str
    line: LogLine


@dataclass(frozen=True)
class LogBuffer:
    """One host buffer. `file` is set for /dev/shm, `node` for cuMem where the allocation's line was in the log."""

    size_bytes: int
    line: LogLine
    file: Optional[str] = None
    node: Optional[int] = None


@dataclass(frozen=True)
class NodeLine:
    """One `CUMEM Host Alloc ... numa N` line: the driver allocates strictly on that node."""

    node: int
    size_bytes: int
    line: LogLine


@dataclass(frozen=True)
class Transport:
    """One connection's words after `via`."""

    word: str
    line: LogLine


@dataclass(frozen=True)
class NcclLog:
    """What an NCCL log says. Tuples are in the log's order; `affinity` maps a GPU index to a CPU list (None: empty, ignored).

    `mmap` and `cumem` are buffers of 1 MiB or more, each file or allocation once; `imported` are mappings of a peer's file.
    `shared_process` are lines that show two ranks in one process.
    """

    versions: tuple[str, ...]
    cuda_builds: tuple[str, ...]
    drivers: tuple[int, ...]
    env: tuple[EnvLine, ...]
    transports: tuple[Transport, ...]
    mmap: tuple[LogBuffer, ...]
    imported: tuple[LogBuffer, ...]
    cumem: tuple[LogBuffer, ...]
    numa: tuple[NodeLine, ...]
    fallback: tuple[LogLine, ...]
    affinity: tuple[tuple[int, Optional[str]], ...]
    ranks: frozenset[int]
    shared_process: tuple[LogLine, ...]
    warnings: tuple[LogLine, ...]
    sources: tuple[tuple[str, LogLine], ...] = ()

    @property
    def version(self) -> Optional[str]:
        """The first version named."""
        return self.versions[0] if self.versions else None

    def values(self, name: str) -> tuple[EnvLine, ...]:
        """Every report of that variable."""
        return tuple(entry for entry in self.env if entry.name == name)

    def line_of(self, kind: str) -> Optional[LogLine]:
        """The first line that told `version` or `driver`."""
        return next((line for name, line in self.sources if name == kind), None)

    @property
    def cumem_nodes(self) -> tuple[int, ...]:
        """The nodes of the cuMem buffers, ascending."""
        return tuple(sorted({buffer.node for buffer in self.cumem if buffer.node is not None}))

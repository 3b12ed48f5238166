"""What NCCL does to host memory, in order, with the lines that it wrote on two real GPUs (versions 2.28.9 and 2.30.7).

`Rank` is one rank of one communicator. Its steps are called by whoever holds all ranks together: init, allocate, attach, unlink.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from . import faults, memory
from .gpus import Gpu
from .memory import Shared
from .nccllog import Log

CHANNELS = 4
#: A receive buffer is NCCL_BUFFSIZE and the buffers of the other two protocols, measured with BUFFSIZE of 1, 4 and 8 MiB.
BUFFSIZE, OTHER_PROTOCOLS = 4 << 20, 5_443_584
CONTROL, POOL = 4096, 34_210_176
GRANULARITY = 2 << 20
FALLBACK = (
    "cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation. "
    "This could be due to the container runtime disabling NUMA support. "
    "To disable this warning, set NCCL_CUMEM_HOST_ENABLE=0"
)


@dataclass(frozen=True)
class Export:
    """One buffer that a neighbour maps: channel, whether it is a ring's, size, and its path, or none for memory by descriptor."""

    to: int
    channel: int
    ring: bool
    size: int
    path: Optional[str]


@dataclass
class Rank:
    """One rank's buffers and log. `shared_process`: other ranks live in this process, which NCCL calls legacy."""

    rank: int
    count: int
    gpu: Gpu
    log: Log
    environ: Mapping[str, str]
    shared_process: bool = False
    device: Optional[int] = None
    own: list[tuple[Export, Shared]] = field(default_factory=list)
    imported: list[Shared] = field(default_factory=list)
    pool: list[Shared] = field(default_factory=list)
    communicator: str = ""
    connected: bool = False
    host_cumem: bool = False

    @property
    def cumem(self) -> bool:
        """Whether the variable has cuMem on; where it is unset NCCL decides, and does so for it on these GPUs."""
        return self.environ.get("NCCL_CUMEM_ENABLE", "1") != "0"

    @property
    def ring_size(self) -> int:
        """A receive buffer's payload in bytes."""
        return int(self.environ.get("NCCL_BUFFSIZE", BUFFSIZE)) + OTHER_PROTOCOLS

    def init(self) -> None:
        """ncclCommInitRankConfig. With cuMem off the caller goes on with allocate at once, else at the first collective."""
        say = self._info
        say("INIT", f"NCCL version {self.log.version}+cuda13.0 (stand-in: no GPU here)")
        say("INIT", "cudaDriverVersion 13000")
        host = self.environ.get("NCCL_CUMEM_HOST_ENABLE")
        if host is not None:
            say("ENV", f"NCCL_CUMEM_HOST_ENABLE set by environment to {host}.")
        head = f"[Rank {self.rank}] ncclCommInitRankConfig" if self.log.newer else "ncclCommInitRankConfig"
        communicator = f"comm 0x{random.getrandbits(30):08x}0 rank {self.rank} nranks {self.count}"
        communicator += f" cudaDev {self._dev} nvmlDev {self.gpu.index}"
        communicator += f" busId {self.gpu.bus_id:x} commId 0x{random.getrandbits(60):x}"
        say("INIT", f"{head} {communicator} - Init START")
        if "NCCL_CUMEM_ENABLE" in self.environ:
            say("ENV", f"NCCL_CUMEM_ENABLE set by environment to {self.environ['NCCL_CUMEM_ENABLE']}.")
        self.host_cumem = self._probe(host)
        near, mine = self.gpu.cpus, sorted(os.sched_getaffinity(0))
        used = sorted(set(near) & set(mine))
        shown = "empty, ignoring." if not used else f"{_ranges(used)}."
        say(
            "INIT",
            f"ncclTopoGetCpuAffinity: Affinity for GPU {self._dev} is {shown} "
            f"(GPU affinity = {_ranges(near)} ; CPU affinity = {_ranges(mine)}).",
        )
        say(
            "INIT",
            f"comm 0x{random.getrandbits(30):x} rank {self.rank} nRanks {self.count} nNodes 1 "
            f"localRanks {self.count} localRank {self.rank} MNNVL 0",
        )
        for channel in range(CHANNELS):
            say("INIT", f"Channel {channel:02}/{CHANNELS:02} : {' '.join(map(str, range(self.count)))}")
        self.communicator = communicator
        if self.cumem:
            self._complete()

    def _probe(self, host: Optional[str]) -> bool:
        """ncclCuMemHostEnable: off by variable or in a shared process; else tried, since a container's filter may forbid it."""
        if not self.cumem or host == "0" or self.shared_process:
            return False
        if memory.may_bind(max(self.gpu.node, 0)):
            return True
        self._info("INIT", FALLBACK)
        return False

    def allocate(self) -> list[Export]:
        """Make the buffers that the neighbours map: receive buffers for the previous rank, control files for the next."""
        before, after = (self.rank - 1) % self.count, (self.rank + 1) % self.count
        for number in range(2 * CHANNELS):
            ring = number < CHANNELS
            kind = "recv" if ring else "send"
            self._info("INIT|PROXY", f"New proxy {kind} connection {number} from local rank {self.rank}, transport 1")
            size = self.ring_size if ring else CONTROL
            shared = self._make(size, ring)
            self.own.append((Export(before if ring else after, number % CHANNELS, ring, size, shared.path), shared))
            if not ring:
                self._channel(number - CHANNELS, after)
        if not self.cumem:
            file = memory.make_file(POOL, self._cpus(False))
            self._info("ALLOC", f"{self._open_place}Allocated {POOL + 4} bytes of shared memory in {file.path}")
            self.pool = [file, memory.map_again(file)]
        return [export for export, _shared in self.own]

    def _make(self, size: int, ring: bool) -> Shared:
        if self.host_cumem:
            whole = -(-size // GRANULARITY) * GRANULARITY
            node = max(self.gpu.node, 0)
            shared = memory.make_near(whole, node, self._open_device(), ring)
            place = "transport/shm.cc:317 (ncclShmAllocateShareableBuffer) " if self.log.newer else ""
            self._info(
                "ALLOC_HOST" if self.log.newer else "ALLOC",
                f"{place}CUMEM Host Alloc Size {whole} pointer 0x{shared.address:x} handle {random.getrandbits(46):x} "
                f"numa {node} dev {self._dev} granularity {GRANULARITY}",
            )
            self._info("SHM", f"CUMEM allocated shareable buffer 0x{shared.address:x} size {size}")
            return shared
        try:
            shared = memory.make_file(size, self._cpus(ring), ring)
        except OSError as error:
            self.log.warn(
                self._dev,
                "misc/shmutils.cc:87",
                f"Error: failed to extend /dev/shm/nccl- to {size + 4} bytes, error: {error.strerror} ({error.errno})",
            )
            raise
        self._info("ALLOC", f"{self._open_place}Allocated {size + 4} bytes of shared memory in {shared.path}")
        self._info("SHM", f"MMAP allocated shareable host buffer {shared.path} size {size} ptr 0x{shared.address:x}")
        return shared

    def _open_device(self) -> Optional[int]:
        """A descriptor for one allocation of the stand-in module, None where the module is not there."""
        return None if self.device is None else os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)

    def _cpus(self, ring: bool) -> tuple[list[int], ...]:
        """From which CPUs a file is allocated: NCCL's proxy thread runs on the GPU's CPUs. Faults move ring files away."""
        mine = os.sched_getaffinity(0)
        near = [cpu for cpu in self.gpu.cpus if cpu in mine]
        away = [cpu for cpu in mine if cpu not in self.gpu.cpus]
        if ring and away and faults.is_on("far"):
            return (sorted(away),)
        if ring and near and away and faults.is_on("split"):
            return near, sorted(away)
        return (near,) if near else ()

    def _channel(self, channel: int, peer: int) -> None:
        word = "SHM/direct" if self.log.newer else "SHM/direct/direct"
        self._info("INIT|P2P", f"Channel {channel:02} : {self.rank}[{self._dev}] -> {peer}[{peer}] via {word}")

    def attach(self, owner: int, export: Export, fd: Optional[int]) -> None:
        """Map a neighbour's buffer: a file by its path, memory by its descriptor."""
        if export.path is not None:
            shared = memory.open_file(export.path, export.size + 4, export.ring)
            self._info("SHM", f"MMAP imported shareable host buffer {export.path} size {export.size} ptr 0x{shared.address:x}")
        elif fd is not None:
            shared = memory.open_near(fd, -(-export.size // GRANULARITY) * GRANULARITY, export.ring)
            self._info(
                "SHM",
                f"CUMEM imported shareable host buffer from proxyRank {owner} size {export.size} "
                f"ptr 0x{shared.address:x}, granularity {GRANULARITY}",
            )
        else:
            raise ValueError("a buffer has a path or a descriptor")
        self.imported.append(shared)

    def unlink(self) -> None:
        """Take the files' names away once the neighbours have mapped them; the memory stays until the last process goes."""
        for shared in [*(shared for _export, shared in self.own), *self.pool[:1]]:
            if shared.path is not None:
                Path(shared.path).unlink()
        self.connected = True
        self._info("INIT", "Connected all rings, use ring PXN 0 GDR 1")
        if not self.cumem:
            self._complete()

    def _complete(self) -> None:
        self._info("INIT", f"ncclCommInitRankConfig {self.communicator} - Init COMPLETE")

    def far_share(self) -> float:
        """The share of ring pages that lie away from this rank's GPU, by move_pages over its own buffers; 0 where none is there."""
        rings = [shared for _export, shared in self.own if shared.ring] + [shared for shared in self.imported if shared.ring]
        total = far = 0
        for shared in rings:
            for node, pages in memory.places(shared).items():
                total += pages
                far += pages if node != self.gpu.node else 0
        return far / total if total else 0.0

    @property
    def _open_place(self) -> str:
        return "os/linux.cc:799 (ncclOsShmOpen) " if self.log.newer else ""

    @property
    def _dev(self) -> int:
        return self.rank

    def _info(self, subsystems: str, text: str) -> None:
        self.log.info(subsystems, self._dev, text)


def _ranges(cpus: list[int]) -> str:
    """`0-3,8` of sorted numbers; nothing for none."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)

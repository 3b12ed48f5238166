"""The findings that only a proof of a start gives (docs/verify.md), for documentation; verdicts/startfacts.py judges them."""

from __future__ import annotations

from nearsocket.model.check import Afterwards

_WHERE = (
    "Judged at a start, by the watch and by `nearsocket verify`, in "
    "[nearsocket/model/verdicts/startfacts.py](../../nearsocket/model/verdicts/startfacts.py)."
)
START_FINDINGS = (
    Afterwards(
        "engine.rank-count",
        "A process of the replica works on each GPU that the plan gave it.",
        """**Judged**: NVML's list of processes on the planned GPUs, against the replica's control groups. No name is asked.

**Why**: an engine's API can go on answering when a worker has died.

- **pass**: each planned GPU is held by the replica.
- **warn**: it also works on a GPU that the plan did not give it.
- **fail**: no process of it holds a planned GPU.
- **unknown**: NVML names no process, and fewer ranks run than the plan has GPUs.

**Remedy**: the unit's journal; a restart.""",
        "engine",
        where=_WHERE,
    ),
    Afterwards(
        "nccl.transport",
        "The ranks of one host exchange data directly or through host memory, not through the network.",
        """**Judged**: the words after `via` in NCCL's log; without one, whether ring buffers are mapped.

- **pass**: P2P or SHM, in every rank's log; or ring buffers are mapped.
- **warn**: NET between ranks of one host: slower than either.
- **unknown**: no transport is named, or not every rank's log was found whole.
- **not-applicable**: no buffers in host memory are needed.

**Remedy**: NCCL_SHM_DISABLE and NCCL_P2P_DISABLE, and the GPUs' P2P table.""",
        "nccl",
        where=_WHERE,
    ),
    Afterwards(
        "nccl.affinity",
        "NCCL keeps each rank's threads on CPUs of its GPU's socket.",
        """**Judged**: the CPUs in NCCL's own line on affinity; where it says `empty, ignoring`, those that the rank may run on.

- **pass**: all of them are on the socket of the rank's GPU.
- **warn**: some are not.
- **unknown**: no log says it, or the GPU's node is not known.
- **not-applicable**: one socket.

**Remedy**: bind the engine.""",
        "nccl",
        where=_WHERE,
    ),
)

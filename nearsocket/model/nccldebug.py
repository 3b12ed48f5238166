"""What NCCL has to be told so that its log proves transports and host buffers: one list for units, probes and remedies."""

from __future__ import annotations

#: ALLOC up to 2.30.4, ALLOC_HOST from 2.30.7.
LEVEL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,BOOTSTRAP,SHM,ALLOC,ALLOC_HOST"}
FILE = "NCCL_DEBUG_FILE"
#: In a command line, in front of the command.
WORDS = " ".join(f"{name}={value}" for name, value in LEVEL.items())


def variables(folder: str) -> dict[str, str]:
    """The variables of a start that logs into that folder, a file a process."""
    return {**LEVEL, FILE: f"{folder}/nccl.%h.%p"}

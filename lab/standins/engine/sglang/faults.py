"""Faults by files: a file of a known name in the faults folder switches one on, removing it switches it off."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

#: `far` and `split`: where ring files are made. `legacy`: both ranks in one process. `dead-rank`: the rank named in the file ends
#: after the connection. `hang-health`: /health answers nobody. `slow-start`: seconds in the file before the server listens.
NAMES = ("far", "split", "legacy", "dead-rank", "hang-health", "slow-start")


def folder() -> Path:
    """NEARSOCKET_STANDIN_FAULTS, else the folder that the lab's machines share with their containers."""
    return Path(os.environ.get("NEARSOCKET_STANDIN_FAULTS", "/run/nearsocket-standin/faults"))


def is_on(name: str) -> bool:
    """Whether that fault is switched on now."""
    return (folder() / name).exists()


def number(name: str) -> Optional[int]:
    """The number in the fault's file; 0 where the file is empty, None where the fault is off. Raises ValueError for other text."""
    try:
        text = (folder() / name).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    return int(text) if text else 0

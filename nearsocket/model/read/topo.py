"""The rows of `nvidia-smi topo -m`, in the shape that GPUs are merged from."""

from __future__ import annotations

from nearsocket.model.read.gpus import TopoRow
from nearsocket.model.read.notes import Notes
from nearsocket.model.snapshot import Snapshot


def rows(snapshot: Snapshot, notes: Notes) -> tuple[TopoRow, ...]:
    return ()

"""The rows of `nvidia-smi topo -m`, in the shape that GPUs are merged from."""

from __future__ import annotations

from nearsocket.model.parsers import topology
from nearsocket.model.read.gpus import TopoRow
from nearsocket.model.read.notes import Notes, quoted
from nearsocket.model.snapshot import Snapshot


def rows(snapshot: Snapshot, notes: Notes) -> tuple[TopoRow, ...]:
    """The GPUs' rows; none, and a note with the line, where the table cannot be read with certainty."""
    text = snapshot.text("nvidia.topo")
    if not text.strip():
        return ()
    try:
        table = topology.parse(text)
    except topology.TopologyError as error:
        notes.add("nvidia.topo", f"not used: line {error.number} is not certain: {quoted(error.line.strip())}")
        return ()
    return tuple(TopoRow(row.index, row.numa_text if row.nodes else None, row.cpus) for row in table.gpus)

"""numactl as a second witness: what it tells otherwise than sysfs is a note."""

from __future__ import annotations

import pytest

from nearsocket.model.host import Node
from nearsocket.model.read.crosscheck import numactl
from nearsocket.model.read.notes import Notes
from tests import build

TEXT = """available: 2 nodes (0-1)
node 0 cpus: 0 1
node 0 size: 100 MB
node 0 free: 50 MB
node 1 cpus: 2 3
node 1 size: 100 MB
node 1 free: 50 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""
NODES = (build.node(0, cpus=frozenset({0, 1})), build.node(1, cpus=frozenset({2, 3})))


def notes(text: str, nodes: tuple[Node, ...] = NODES) -> tuple[str, ...]:
    found = Notes()
    numactl(text, nodes, found)
    return found.lines()


def test_agreement_and_an_empty_witness_say_nothing() -> None:
    assert notes(TEXT) == notes("") == notes(TEXT, ()) == ()


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("node 1 cpus: 2 3", "node 1 cpus: 2", "numactl: gives node 1 the CPUs 2, sysfs 2-3"),
        ("  1:  21  10", "  1:  31  10", "numactl: gives node 1 the distances (31, 10), sysfs (21, 10)"),
        ("node 1 size: 100 MB", "", "numactl: not compared with sysfs: line "),
        (TEXT, "No NUMA available on this system", "numactl: says that there is no NUMA, sysfs has 2 nodes"),
        (
            TEXT,
            "available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 1 MB\nnode 0 free: 1 MB\n",
            "numactl: has the nodes 0, sysfs 0-1",
        ),
    ],
)
def test_what_it_tells_otherwise_is_a_note(before: str, after: str, wanted: str) -> None:
    (note,) = notes(TEXT.replace(before, after))
    assert note.startswith(wanted)

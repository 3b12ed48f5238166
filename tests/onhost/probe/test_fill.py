"""Memory of a node: ranks bound to it, and page cache that fills it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearsocket.model.errors import NearsocketError
from nearsocket.model.parsers import zoneinfo
from nearsocket.onhost.probe import fill
from nearsocket.onhost.probe.memory import bind_memory


def test_a_bound_rank_takes_memory_from_its_nodes_alone() -> None:
    script = (
        "from nearsocket.onhost.probe.memory import bind_memory; bind_memory((0,));"
        "import mmap; held = mmap.mmap(-1, 1 << 16); held[0] = 1; print(open('/proc/self/numa_maps').readline())"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "bind:0"


@pytest.mark.parametrize("node", [1023, 5000])
def test_a_node_that_is_not_there_binds_nothing(node: int) -> None:
    with pytest.raises(NearsocketError, match=f"expected to bind memory to node {node}, found: Invalid argument"):
        bind_memory((node,))


def test_a_node_that_is_not_there_cannot_be_filled() -> None:
    with pytest.raises(Exception, match="expected to fill node 4095"), fill.filled([4095]):
        pass


ZONES = """Node 0, zone    DMA32
  pages free     700000
        boost    0
        min      10
        low      20
        high     30
        managed  760000
        protection: (0, 0, 130000, 130000)
Node 0, zone   Normal
  pages free     {free}
        boost    7
        high     1000
        managed  33000000
        protection: (0, 0, 0, 0)
Node 1, zone   Normal
  pages free     5
        high     5
        managed  9
"""


@pytest.mark.parametrize(("node", "pages"), [(0, 60 + 130_000 + 2000 + 7), (1, 9), (2, 0)])
def test_what_the_kernel_keeps_free_is_known_for_each_node(node: int, pages: int) -> None:
    assert zoneinfo.kept_pages(ZONES.format(free=0), node) == pages


@pytest.mark.parametrize(("after_mib", "full"), [(600, True), (30_000, False), (900, False)])
def test_a_node_that_did_not_fill_is_no_filled_node(monkeypatch: pytest.MonkeyPatch, after_mib: int, full: bool) -> None:
    """The reading ahead is left out here: what is tested is that its word is not taken."""
    free = [64 << 20, after_mib << 20]
    monkeypatch.setattr(fill, "_free_bytes", lambda node: free.pop(0))
    monkeypatch.setattr(fill, "_read_ahead", lambda fd, size, node, out: os.write(out, b"done"))
    monkeypatch.setattr(fill, "read_text", lambda path: ZONES.format(free=0))
    if full:
        with fill.filled([0]):
            pass
        return
    with pytest.raises(NearsocketError, match=f"expected to fill node 0 with page cache, found {after_mib:,} MiB of it still free"):
        fill.filled([0]).__enter__()

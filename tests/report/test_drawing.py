"""The drawing of a host: where things stand, and that a glance shows the fault."""

from __future__ import annotations

import dataclasses
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from nearsocket.model.host import NodeMemory, PciLink, Socket
from tests import build
from tests.report import scenarios
from tests.report.scenarios import one, report, text_of


def test_the_far_buffers_stand_on_their_node_and_are_tied_to_the_gpus() -> None:
    line = next(line for line in text_of(scenarios.far()).splitlines() if "FAR" in line)
    buffers, gpus = line[:40], line[40:]
    assert "18.4 MiB on node 0  FAR ◀━" in buffers
    assert gpus.lstrip("━┿ ").startswith("GPU 0-1  ranks 0-1")


def test_the_thread_goes_right_where_the_gpus_are_left() -> None:
    line = next(line for line in text_of(scenarios.eight(), 120).splitlines() if "FAR" in line)
    assert line.index("GPU 0-3") < line.index("┿━━━━┿━▶") < line.index("ring 73.6 MiB on node 1  FAR")


def test_near_buffers_are_called_near_and_nothing_far() -> None:
    page = text_of(scenarios.healthy())
    assert "ring 18.4 MiB on node 1  near" in page
    assert "FAR" not in page
    assert "━" not in page


def test_buffers_of_no_replica_are_drawn_too() -> None:
    host = dataclasses.replace(scenarios.placed({0: build.RING_BYTES}), replicas=())
    page = text_of(report(one(host)))
    assert "in no replica" in page
    assert "ring 18.4 MiB on node 0  FAR" in page


def test_without_a_gpu_bytes_are_neither_near_nor_far() -> None:
    host = dataclasses.replace(scenarios.placed({0: build.RING_BYTES}), gpus=())
    page = text_of(report(one(host)))
    assert re.search(r"ring 18\.4 MiB on node 0 +│", page)


def test_a_gpu_whose_sources_disagree_says_so() -> None:
    claims = (build.gpu(0).claims[0], dataclasses.replace(build.gpu(0).claims[1], node=0))
    page = text_of(report(one(build.host(gpus=(build.gpu(0, claims=claims), build.gpu(1))))))
    assert re.search(r"node 1: sysfs +│\n.*node 0: nvml", page)


def test_a_replica_without_ring_buffers_is_not_called_near() -> None:
    page = text_of(report(one(build.host(processes=tuple(build.process(p, r, buffers=()) for p, r in ((1, 0), (2, 1)))))))
    assert "no ring buffer in /dev/shm seen" in page
    assert "near" not in page.replace("nearsocket", "")


def test_a_gpu_of_another_driver_shows_that_driver() -> None:
    lent = dataclasses.replace(build.gpu(0, driver="vfio-pci"), index=None)
    page = text_of(report(one(build.host(gpus=(lent, build.gpu(1, link=PciLink()))))))
    assert re.search(r"GPU  c1:00\.0 +vfio-pci", page)
    assert re.search(r"GPU 1  c2:00\.0 +link not read", page)


def test_no_socket_is_called_empty_while_a_gpu_has_none() -> None:
    lost = build.gpu(0, node=None, socket=None, claims=())
    page = text_of(report(one(build.host(gpus=(lost,), processes=()))))
    assert "no GPU known to be here" in page
    assert "nothing says its node" in page


def test_files_that_only_cpus_use_are_drawn_when_everything_is_asked_for() -> None:
    assert "CPU-only" not in text_of(scenarios.eight())
    assert "CPU-only 33 MiB on node 0" in text_of(scenarios.eight(), verbose=True)


def test_a_group_over_two_sockets_shows_each_socket_its_ranks_and_its_near_buffers() -> None:
    gpus = (build.gpu(0, node=0, socket=0), build.gpu(1))
    files = (build.buffer("left", {0: build.RING_BYTES}), build.buffer("right", {1: build.RING_BYTES}))
    processes = tuple(build.process(pid, rank, buffers=files) for pid, rank in ((4242, 0), (4243, 1)))
    page = text_of(report(one(build.host(gpus=gpus, processes=processes))))
    assert re.search(r"GPU 0  rank 0 +│ +│ GPU 1  rank 1", page)
    assert re.search(r"ring 9\.2 MiB on node 0  near +│ +│ ring 9\.2 MiB on node 1  near", page)


def test_a_host_whose_nodes_were_not_read_says_so() -> None:
    page = text_of(report(one(build.host(sockets=(), nodes=(), gpus=(), processes=()))))
    assert "could not be read" in page


@settings(deadline=None, max_examples=60)
@given(
    total=st.integers(0, 1 << 44),
    free=st.integers(0, 1 << 44),
    cache=st.integers(0, 1 << 44),
    width=st.integers(20, 220),
    count=st.integers(1, 5),
)
def test_any_memory_figures_and_socket_counts_draw_straight_boxes(
    total: int, free: int, cache: int, width: int, count: int
) -> None:
    nodes = tuple(build.node(id, memory=NodeMemory(total, free, cache)) for id in range(count))
    sockets = tuple(Socket(id, (id,), nodes[id].cpus) for id in range(count))
    page = text_of(report(one(build.host(nodes=nodes, sockets=sockets))), width)
    box = [line for line in page.splitlines() if line.startswith(("╭", "│", "├", "╰"))]
    assert sum(line.count("╭") for line in box) == count + (count < 2)  # with one socket, node 1's GPUs have none that is known
    assert all(cell_len(line) <= width for line in box)
    assert all(line.endswith(("╮", "│", "┤", "╯")) for line in box)

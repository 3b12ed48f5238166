"""NCCL's files: no page counts twice, whatever the processes map and see."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.host import BufferRole
from nearsocket.model.read import buffers
from tests.snapshots import engine

PAGE = 4096
RING = 2354


def entry(by_node: dict[int, int], offset: int = 0, length: int = RING, **changes: Any) -> dict[str, Any]:
    """A mapping of pages `offset` to `offset + length` of one file."""
    return engine.mapping("a", 7, by_node, length * PAGE, offset=offset * PAGE, **changes)


def by_node(*processes: list[dict[str, Any]]) -> dict[int, int]:
    """Pages by node of the one file that these processes map."""
    mapped = [item for pid, data in enumerate(processes) for item in buffers.mapped(pid + 1, "", data)[0]]
    (found,) = buffers.merge(mapped)
    return {node: size // PAGE for node, size in found.by_node.items()}


def test_two_processes_that_see_the_same_pages_count_them_once() -> None:
    assert by_node([entry({1: RING})], [entry({1: RING})]) == {1: RING}


def test_pages_that_only_one_process_touched_are_there() -> None:
    assert by_node([entry({0: 2000})], [entry({1: 354})]) == {0: 2000, 1: 354}


def test_two_halves_of_one_file_add_up() -> None:
    assert by_node([entry({0: 8353}, 0, 8353), entry({0: 1}, 8353, 1)]) == {0: 8354}


def test_a_file_mapped_twice_by_one_process_counts_once() -> None:
    assert by_node([entry({0: 1}, 0, 8353), entry({0: 8353}, 0, 8353)]) == {0: 8353}


def test_one_process_maps_halves_and_the_other_the_whole() -> None:
    halves = [entry({0: 8353}, 0, 8353), entry({0: 1}, 8353, 1)]
    assert by_node(halves, [entry({0: 1}, 0, 8354)]) == {0: 8354}
    assert by_node([entry({0: 1}, 0, 8354)], halves) == {0: 8354}
    assert by_node(halves, [entry({0: 8354}, 0, 8354)]) == {0: 8354}


def test_a_mapping_inside_another_of_the_same_process_is_not_added() -> None:
    assert by_node([entry({0: 100}, 0, 100), entry({0: 10}, 20, 10), entry({1: 5}, 100, 5)]) == {0: 100, 1: 5}


def test_ranges_of_different_processes_that_do_not_overlap_add_up() -> None:
    assert by_node([entry({0: 100}, 0, 100)], [entry({1: 50}, 100, 50)]) == {0: 100, 1: 50}


def test_huge_pages_count_in_bytes() -> None:
    (found,) = buffers.merge(buffers.mapped(1, "", [entry({0: 3}, length=3072, page_bytes=2 << 20)])[0])
    assert found.by_node == {0: 6 << 20}


def test_the_merged_file_knows_its_size_role_processes_and_policies() -> None:
    first = buffers.mapped(9, "", [entry({1: RING}, deleted=False)])[0]
    second = buffers.mapped(3, "", [entry({1: RING}, policy="bind:1"), entry({1: RING}, policy=None)])[0]
    (found,) = buffers.merge([*first, *second])
    assert (found.size_bytes, found.role, found.deleted) == (RING * PAGE, BufferRole.RING, True)
    assert (found.pids, found.policies) == ((3, 9), ("bind:1", "default"))


def test_equal_names_on_two_file_systems_are_two_files() -> None:
    mapped = [*buffers.mapped(1, "", [entry({0: 1})])[0], *buffers.mapped(2, "", [entry({1: 1}, device="0:61")])[0]]
    assert [found.identity for found in buffers.merge(mapped)] == ["0:56:7", "0:61:7"]


def test_without_device_and_inode_the_container_keeps_names_apart() -> None:
    bare = [entry({0: 1}, device=None)]
    mapped = [item for pid, box in ((1, "a"), (2, "a"), (3, "b")) for item in buffers.mapped(pid, box, bare)[0]]
    assert [found.pids for found in buffers.merge(mapped)] == [(1, 2), (3,)]


def test_entries_that_cannot_be_read_are_counted_not_guessed() -> None:
    bad = [{}, 5, entry({}, pages=None), entry({}, length=0), entry({}, file=""), entry({}, page_bytes=1 << 40)]
    assert buffers.mapped(1, "", [*bad, entry({0: 1})])[1] == len(bad)
    assert buffers.mapped(1, "", "text") == ((), 0)


def test_only_real_nodes_count() -> None:
    pages = {"0": 5, "-2": 9, "x": 1, "5000": 3, "1": -4, "2": "7"}
    (found,) = buffers.merge(buffers.mapped(1, "", [entry({}, pages=pages)])[0])
    assert found.by_node == {0: 5 * PAGE, 2: 7 * PAGE}


SPANS = st.tuples(st.integers(0, 40), st.integers(1, 40))


@given(st.lists(st.lists(SPANS, min_size=1, max_size=4), min_size=1, max_size=3), st.sets(st.integers(0, 79)))
def test_pages_of_one_node_are_never_more_than_there_are(processes: list[list[tuple[int, int]]], present: set[int]) -> None:
    """Each process sees every present page of what it maps: the merged count is at most those, and all for a single range."""
    data = [
        [entry({0: len(present & set(range(start, start + size)))}, start, size) for start, size in spans] for spans in processes
    ]
    seen = {page for spans in processes for start, size in spans for page in range(start, start + size)} & present
    if all(not overlapping(spans) for spans in processes):
        assert by_node(*data).get(0, 0) <= len(seen)
    if len({span for spans in processes for span in spans}) == 1:
        assert by_node(*data).get(0, 0) == len(seen)


def overlapping(spans: list[tuple[int, int]]) -> bool:
    """Whether two ranges overlap without one lying inside the other."""
    ranges = sorted(set(spans))
    return any(a < c < a + b < c + d for a, b in ranges for c, d in ranges)

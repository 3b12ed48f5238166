"""Whatever is pasted, parsers answer; merging does not depend on order, and bytes add up."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearsocket.model.explain import Kind, explain
from nearsocket.model.finding import Status
from nearsocket.model.parsers import nccl_log, numa_maps, numactl, topology
from nearsocket.model.parsers.text import clean, decode
from tests.explain.test_cases import FOLDER

TEXTS = [path.read_bytes().decode("utf-8", "replace") for path in sorted(FOLDER.glob("*.txt"))]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A case's text with a piece removed, doubled, or replaced by anything."""
    text = draw(st.sampled_from(TEXTS))
    a, b = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    middle = draw(st.one_of(st.just(""), st.just(text[a:b] * 2), st.text(max_size=20), st.sampled_from(["\t", "\n", "0", "N1="])))
    return text[:a] + middle + text[b:]


near = st.one_of(st.none(), st.frozensets(st.integers(0, 12), min_size=1, max_size=3))


@given(st.one_of(st.text(), damaged()), near)
@settings(max_examples=150, deadline=None)
@example("available: 1 nodes ()", None)
@example("GPU0\tCPU Affinity\nGPU0\tX\t9-1", None)
def test_explain_answers_whatever_the_text_holds(text: str, nodes: frozenset[int] | None) -> None:
    result = explain("file", text, nodes)
    json.dumps(dict(result.facts))
    assert result.code() in (0, 1, 2, 3)
    assert (result.code() == 0) == (result.status in (Status.PASS, Status.NOT_APPLICABLE))
    if not result.facts and result.status is not Status.FAIL:
        assert (result.status, result.code()) == (Status.UNKNOWN, 3)
    if result.kind is Kind.NUMA_MAPS and nodes is None:
        assert result.status is Status.UNKNOWN


@given(st.one_of(st.text(), damaged()))
@settings(max_examples=100, deadline=None)
def test_parsers_raise_nothing_but_their_own_errors(text: str) -> None:
    nccl_log.parse(text)
    numa_maps.parse(text)
    for parse, error in ((topology.parse, topology.TopologyError), (numactl.parse, numactl.NumactlError)):
        try:
            parse(text)
        except error as found:
            assert str(found).startswith("line ")


@given(st.binary())
def test_bytes_decode_and_clean_to_printable_text(raw: bytes) -> None:
    assert clean(decode(raw)).replace("\t", "").isprintable()


mapping = st.builds(
    lambda name, nodes, pool: "".join(
        f"7f{name:02x}{part:08x} default file=/dev/shm/nccl-Ab{name:04d} dirty={count} N{node}={count} kernelpagesize_kB=4\n"
        for part, (node, count) in enumerate(nodes.items())
    ),
    st.integers(0, 15),
    st.dictionaries(st.integers(0, 12), st.integers(1, 5000), min_size=1, max_size=3),
    st.booleans(),
)


@given(st.lists(st.lists(mapping, max_size=4, unique_by=lambda text: text[:4]), max_size=4), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_merging_does_not_depend_on_the_order_of_processes(processes: list[list[str]], shuffle: random.Random) -> None:
    def merged(order: list[list[str]]) -> set[tuple[str, int, str]]:
        text = "".join(f"==> /proc/{number}/numa_maps <==\n" + "".join(sorted(lines)) for number, lines in enumerate(order, 1))
        return {(b.file, b.present_bytes, b.role.value) for b in numa_maps.parse(text).buffers}

    other = processes[:]
    shuffle.shuffle(other)
    assert merged(processes) == merged(other)


@given(st.lists(mapping, max_size=6, unique_by=lambda text: text[:4]))
@settings(deadline=None)
def test_the_bytes_of_one_process_add_up_per_file_and_in_all(lines: list[str]) -> None:
    maps = numa_maps.parse("".join(sorted(lines)))
    for buffer in maps.buffers:
        mappings = maps.lines_of(buffer.file)
        total = sum(sum(m.by_node.values()) for m in mappings)
        assert buffer.present_bytes == total or buffer.present_bytes == max(sum(m.by_node.values()) for m in mappings)
    result = explain("file", "".join(sorted(lines)))
    if lines:
        counted = [b for b in result.facts["buffers"] if b["role"] == "ring" or (b["role"] == "unknown" and b["bytes"] >= 1 << 20)]
        assert sum(result.facts["by_node"].values()) == sum(b["bytes"] for b in counted)
        assert all(sum(b["by_node"].values()) == b["bytes"] for b in result.facts["buffers"])


@given(st.permutations(range(3)), st.integers(0, 3))
def test_a_process_pasted_several_times_counts_once(order: list[int], again: int) -> None:
    process = next(t for t in TEXTS if t.startswith("55d0a1c00000") and "nccl-Qr5tU8" in t and "kB=4\n" in t and "\r" not in t)
    once, often = explain("f", process).facts, explain("f", process * (again + 1)).facts
    assert once["buffers"] == often["buffers"]


@pytest.mark.parametrize(
    "piece", ["a", " ", "9", "a:1:", "[", "\x1b]", "NCCL ", " NCCL rank via ", "GPU0 X ", "node 0 ", "0,", "7f3000000000 "]
)
def test_one_endless_line_is_judged_in_linear_time(piece: str) -> None:
    started = time.process_time()
    heads = (
        *("", "NCCL version 2.3", "NCCL_X set by environment to 1", "node 0 cpus:", "\tGPU0\tCPU Affinity\n", "-> 1[5] via a"),
        *(
            "GPU",
            "\tGPU0\tCPU Affinity\nGPU0 X ",
            "rank 1",
            "NCCL INFO rank 1 nranks 1",
            "NCCL INFO Affinity for GPU ",
            "N0=",
            "/proc/",
        ),
        *(
            "available: 1 nodes (0)\nnode distances:\nnode   0\n  0: ",
            "node 0 size: ",
            "NCCL INFO CUMEM Host Alloc Size 1 pointer 0 numa ",
        ),
        *(
            "NCCL INFO MMAP allocated shareable host buffer a size ",
            "7f3000000000 default file=/dev/shm/nccl-abcdef N",
            "cudaDriverVersion ",
        ),
    )
    for head in heads:
        explain("file", head + piece * (60_000 // len(piece)))
    assert time.process_time() - started < 20


def test_as_many_files_as_lines_are_grouped_once() -> None:
    line = "7f{0:010x} default file=/dev/shm/nccl-{0:06d} dirty=9 mapped=9 N0=9 kernelpagesize_kB=4"
    maps = numa_maps.parse("\n".join(line.format(number) for number in range(4000)))
    assert all(len(maps.lines_of(buffer.file)) == 1 for buffer in maps.buffers) and len(maps.buffers) == 4000
    # One grouping serves every file: 4,000 scans of 4,000 lines are what took minutes.
    assert maps.lines_of(maps.buffers[0].file) is maps.lines_of(maps.buffers[0].file)

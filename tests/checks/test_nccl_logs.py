"""Whose words a log holds: several communicators, earlier runs, neighbours, one stream of all ranks, a log that was cut."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model.finding import Status
from nearsocket.model.host import Host, Process
from tests import build
from tests.checks import hosts
from tests.checks.judge import one

PLACEMENT, ENFORCED, CUMEM = "nccl.buffer-placement", "nccl.placement-enforced", "nccl.cumem-in-force"


def words(pid: int, rank: int, node: int, *more: str) -> str:
    """What one rank with cuMem in force on that node writes."""
    lines = [line.replace("numa 1", f"numa {node}").replace("rank 0", f"rank {rank}") for line in hosts.CUMEM]
    return "".join(f"gpuhost:{pid}:{pid} [0] NCCL INFO {line}\n" for line in (*lines, *more))


def pair(*logs: str | None, **changes: object) -> Host:
    """The default replica, nothing bound and no file mapped, with these logs."""
    made = hosts.ranks(policy="default", buffers=(), **changes)
    return build.host(processes=tuple(dataclasses.replace(p, nccl_log=text) for p, text in zip(made, logs, strict=True)))


def over_two_sockets(*logs: str | None) -> Host:
    """Four ranks, 0 and 1 on node 0, 2 and 3 on node 1, with these logs."""
    made = hosts.two_sockets_group()
    ranks = tuple(
        dataclasses.replace(p, buffers=(), policy="default", nccl_log=text) for p, text in zip(made.processes, logs, strict=True)
    )
    return build.host(gpus=made.gpus, processes=ranks, replicas=(build.replica(ranks, sockets=(0, 1)),))


def test_two_rank_numbers_of_one_process_are_not_two_ranks() -> None:
    """A process in two communicators (TP and PP) names two; the other rank's log is missing."""
    host = pair(words(4242, 0, 1, "comm 0x66bb rank 1 nRanks 2 nNodes 1"), None)
    for id in (PLACEMENT, CUMEM):
        found = one(id, host)
        assert found.status is Status.UNKNOWN
        assert "not every rank's log" in found.summary
    assert one(ENFORCED, host).status is Status.WARN


def test_each_node_line_is_judged_by_the_gpu_of_the_process_that_wrote_it() -> None:
    """All cuMem on node 0 for four ranks over two sockets, each log with two rank numbers: ranks 2 and 3 are far."""
    second = "comm 0x66bb rank {0} nRanks 2 nNodes 1"
    wrong = over_two_sockets(*(words(4242 + rank, rank, 0, second.format(3 - rank)) for rank in range(4)))
    assert one(PLACEMENT, wrong).status is Status.FAIL
    assert one(ENFORCED, wrong).status is Status.WARN
    right = over_two_sockets(*(words(4242 + rank, rank, rank // 2, second.format(3 - rank)) for rank in range(4)))
    assert one(PLACEMENT, right).status is Status.PASS
    assert one(ENFORCED, right).status is Status.PASS


@pytest.mark.parametrize(
    ("nodes", "status"), [((0, 0, 1, 1), Status.PASS), ((0, 0, 1, 0), Status.FAIL), ((1, 0, 1, 1), Status.FAIL)]
)
def test_one_stream_of_all_ranks_is_taken_apart_by_process(nodes: tuple[int, ...], status: Status) -> None:
    stream = "".join(words(4242 + rank, rank, node) for rank, node in enumerate(nodes))
    assert one(PLACEMENT, over_two_sockets(stream, None, None, None)).status is status
    assert one(PLACEMENT, over_two_sockets(*[stream] * 4)).status is status


def test_an_earlier_run_in_an_appended_log_is_not_this_run() -> None:
    """The old run had cuMem near; this one has said nothing of its buffers yet."""
    old = words(3000, 0, 1) + words(3001, 1, 1)
    for host in (pair(old, old), pair(old, None)):
        for id in (PLACEMENT, CUMEM):
            assert one(id, host).status is Status.UNKNOWN
        assert one(ENFORCED, host).status is Status.WARN


def test_a_far_buffer_of_an_earlier_run_does_not_fail_this_run() -> None:
    old = words(3000, 0, 0) + hosts.log(hosts.FILES).replace("4242", "3001") + "NCCL version 2.18.1+cuda12.1\n"
    host = pair(old + words(4242, 0, 1), old + words(4243, 1, 1))
    for id in (PLACEMENT, ENFORCED, CUMEM):
        assert one(id, host).status is Status.PASS


BARE = "CUMEM Host Alloc Size 10485760 pointer 0x7f2300000000 handle 0x55aa numa {0} dev 4 granularity 2097152\n"


def test_lines_before_a_foreign_one_that_do_not_say_who_wrote_them_are_the_earlier_runs() -> None:
    old = BARE.format(0) + "gpuhost:3000:3000 [0] NCCL INFO comm 0x1 rank 0 nRanks 2\n"
    assert one(PLACEMENT, pair(old + words(4242, 0, 1), words(4243, 1, 1))).status is Status.PASS


def test_a_single_foreign_line_counts_for_nobody() -> None:
    foreign = f"gpuhost:3000:3000 [0] NCCL INFO {BARE.format(0)}"
    assert one(PLACEMENT, pair(words(4242, 0, 1) + foreign, words(4243, 1, 1))).status is Status.PASS


def in_container(pid: int, inner: int, log: str | None) -> Process:
    made = hosts.ranks(policy="default", buffers=(), gpus=(build.gpu(0).pci,))[pid - 4242]
    return dataclasses.replace(made, nspid=(pid, inner), nccl_log=log)


def test_a_containers_own_process_numbers_count_and_a_restart_under_the_same_number_starts_anew() -> None:
    now = (in_container(4242, 7, words(7, 0, 1)), in_container(4243, 8, words(8, 1, 1)))
    assert one(PLACEMENT, build.host(processes=now)).status is Status.PASS
    again = (in_container(4242, 7, words(7, 0, 0) + words(7, 0, 1)), now[1])
    assert one(PLACEMENT, build.host(processes=again)).status is Status.PASS
    moved = (in_container(4242, 7, words(7, 0, 1) + words(7, 0, 0)), now[1])
    assert one(PLACEMENT, build.host(processes=moved)).status is Status.FAIL


@pytest.mark.parametrize("id", [PLACEMENT, CUMEM])
def test_a_log_that_was_cut_is_not_complete(id: str) -> None:
    whole = pair(words(4242, 0, 1), words(4243, 1, 1))
    assert one(id, whole).status is Status.PASS
    for cut in ("<cut>", "gpuhost:4242:4242 [0] NCCL INFO Channel 00/0 : 0[4] -> 1[5] via SHM<cut>\n"):
        assert one(id, pair(words(4242, 0, 1) + cut, words(4243, 1, 1))).status is Status.UNKNOWN


def test_a_neighbours_p2p_in_a_shared_log_frees_nobody() -> None:
    neighbour = hosts.log(hosts.P2P).replace("4242", "9999")
    assert one(PLACEMENT, pair(neighbour, neighbour)).status is Status.UNKNOWN


def test_the_evidence_names_the_line_in_the_log() -> None:
    old = words(3000, 0, 1)
    found = one(CUMEM, pair(old + words(4242, 0, 1), None))
    assert any(item.source == "NCCL log of pid 4242 line 13" for item in found.evidence)


def test_node_lines_that_do_not_say_who_wrote_them_count_only_where_all_ranks_are_near_one_socket() -> None:
    same = (words(4242, 0, 1) + BARE.format(1), words(4243, 1, 1))
    assert one(PLACEMENT, pair(*same)).status is Status.PASS
    assert one(PLACEMENT, pair(same[0] + BARE.format(0), same[1])).status is Status.FAIL
    several = [words(4242 + rank, rank, rank // 2) for rank in range(4)]
    assert one(PLACEMENT, over_two_sockets(several[0] + BARE.format(0), *several[1:])).status is Status.UNKNOWN

"""The rules under explain, which an audit shares: exit codes, roles by size, placement of a file, obstacles to cuMem."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model import exitcode
from nearsocket.model.finding import Evidence, Finding, Status, Waived, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import BufferRole
from nearsocket.model.parsers import nccl_log
from nearsocket.model.roles import role_of
from nearsocket.model.verdicts.cumem import judge_log, log_placement, obstacles
from nearsocket.model.verdicts.placement import Placement, judge_file, payload_buffers, percent, placement_finding
from tests.build import RING_BYTES, buffer

NEAR = frozenset({1})
SHOWN = (Evidence("line 1", "text"),)


def one(status: Status, id: str = "memory.near-free") -> Finding:
    made = {
        Status.PASS: passed("x", "s", SHOWN),
        Status.WARN: warned("x", "s", SHOWN, "r"),
        Status.FAIL: failed("x", "s", SHOWN, "r"),
        Status.UNKNOWN: unknown("x", "s"),
        Status.NOT_APPLICABLE: not_applicable("x", "s"),
    }[status]
    return dataclasses.replace(made, id=id)


@pytest.mark.parametrize(
    ("status", "id", "strict", "code"),
    [
        (Status.PASS, "nccl.buffer-placement", False, 0),
        (Status.NOT_APPLICABLE, "nccl.buffer-placement", True, 0),
        (Status.WARN, "nccl.buffer-placement", False, 1),
        (Status.WARN, "memory.near-free", True, 2),
        (Status.FAIL, "memory.near-free", False, 2),
        (Status.UNKNOWN, "memory.near-free", False, 1),
        (Status.UNKNOWN, "memory.near-free", True, 3),
        (Status.UNKNOWN, "nccl.cumem-in-force", False, 3),
        (Status.UNKNOWN, "topology.gpu-node", False, 3),
        (Status.UNKNOWN, "host.reachable", False, 3),
    ],
)
def test_a_finding_has_its_code(status: Status, id: str, strict: bool, code: int) -> None:
    assert exitcode.exit_code([one(status, id)], strict) == code


def test_the_worst_code_wins_in_the_order_2_3_1_0() -> None:
    assert [exitcode.worst_of(codes) for codes in ([0, 1, 3, 2], [0, 1, 3], [1, 0], [0], [])] == [2, 3, 1, 0, 0]
    assert exitcode.worst_of([2, 64]) == 64


def test_a_waived_finding_does_not_count() -> None:
    waived = dataclasses.replace(one(Status.FAIL), waived=Waived("reason", "owner", "2030-01-01"))
    assert exitcode.exit_code([waived, one(Status.WARN)]) == 1


def test_the_worst_of_no_status_is_unknown() -> None:
    assert exitcode.worst_status([]) is Status.UNKNOWN


@pytest.mark.parametrize(
    ("pages", "role"),
    [
        (2, BufferRole.CONTROL),
        (255, BufferRole.CONTROL),
        (256, BufferRole.UNKNOWN),
        (2354, BufferRole.RING),
        (1586, BufferRole.RING),
        (3378, BufferRole.RING),
        (9522, BufferRole.RING),
        (1025, BufferRole.PROXY_POOL),
        (1409, BufferRole.PROXY_POOL),
        (1793, BufferRole.PROXY_POOL),
        (2561, BufferRole.PROXY_POOL),
        (8065, BufferRole.PROXY_POOL),
        (8353, BufferRole.PROXY_POOL),
        (8354, BufferRole.PROXY_POOL),
        (2000, BufferRole.UNKNOWN),
    ],
)
def test_a_files_pages_tell_its_role(pages: int, role: BufferRole) -> None:
    assert role_of(pages * 4096) is role


def test_a_length_in_bytes_tells_the_role_with_and_without_the_reference_count() -> None:
    assert {role_of(9_637_888), role_of(9_637_892)} == {BufferRole.RING}
    assert {role_of(34_210_176), role_of(33_030_532)} == {BufferRole.PROXY_POOL}


def test_larger_pages_round_up() -> None:
    assert role_of(5 * 2 << 20, 2 << 20) is BufferRole.RING
    assert role_of(148 * 65536, 65536) is BufferRole.RING


def test_near_needs_99_percent_of_a_known_length() -> None:
    assert judge_file(buffer(by_node={1: RING_BYTES}), NEAR).placement is Placement.NEAR
    assert judge_file(buffer(by_node={1: RING_BYTES * 98 // 100}), NEAR).placement is Placement.INCOMPLETE
    assert judge_file(buffer(by_node={1: 4096 * 10}, size_bytes=0), NEAR).placement is Placement.NEAR


def test_far_pages_over_one_percent_fail_however_little_else_was_seen() -> None:
    part = judge_file(buffer(by_node={0: RING_BYTES // 50}), NEAR)
    assert (part.placement, part.status) == (Placement.FAR, Status.FAIL)
    few = judge_file(buffer(by_node={0: RING_BYTES // 200}), NEAR)
    assert (few.placement, few.status) == (Placement.INCOMPLETE, Status.UNKNOWN)


def test_split_warns_up_to_one_percent_and_fails_over_it() -> None:
    at = judge_file(buffer(by_node={0: 10, 1: 990}, size_bytes=1000), NEAR)
    over = judge_file(buffer(by_node={0: 11, 1: 989}, size_bytes=1000), NEAR)
    assert (at.placement, at.status) == (Placement.SPLIT, Status.WARN)
    assert (over.placement, over.status) == (Placement.SPLIT, Status.FAIL)


def test_nothing_present_or_nothing_said_of_near_is_unknown() -> None:
    assert judge_file(buffer(by_node={}), NEAR).status is Status.UNKNOWN
    assert judge_file(buffer(), None).status is Status.UNKNOWN


def test_the_worst_file_decides_and_no_file_is_unknown() -> None:
    good, bad = buffer("aaaaaa"), buffer("bbbbbb", {0: RING_BYTES})
    finding = placement_finding("x", [judge_file(good, NEAR), judge_file(bad, NEAR)], None, NEAR)
    assert finding.status is Status.FAIL
    assert finding.evidence[0].source == "/dev/shm/nccl-bbbbbb"
    assert "50 %" in finding.summary
    assert placement_finding("x", []).status is Status.UNKNOWN


def test_each_file_is_judged_by_its_own_near_nodes() -> None:
    there, here = judge_file(buffer("aaaaaa", {0: RING_BYTES}), frozenset({0})), judge_file(buffer("bbbbbb"), NEAR)
    assert placement_finding("x", [there, here]).status is Status.PASS


def test_pools_and_control_blocks_are_not_judged() -> None:
    pool = buffer(role=BufferRole.PROXY_POOL, size_bytes=8354 * 4096)
    small = buffer(role=BufferRole.UNKNOWN, size_bytes=4096, by_node={})
    assert payload_buffers([pool, small, buffer(role=BufferRole.CONTROL)]) == ()
    assert len(payload_buffers([buffer(), buffer(role=BufferRole.UNKNOWN)])) == 2


def test_a_share_is_never_rounded_up_to_a_limit() -> None:
    assert [percent(part, 10000) for part in (10000, 9999, 100, 99, 101, 5000, 0)] == [
        *("100 %", "99.99 %", "1 %", "0.99 %", "1.01 %", "50 %", "0 %"),
    ]
    assert percent(1, 10**9) == "0.01 %"
    assert percent(0, 0) == "0 %"


H = "node7:4242:4250 [0] NCCL INFO "
RING = f"{H}MMAP allocated shareable host buffer /dev/shm/nccl-Qr5tU8 size 9637888 ptr 0x7f00\n"


def log(*lines: str) -> nccl_log.NcclLog:
    return nccl_log.parse("".join(H + line + "\n" for line in lines) + RING)


@pytest.mark.parametrize(
    ("lines", "name", "words"),
    [
        (["NCCL_CUMEM_ENABLE set by environment to 0."], "variable", "NCCL_CUMEM_ENABLE is 0"),
        (["NCCL_CUMEM_HOST_ENABLE set by environment to 0."], "host-enable", "NCCL_CUMEM_HOST_ENABLE is 0"),
        (["NCCL version 2.22.3+cuda12.6"], "nccl-version", "2.22.3 has no cuMem for host memory"),
        (["NCCL version 2.23.4+cuda12.6"], "nccl-version", "2.23.4 has cuMem for host memory off"),
        (["NCCL version 2.27.7+cuda11.8"], "nccl-build", "built for CUDA 11.8"),
        (["cudaDriverVersion 12040"], "driver-version", "CUDA 12.4"),
        (
            ["NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl- (size 0), error: Invalid argument (22)"],
            "ranks-disagree",
            "ranks disagree",
        ),
        (["cuMem host allocations do not appear to be working; falling back"], "sys-nice", "SYS_NICE"),
    ],
)
def test_each_reason_has_its_own_text_and_line(lines: list[str], name: str, words: str) -> None:
    read = log(*lines)
    assert [reason.name for reason in obstacles(read)] == [name]
    finding = judge_log(read)
    assert finding.status is Status.FAIL
    assert words in finding.summary
    assert any(lines[0] in piece.text for piece in finding.evidence)
    assert finding.remedy


def test_several_reasons_are_all_named() -> None:
    finding = judge_log(
        log("NCCL version 2.21.5+cuda12.2", "cudaDriverVersion 12020", "NCCL_CUMEM_ENABLE set by environment to 0.")
    )
    assert all(words in finding.summary for words in ("2.21.5", "CUDA 12.2", "NCCL_CUMEM_ENABLE is 0", "1 ring buffer in /dev/shm"))


def test_without_a_reason_the_possible_ones_are_named_and_refuted_ones_are_not() -> None:
    finding = judge_log(
        log("NCCL version 2.30.7+cuda13.0", "cudaDriverVersion 13000", "NCCL_CUMEM_ENABLE set by environment to 1.")
    )
    assert finding.status is Status.FAIL
    assert all(words in finding.summary for words in ("HOST_ENABLE", "SYS_NICE", "one process"))
    assert "older than" not in finding.summary


def test_buffers_refute_a_version_or_driver_but_not_another_ranks_setting() -> None:
    shared = f"{H}CUMEM allocated shareable buffer 0x1 size 9637888\n"
    old = nccl_log.parse(f"{H}cudaDriverVersion 12040\n" + shared)
    assert judge_log(old).status is Status.PASS
    off = nccl_log.parse(f"{H}NCCL_CUMEM_ENABLE set by environment to 0.\n" + shared)
    assert judge_log(off).status is Status.FAIL


def test_a_shared_process_is_told_by_communicator_gpu_or_sender() -> None:
    start = "node7:9:{tid} [{dev}] NCCL INFO ncclCommInitRank comm 0x{rank} rank {rank} nranks 2 cudaDev {dev} commId 0xabc\n"
    by_id = nccl_log.parse(start.format(tid=1, dev=0, rank=0) + start.format(tid=2, dev=0, rank=1))
    assert by_id.shared_process
    comm = "node7:9:1 [0] NCCL INFO comm 0x{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId {bus} - Init COMPLETE\n"
    assert nccl_log.parse(comm.format(rank=0, bus="1000") + comm.format(rank=1, bus="2000")).shared_process
    assert not nccl_log.parse(comm.format(rank=0, bus="1000") + comm.format(rank=1, bus="1000")).shared_process
    send = "node7:9:1 [0] NCCL INFO Channel 00 : {a}[{a}] -> {b}[{b}] via SHM/direct\n"
    assert nccl_log.parse(send.format(a=0, b=1) + send.format(a=1, b=0)).shared_process
    assert not nccl_log.parse(send.format(a=0, b=1) * 2).shared_process


def test_placement_from_a_log_names_the_far_lines() -> None:
    alloc = f"{H}CUMEM Host Alloc Size 10485760 pointer 0x1 handle 0x2 numa 0 dev 0 granularity 2097152\n"
    finding = log_placement(nccl_log.parse(alloc), NEAR)
    assert finding.status is Status.FAIL
    assert "numa 0" in finding.evidence[0].text
    assert log_placement(nccl_log.parse(alloc), frozenset({0})).status is Status.PASS


def test_p2p_alone_is_not_applicable_unless_a_ring_in_shared_memory_contradicts_it() -> None:
    channel = f"{H}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    pool = f"{H}MMAP allocated shareable host buffer /dev/shm/nccl-Po0L12 size 34210176 ptr 0x1\n"
    assert judge_log(nccl_log.parse(channel + pool)).status is Status.NOT_APPLICABLE
    assert log_placement(nccl_log.parse(channel + pool), NEAR).status is Status.NOT_APPLICABLE
    assert judge_log(nccl_log.parse(channel + RING)).status is Status.FAIL
    assert log_placement(nccl_log.parse(channel + RING), NEAR).status is Status.UNKNOWN

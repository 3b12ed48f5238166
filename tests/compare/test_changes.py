"""What counts as a regression, a change or a gain between two hosts, and what is no change at all."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.compare import figures, placement
from nearsocket.model.compare.figures import changes as figure_changes
from nearsocket.model.compare.make import compare
from nearsocket.model.compare.values import Change, Comparison, Grade, Section
from nearsocket.model.finding import Evidence, Finding, Status, Waived
from nearsocket.model.host import Host, Package, PciLink
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.series import Series
from nearsocket.model.report import HostReport
from nearsocket.model.snapshot import SourceStatus
from tests.build import GIB, container, gpu, host, node, source


def report(made: Host, *findings: Finding, name: str = "gpu1") -> HostReport:
    return HostReport(name, Status.PASS, made.taken_at, made, findings)


def compared(before: Host, after: Host) -> Comparison:
    return compare([report(before)], [report(after)], {}, {})


def found(before: Host, after: Host) -> list[tuple[str, str, str]]:
    """Grade, subject and property of every change."""
    return [(one.grade.value, one.subject, one.what) for one in compared(before, after).hosts[0].changes]


def finding(id: str, status: Status, subject: str = "gpu1", **more: Any) -> Finding:
    return Finding(id, status, subject, f"{id} is {status.value}", (Evidence("source", "text"),), **more)


def with_gpus(*gpus: Any) -> Host:
    """A host of these GPUs on which nothing runs."""
    return host(gpus=gpus, processes=())


def test_a_host_compared_with_itself_has_no_change_and_code_0() -> None:
    same = compared(host(), host())
    assert (same.hosts[0].changes, same.hosts[0].notes, same.exit_code) == ((), (), 0)


#: What is worse, as (before, after, expected).
WORSE = {
    "a GPU is gone": (with_gpus(gpu(0), gpu(1)), with_gpus(gpu(0)), ("fail", "GPU 0000:c2:00.0", "lost")),
    "a link has fewer lanes": (
        with_gpus(gpu(0)),
        with_gpus(gpu(0, link=PciLink(32.0, 8, 32.0, 16))),
        ("fail", "GPU 0000:c1:00.0", "PCIe lanes"),
    ),
    "a card has less memory": (
        with_gpus(gpu(0)),
        with_gpus(gpu(0, memory_bytes=48 * GIB)),
        ("fail", "GPU 0000:c1:00.0", "memory"),
    ),
    "peer access is lost": (
        with_gpus(gpu(0, p2p={"0000:c2:00.0": "OK"})),
        with_gpus(gpu(0, p2p={"0000:c2:00.0": "chipset not supported"})),
        ("warn", "GPU 0000:c1:00.0", "P2P with 0000:c2:00.0"),
    ),
    "a node is gone": (host(), host(nodes=(node(0),)), ("fail", "node 1", "lost")),
    "a node has less memory": (
        host(),
        host(nodes=(node(0), node(1, memory=dataclasses.replace(node(1).memory or pytest.fail(), total_bytes=240 * GIB)))),
        ("fail", "node 1", "memory"),
    ),
    "a node has fewer CPUs": (
        host(),
        host(nodes=(node(0), node(1, cpus=frozenset(range(12, 20))))),
        ("fail", "node 1", "CPUs"),
    ),
    "a replica no longer runs": (host(), host(processes=()), ("warn", "replica sglang", "no longer runs")),
}


@pytest.mark.parametrize("case", WORSE)
def test_what_is_gone_narrower_or_smaller_is_a_regression_and_its_opposite_is_none(case: str) -> None:
    before, after, expected = WORSE[case]
    assert expected in found(before, after)
    assert compared(before, after).exit_code == {"fail": 2, "warn": 1}[expected[0]]
    assert not any(grade in ("fail", "unknown", "warn") for grade, *_ in found(after, before))


def test_a_gpu_is_not_lost_where_the_bus_was_not_read() -> None:
    blind = host(gpus=(), processes=(), sources={**host().sources, "pci": source(status="timeout", reason="no answer")})
    one = compared(host(processes=()), blind).hosts[0]
    assert one.changes == ()
    assert any("pci did not answer in time (no answer) after" in note for note in one.notes)


def test_free_memory_page_cache_and_gpu_memory_in_use_are_no_change() -> None:
    memory = dataclasses.replace(node(1).memory or pytest.fail(), free_bytes=1, file_bytes=2, shmem_bytes=3)
    busy = host(nodes=(node(0), node(1, memory=memory)), gpus=(gpu(0, memory_used_bytes=1), gpu(1, throttle=("heat",))))
    assert compared(host(), busy).hosts[0].changes == ()


def test_the_folder_of_a_start_and_the_speed_of_an_idle_link_are_no_change() -> None:
    one, other = (
        host(
            containers=(container(environ={"NCCL_DEBUG_FILE": f"/run/nearsocket/a/{start}/nccl.%h.%p"}),),
            gpus=(gpu(0, link=PciLink(speed, 16, 32.0, 16)),),
        )
        for start, speed in (("20260131T120000Z-42", 2.5), ("20260201T110000Z-4711", 32.0))
    )
    assert compared(one, other).hosts[0].changes == ()


def test_versions_and_parameters_are_changes_and_no_regressions() -> None:
    before = host(
        packages=(Package("nvidia-driver", "580.95.05-1", "ii"), Package("gone", "1", "ii"), Package("rest", "1", "rc")),
        holds=frozenset({"nvidia-driver"}),
        sources={**host().sources, "packages": source("x"), "packages.holds": source("x")},
    )
    after = dataclasses.replace(
        before,
        packages=(Package("nvidia-driver", "580.105.08-1", "ii"),),
        holds=frozenset(),
        driver=dataclasses.replace(before.driver, library="580.105.08"),
        sysctl={**before.sysctl, "vm.zone_reclaim_mode": "1"},
        containers=(container(environ={}, cpuset_mems="1"),),
    )
    assert compared(before, after).exit_code == 0
    assert set(found(before, after)) == {
        ("changed", "package", "nvidia-driver"),
        ("changed", "package", "gone"),
        ("changed", "hold", "nvidia-driver"),
        ("changed", "host", "driver's library"),
        ("changed", "sysctl", "vm.zone_reclaim_mode"),
        ("changed", "container sglang", "NCCL_CUMEM_ENABLE"),
        ("changed", "container sglang", "memory nodes"),
    }


BAD, GOOD = "nccl.buffer-placement", "memory.near-free"


@pytest.mark.parametrize(
    ("before", "after", "id", "grade"),
    [
        (Status.PASS, Status.FAIL, GOOD, Grade.FAIL),
        (Status.WARN, Status.FAIL, GOOD, Grade.FAIL),
        (Status.PASS, Status.WARN, GOOD, Grade.WARN),
        (Status.PASS, Status.UNKNOWN, BAD, Grade.UNKNOWN),
        (Status.FAIL, Status.UNKNOWN, BAD, Grade.UNKNOWN),
        (Status.PASS, Status.UNKNOWN, GOOD, Grade.WARN),
        (Status.FAIL, Status.PASS, GOOD, Grade.BETTER),
        (Status.UNKNOWN, Status.PASS, BAD, Grade.BETTER),
        (Status.FAIL, Status.WARN, GOOD, Grade.BETTER),
        (Status.FAIL, Status.NOT_APPLICABLE, GOOD, Grade.CHANGED),
        (Status.PASS, Status.NOT_APPLICABLE, GOOD, Grade.CHANGED),
        (Status.NOT_APPLICABLE, Status.PASS, GOOD, Grade.CHANGED),
    ],
)
def test_a_finding_is_graded_by_what_it_was_and_is(before: Status, after: Status, id: str, grade: Grade) -> None:
    made = compare([report(host(), finding(id, before))], [report(host(), finding(id, after))], {}, {})
    assert [(one.grade, one.id) for one in made.hosts[0].changes] == [(grade, id)]
    assert made.exit_code == {Grade.FAIL: 2, Grade.UNKNOWN: 3, Grade.WARN: 1}.get(grade, 0)


def test_a_gpus_finding_is_matched_by_its_address_whatever_nvml_numbers_it() -> None:
    one, other = (finding("gpu.ecc", Status.PASS, f"GPU {number} (0000:c1:00.0)") for number in (0, 1))
    assert compare([report(host(), one)], [report(host(), other)], {}, {}).hosts[0].changes == ()


def test_subjects_of_other_names_are_compared_worst_against_worst() -> None:
    before = [finding(BAD, Status.PASS, "replica a"), finding(BAD, Status.FAIL, "replica b")]
    same = compare([report(host(), *before)], [report(host(), finding(BAD, Status.FAIL, "replica c"))], {}, {})
    assert same.hosts[0].changes == ()
    worse = compare([report(host(), before[0])], [report(host(), finding(BAD, Status.FAIL, "replica c"))], {}, {})
    assert [one.grade for one in worse.hosts[0].changes] == [Grade.FAIL]


def test_what_is_waived_now_does_not_count() -> None:
    waived = finding(GOOD, Status.FAIL, waived=Waived("known", "me", "2030-01-01"))
    made = compare([report(host(), finding(GOOD, Status.PASS))], [report(host(), waived)], {}, {})
    assert (made.exit_code, made.hosts[0].changes[0].grade) == (0, Grade.CHANGED)


def series(*rounds: float, size: int = 1 << 20) -> Series:
    return Series(size, 2, rounds, max(rounds))


@pytest.mark.parametrize(
    ("before", "after", "grade"),
    [
        ((100.0, 101.0, 102.0), (101.0, 102.0, 103.0), None),
        ((100.0, 101.0, 102.0), (115.0, 116.0, 117.0), Grade.WARN),
        ((100.0, 101.0, 102.0), (240.0, 241.0, 242.0), Grade.FAIL),
        ((240.0, 241.0, 242.0), (100.0, 101.0, 102.0), Grade.BETTER),
        ((100.0, 150.0, 300.0), (160.0, 200.0, 240.0), None),
    ],
)
def test_figures_count_beyond_the_noise_alone(before: tuple[float, ...], after: tuple[float, ...], grade: Grade | None) -> None:
    made = list(figure_changes({"a": (series(*before),)}, {"a": (series(*after),), "b": (series(1.0),)}))
    assert [one.grade for one in made] == ([] if grade is None else [grade])


def test_a_host_that_one_side_lacks_is_said_and_gone_is_a_warning() -> None:
    many = [report(host(), name="a"), report(host(), name="b")]
    made = compare(many, [many[1], report(host(), name="c")], {}, {})
    assert [(one.name, one.exit_code) for one in made.hosts] == [("b", 0), ("c", 0), ("a", 1)]


def test_a_host_that_was_not_read_is_noted_and_its_findings_still_count() -> None:
    silent = HostReport("gpu1", Status.FAIL, "2026-02-01T00:00:00Z", None, (finding("host.reachable", Status.FAIL),), "no route")
    made = compare([report(host(), finding("host.reachable", Status.PASS))], [silent], {}, {})
    assert made.exit_code == 2
    assert made.hosts[0].notes == ("the host was not read after: no route",)
    assert Grade.UNKNOWN in {change.grade for change in made.hosts[0].changes}
    assert compare([silent], [silent], {}, {}).exit_code == 3, "a comparison of nothing is no clean one"


grades = st.lists(st.sampled_from(list(Grade)), max_size=12)


@given(grades)
def test_changes_come_worst_first_and_the_code_is_the_worst_grade(these: list[Grade]) -> None:
    from nearsocket.model.compare.values import HostComparison, worst_first

    made = worst_first(Change(Section.HARDWARE, grade, str(number), "x") for number, grade in enumerate(these))
    order = list(Grade)
    assert [order.index(one.grade) for one in made] == sorted(order.index(grade) for grade in these)
    code = HostComparison("a", None, None, made).exit_code
    expected = 2 if Grade.FAIL in these else 3 if Grade.UNKNOWN in these else 1 if Grade.WARN in these else 0
    assert code == expected


def test_a_source_that_was_denied_makes_no_holds_or_packages_vanish() -> None:
    before = host(holds=frozenset({"a"}), sources={**host().sources, "packages.holds": source("a"), "packages": source("")})
    denied = {**before.sources, "packages.holds": source(status=SourceStatus.DENIED.value, reason="no")}
    assert compared(before, dataclasses.replace(before, holds=frozenset(), sources=denied)).hosts[0].changes == ()


def test_baselines_of_two_drivers_are_compared_for_the_same_gpus_and_image() -> None:
    kept = [
        Baseline(Key("sha256:ab", driver, "2.30.7", "engine", "nccl", ("0000:c1:00.0",)), at, (series(*rounds),)).to_json()
        for driver, at, rounds in (
            ("580.95.05", "2026-01-01T00:00:00Z", (100.0, 101.0)),
            ("580.105.08", "2026-02-01T00:00:00Z", (240.0, 241.0)),
        )
    ]
    before, after = (
        host(sources={**host().sources, "baselines": source(data=texts)}) for texts in (kept[:1], [*kept, "no baseline"])
    )
    assert [one[0] for one in found(before, after)] == ["fail"]
    assert found(after, after) == []


def kept_by(environment: str, at: str, *rounds: float, image: str = "engine") -> Baseline:
    key = Key("sha256:ab", "580.95.05", "2.30.7", image, "nccl", ("0000:c1:00.0",), environment)
    return Baseline(key, at, (series(*rounds),))


def test_figures_of_other_variables_or_images_are_no_regression_and_said() -> None:
    plain, other = kept_by("aa", "2026-01-01T00:00:00Z", 64.0, 65.0), kept_by("bb", "2026-02-01T00:00:00Z", 124.0, 125.0)
    image = kept_by("aa", "2026-02-01T00:00:00Z", 124.0, 125.0, image="engine:2")
    before, after, moved = (figures.of_baselines(some) for some in ([plain], [plain, other], [image]))
    assert list(figures.changes(before, after)) == list(figures.changes(before, moved)) == []
    assert [note.rpartition(" was ")[2] for note in figures.unpaired(before, after)] == ["measured after alone"]
    assert len(list(figures.unpaired(before, moved))) == 2
    assert list(figures.unpaired({}, after)) == list(figures.unpaired(before, before)) == []


@pytest.mark.parametrize(
    ("id", "old", "new", "changed"),
    [
        ("nccl.buffer-placement", "split: 2 % far", "far: 100 % far", True),
        ("nccl.buffer-placement", "2 % far", "100 % far", True),
        ("memory.near-free", "3.1 GiB free", "2.9 GiB free", False),
        ("memory.near-free", "3.1 GiB free", "not read", True),
    ],
)
def test_a_finding_that_is_as_bad_and_says_something_else_is_a_change_and_moving_numbers_are_none(
    id: str, old: str, new: str, changed: bool
) -> None:
    sides = [[dataclasses.replace(finding(id, Status.FAIL), summary=text)] for text in (old, new)]
    told = list(placement.changes(*sides))
    assert [change.grade for change in told] == ([Grade.CHANGED] if changed else [])

"""What holds for every fleet and every state: batches, what is kept on hosts, plans for review, network file systems."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control.rollout.loads import Loads
from nearsocket.control.rollout.order import batches
from nearsocket.model import networkfs
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.machine import Mount
from nearsocket.model.rollout import plan, progress
from nearsocket.model.rollout.plan import Entry, Reviewed
from nearsocket.model.rollout.progress import Phase, Progress, unfinished

NAMES = st.lists(st.text("abc", min_size=1, max_size=3), max_size=12, unique=True)


@given(NAMES, st.integers(1, 9))
def test_every_host_comes_once_in_its_order_the_first_alone_and_no_batch_is_larger_than_asked(names: list[str], most: int) -> None:
    made = batches(names, most)
    assert [name for batch in made for name in batch] == names
    assert all(0 < len(batch) <= most for batch in made)
    assert not made or len(made[0]) == 1
    assert all(len(batch) == most for batch in made[1:-1])


@given(NAMES, st.integers(1, 9), st.integers(0, 12))
def test_the_canary_is_the_first_host_with_something_to_do_and_is_alone(names: list[str], most: int, idle: int) -> None:
    made = batches(names, most, min(idle, len(names)))
    assert [name for batch in made for name in batch] == names
    assert all(0 < len(batch) <= most for batch in made)
    if idle < len(names):
        assert (names[idle],) in made


@st.composite
def progresses(draw: st.DrawFn, hosts: list[str] | None = None) -> Progress:
    names = hosts or ["r1", "r2"]
    return Progress(
        draw(st.text(min_size=1, max_size=8)),
        "site",
        draw(st.text(max_size=20)),
        f"2030-01-01T00:00:0{draw(st.integers(0, 9))}Z",
        draw(st.sampled_from(names)),
        dict.fromkeys(names, draw(st.text(max_size=8))),
        draw(st.none() | st.text("123", min_size=1, max_size=2)),
        draw(st.sampled_from(Phase)),
        draw(st.text(max_size=20)),
        draw(st.booleans()),
        draw(st.text(max_size=8)),
        draw(st.none() | st.text(max_size=8)),
    )


@given(progresses())
def test_what_is_kept_on_a_host_comes_back_as_it_was(made: Progress) -> None:
    assert progress.from_json(made.to_json()) == made
    assert list(progress.from_json(made.to_json()).wanted) == list(made.wanted)


@given(st.text() | st.just("[]") | st.just("null") | st.just('{"schema": "nearsocket.rollout-state/1"}'))
def test_a_file_that_is_no_such_state_is_one_line(text: str) -> None:
    with pytest.raises(NearsocketError) as error:
        progress.from_json(text)
    assert "\n" not in error.value.message


@given(st.text() | st.just("[]") | st.just('{"schema": "nearsocket.rollout-plan/1", "hosts": [1]}'))
def test_a_file_that_is_no_plan_is_a_slip_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as error:
        plan.from_json(text)
    assert "\n" not in error.value.message


@given(NAMES, st.none() | st.text("12", min_size=1))
def test_a_plan_comes_back_as_it_was(names: list[str], current: str | None) -> None:
    made = Reviewed("site", "ops@here", "2030-01-01T00:00:00Z", tuple(Entry(n, current, None, "w", "f", ("x",)) for n in names))
    assert plan.from_json(made.to_json()) == made


def at(host: str, phase: Phase, id: str = "x", moment: int = 1, closed: bool = False) -> Progress:
    return Progress(id, "site", "o", f"2030-01-01T00:00:0{moment}Z", host, {"r1": "w", "r2": "w"}, "1", phase, "", closed)


@pytest.mark.parametrize(
    ("found", "open_"),
    [
        ({"r1": None, "r2": None}, None),
        ({"r1": at("r1", Phase.VERIFIED), "r2": at("r2", Phase.VERIFIED)}, None),
        ({"r1": at("r1", Phase.VERIFIED), "r2": None}, "x"),
        ({"r1": at("r1", Phase.BEGUN)}, "x"),
        ({"r1": at("r1", Phase.VERIFIED, closed=True), "r2": None}, None),  # r2 was installed anew since
        ({"r1": at("r1", Phase.FAILED), "r2": at("r2", Phase.VERIFIED, "y", 2)}, "y"),  # y is not at its end on r1
        ({"r1": at("r1", Phase.VERIFIED, "y", 2), "r2": at("r2", Phase.ROLLED_BACK)}, "y"),
        ({"r1": at("r1", Phase.VERIFIED, "y", 2, closed=True), "r2": at("r2", Phase.FAILED)}, "x"),
    ],
)
def test_a_rollout_is_at_its_end_where_one_host_says_so_or_all_are_proven(
    found: dict[str, Progress | None], open_: str | None
) -> None:
    left = unfinished(found)
    assert (left.id if left else None) == open_


def mount(point: str, kind: str, source: str) -> Mount:
    return Mount(point, kind, source, ())


def test_models_are_counted_by_the_network_file_system_that_they_lie_on() -> None:
    mounts = [
        mount("/", "ext4", "/dev/sda1"),
        mount("/srv", "nfs4", "filer:/models"),
        mount("/srv/local", "xfs", "/dev/nvme0n1"),
        mount("/srv2", "nfs", "filer:/models"),
        mount("/m", "xfs", "/dev/sdb"),
        mount("/m", "ceph", "mon1:/m"),
    ]
    assert networkfs.source(mounts, "/srv/models/m") == networkfs.source(mounts, "/srv2/m") == "nfs filer:/models"
    assert networkfs.source(mounts, "/srv/local/m") is None
    assert networkfs.source(mounts, "/srvx") is None
    assert networkfs.sources(mounts, ["/m/a", "/srv", "/etc"]) == {"ceph mon1:/m", "nfs filer:/models"}


def test_no_more_hosts_than_asked_load_from_one_file_system_at_a_time() -> None:
    loads, barrier = Loads(2), threading.Barrier(2, timeout=20)
    at_work, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal at_work, most
        with loads.loading(frozenset({"nfs a", "nfs b"})):
            with lock:
                at_work += 1
                most = max(most, at_work)
            barrier.wait()  # two are in at the same time, or this breaks
            with lock:
                at_work -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2
    with Loads(0).loading(frozenset({"nfs a"})), Loads(0).loading(frozenset({"nfs a"})):
        pass  # no limit

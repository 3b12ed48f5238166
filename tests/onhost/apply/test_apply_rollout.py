"""A rollout's part on one host: what is written down when, replicas one by one, marks, a cut, and leaving the host."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from nearsocket.model import order as orders
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.order import Order, StopAt
from nearsocket.model.rollout import inforce
from nearsocket.model.rollout.inforce import InForce
from nearsocket.model.rollout.progress import Phase, Progress
from nearsocket.model.snapshot import SourceStatus
from nearsocket.onhost.apply import entry, lock, progress
from nearsocket.onhost.apply.run import installed
from nearsocket.onhost.apply.systemctl import Systemctl
from tests.onhost.apply.kill import killed
from tests.onhost.apply.made import Host, generation

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("quick_disk")]
OLD, NEW = generation({"a": "one", "b": "one"}), generation({"a": "two", "b": "two"})
BEGUN = Progress("x", "site", "ops@here", "2030-01-01T00:00:00Z", "h", {"h": "sha256:w"}, "1")


@pytest.fixture
def host(root: Path) -> Host:
    """A host that serves from generation 1, whose starts leave proofs."""
    made = Host(root)
    made.system.change(proofs={})
    made.at("/models/m").mkdir(parents=True)
    assert made.apply(OLD).error is None
    return made


def left(host: Host) -> Progress:
    found = progress.read(host.tree)
    assert found is not None
    return found


def test_an_order_carries_a_rollout_there_and_back() -> None:
    made = Order(NEW, one_by_one=StopAt.FAILURE, rollout=BEGUN, surveyed=InForce(3, "sha256:w"))
    assert orders.from_json(made.to_json()) == made
    assert orders.from_json(Order(NEW, surveyed=InForce()).to_json()).surveyed == InForce()
    assert orders.from_json(Order(number=3).to_json()).rollout is None


def test_an_apply_writes_down_that_it_began_and_that_it_is_done(host: Host) -> None:
    host.system.change(broken=["nearsocket-x-b.service"])
    outcome = host.apply(NEW, rollout=BEGUN)
    assert outcome.error is not None
    assert (left(host).phase, left(host).previous) == (Phase.FAILED, "1")
    assert "nearsocket-x-b.service" in left(host).reason
    host.system.change(broken=[])
    assert host.apply(NEW, rollout=BEGUN).error is None
    assert left(host).phase is Phase.APPLIED
    assert host.apply(None, number=1, rollout=BEGUN.at(Phase.FAILED, "far")).error is None
    assert (left(host).phase, left(host).reason) == (Phase.ROLLED_BACK, "far")


def test_a_dry_apply_and_one_that_is_refused_write_nothing_down(host: Host) -> None:
    assert host.apply(NEW, rollout=BEGUN, dry=True).error is None
    host.at("/etc/nearsocket/freeze").write_text("reason: audit week\n")
    frozen = host.apply(NEW, dry=True)
    assert "audit week" in str(frozen.frozen)
    assert host.apply(NEW, rollout=BEGUN).error is not None
    assert progress.read(host.tree) is None


@pytest.mark.parametrize("dry", [False, True])
def test_an_order_for_another_generation_than_the_one_in_force_changes_nothing(host: Host, dry: bool) -> None:
    seen = InForce(1, OLD.manifest.digest)
    assert host.apply(generation({"a": "theirs", "b": "one"})).error is None  # by hand, with no record
    before, calls = host.tree_of_files(), len(host.system.calls("start"))
    outcome = host.apply(NEW, rollout=BEGUN, surveyed=seen, dry=dry)
    assert outcome.moved
    assert not outcome.wrote
    assert "expected generation 1 (sha256:" in str(outcome.error)
    assert "found generation 2 (sha256:" in str(outcome.error)
    assert (host.tree_of_files(), len(host.system.calls("start"))) == (before, calls)


def test_what_an_order_was_made_for_is_the_number_and_the_digest(host: Host) -> None:
    digest = OLD.manifest.digest
    for seen in (InForce(), InForce(1, "sha256:other"), InForce(2, digest), InForce(1)):
        assert host.apply(NEW, surveyed=seen, dry=True).moved
    assert host.apply(NEW, surveyed=InForce(1, digest), dry=True).error is None
    assert host.apply(NEW, dry=True).error is None


def test_a_manifest_that_cannot_be_read_is_what_the_survey_says_of_it_too(host: Host) -> None:
    path = host.tree.generation(1) / "manifest.json"
    path.unlink()
    path.write_bytes(b"{}")
    found = installed(b"", host.tree, Systemctl(host.system))
    assert (found.number, found.digest) == (1, None)
    assert not host.apply(NEW, surveyed=InForce(found.number, found.digest), dry=True).moved


def test_where_nothing_is_in_force_an_order_says_so(root: Path) -> None:
    host = Host(root)
    assert not host.apply(OLD, surveyed=InForce(), dry=True).moved
    assert host.apply(OLD, surveyed=InForce(1, OLD.manifest.digest), dry=True).moved


@pytest.mark.parametrize("value", [{"number": "1"}, {"number": True}, {"digest": 1}, {"other": 1}, [1], {"number": 1.5}])
def test_a_generation_of_another_shape_is_refused(value: object) -> None:
    with pytest.raises(NearsocketError, match="expected a generation"):
        inforce.from_value(value)


def test_an_apply_that_finds_all_done_says_so(host: Host) -> None:
    assert host.apply(OLD, rollout=BEGUN).changes == ()
    assert left(host).phase is Phase.APPLIED


def test_a_cut_at_any_step_leaves_a_state_that_can_be_read_and_the_next_run_completes(tmp_path: Path) -> None:
    for at in range(1, 1000):
        host = Host(tmp_path / str(at))
        assert host.apply(OLD).error is None
        if not killed(lambda bomb, host=host: host.apply(NEW, rollout=BEGUN), at, False):  # type: ignore[misc]
            break
        found = progress.read(host.tree)
        assert found is None or found.phase in (Phase.BEGUN, Phase.APPLIED)
        assert found is not None or host.tree.number() == 1
        assert host.apply(NEW, rollout=BEGUN).error is None
        assert host.holds(NEW)
        assert left(host).phase is Phase.APPLIED
        assert not list(host.root.rglob(".nearsocket-new-*"))
    assert at > 40


def starts(host: Host) -> list[list[str]]:
    """Which units were started together, in their order."""
    return [[word for word in words[2:] if word.endswith(".service")] for words in host.system.calls("start")]


def test_replicas_start_one_after_another_each_with_its_time(root: Path) -> None:
    host = Host(root)
    host.system.change(proofs={})
    outcome = host.apply(OLD, one_by_one=StopAt.UNKNOWN)
    assert outcome.error is None
    assert starts(host) == [["nearsocket-x-a.service"], ["nearsocket-x-b.service"]]
    assert {"unit nearsocket-x-a.service", "unit nearsocket-x-b.service"} <= outcome.timings.keys()


@pytest.mark.parametrize(
    ("word", "stop_at", "stops"),
    [
        ("far", StopAt.UNKNOWN, True),
        ("far", StopAt.FAILURE, True),
        ("far", StopAt.NOTHING, False),
        ("unknown", StopAt.UNKNOWN, True),
        ("unknown", StopAt.FAILURE, False),
        ("none", StopAt.UNKNOWN, True),
        ("none", StopAt.FAILURE, False),
        ("near", StopAt.UNKNOWN, False),
    ],
)
def test_what_a_starts_proof_says_stops_the_replicas_behind_it(host: Host, word: str, stop_at: StopAt, stops: bool) -> None:
    host.system.change(proofs={"a": word})
    before = host.system.state["active"]["nearsocket-x-b.service"]["id"]
    outcome = host.apply(NEW, one_by_one=stop_at)
    assert bool(outcome.error) is stops, outcome.error
    assert (host.system.state["active"]["nearsocket-x-b.service"]["id"] == before) is stops
    if stops:
        host.system.change(proofs={})
        assert host.apply(None, number=1, one_by_one=StopAt.NOTHING).error is None
        assert host.holds(OLD)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_replica_that_was_not_proven_is_started_anew_by_the_next_apply(root: Path, fresh: bool) -> None:
    host = Host(root)
    host.system.change(proofs={})
    if not fresh:
        assert host.apply(OLD).error is None
    host.system.change(proofs={"b": "far"}, mends="b")
    assert host.apply(NEW, one_by_one=StopAt.UNKNOWN).error is not None
    before = host.system.state["active"]
    outcome = host.apply(NEW, one_by_one=StopAt.UNKNOWN)
    assert outcome.error is None
    assert [str(change) for change in outcome.changes] == ["restart unit nearsocket-x-b.service"]
    after = host.system.state["active"]
    assert before["nearsocket-x-a.service"] == after["nearsocket-x-a.service"]
    assert before["nearsocket-x-b.service"]["id"] != after["nearsocket-x-b.service"]["id"]
    assert host.apply(NEW).changes == ()


def test_an_old_starts_proof_is_none_of_a_new_one(host: Host) -> None:
    """The verdict that lies there is near, and the start that is judged left none."""
    host.system.change(proofs={"a": "none"})
    assert "left no proof" in str(host.apply(NEW, one_by_one=StopAt.UNKNOWN).error)


def mark(host: Host, at: Progress) -> None:
    progress.main(["--lock-wait", "0", "--root", str(host.root)], at.to_json().encode())


def test_a_mark_is_of_who_has_the_host_and_takes_it_over_only_from_the_record_that_its_client_saw(host: Host) -> None:
    mark(host, BEGUN)
    mark(host, BEGUN.at(Phase.VERIFIED))
    assert left(host).phase is Phase.VERIFIED
    other = dataclasses.replace(BEGUN, id="y", by="them@there")
    with pytest.raises(NearsocketError, match="found it in x by ops@here"):
        mark(host, other)
    assert "found it in x by ops@here" in str(host.apply(NEW, rollout=other).error)
    assert (left(host).id, host.tree.number()) == ("x", 1)
    mark(host, dataclasses.replace(other, over=BEGUN.key))
    assert left(host).id == "y"


def test_a_mark_waits_for_the_apply_that_is_at_work(host: Host) -> None:
    with lock.exclusive(host.tree, "ops@here", 0), pytest.raises(NearsocketError, match="another at work: process"):
        mark(host, BEGUN)


def test_a_survey_waits_for_the_apply_that_is_at_work(host: Host) -> None:
    entry.idle(str(host.root), 0)
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        with lock.exclusive(host.tree, "ops@here", 0):
            begun.set()
            over.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert begun.wait(20)
        with pytest.raises(NearsocketError, match="another at work"):
            entry.idle(str(host.root), 0)
        over.set()
        entry.idle(str(host.root), 20)
    finally:
        over.set()
        thread.join()


def test_a_state_that_is_none_is_told_and_never_taken_for_none_at_all(host: Host) -> None:
    assert progress.source(host.tree).status is SourceStatus.ABSENT
    host.tree.rollout.write_text("{}")
    source = progress.source(host.tree)
    assert source.status is SourceStatus.ERROR
    assert "/var/lib/nearsocket/rollout.json: expected nearsocket.rollout-state/1" in str(source.reason)


@pytest.mark.parametrize("given", [b"", b"\xff", b'{"schema": "nearsocket.rollout-state/1"}'])
def test_a_mark_of_something_else_is_a_line(host: Host, given: bytes) -> None:
    with pytest.raises(NearsocketError, match="expected nearsocket"):
        progress.main(["--root", str(host.root)], given)
    with pytest.raises(UsageError):
        progress.main(["--no"], given)


def test_it_goes_when_the_host_is_left(host: Host) -> None:
    mark(host, BEGUN)
    assert host.apply(None, remove=True).error is None
    assert not host.at("/var/lib/nearsocket").exists()

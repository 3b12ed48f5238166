"""The probe before a start: when it comes, what it keeps down, what it leaves, and that nothing of it outlives a cut."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from nearsocket.model.order import StopAt
from nearsocket.model.outcome import Outcome
from nearsocket.model.places import probing_file, proven_file
from nearsocket.model.probe.path import DueProbe, PathProbe, Result
from nearsocket.model.probe.starts import Started, StartOrder
from nearsocket.onhost.apply import entry, journal, proven
from nearsocket.onhost.apply.pathprobe import Ways
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.command import Output
from tests import build
from tests.onhost.apply.kill import Bomb, killed
from tests.onhost.apply.made import Host, generation
from tests.onhost.apply.probes import IDLE, Played, applied, good, probe, standin

ONE = generation({"a": "one", "b": "one"}, mount=True)
TWO = generation({"a": "two", "b": "one"}, mount=True)
BOTH = (probe("a"), probe("b"))
UNIT = "nearsocket-x-a.service"


def probed(outcome: Outcome) -> list[str]:
    """The changes that are probes."""
    return [str(change) for change in outcome.changes if change.action.value == "probe"]


def dead(start: StartOrder) -> Started:
    return dataclasses.replace(good(start), failed="ended by signal 9 at round 1", failed_rank=1)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def test_every_replica_is_probed_once_before_its_first_start_and_not_again(host: Host) -> None:
    played = Played(host)
    outcome = applied(host, ONE, BOTH, played.ways())
    assert (outcome.error, outcome.notes) == (None, ())
    assert probed(outcome) == ["probe replica a (never proven)", "probe replica b (never proven)"]
    each = [[f"relieve {name}, running []", "look", f"run nearsocket-path-{name}-0"] for name in ("a", "b")]
    assert played.log == [*each[0], *each[1]]
    assert [(one.replica, one.result) for one in outcome.probes] == [("a", Result.PROVEN), ("b", Result.PROVEN)]
    assert [one.size_bytes for one in outcome.probes[0].sizes] == [4096, 12 << 10]
    assert host.holds(ONE)
    again = applied(host, ONE, BOTH, played.ways())
    assert (again.changes, again.probes, len(played.log)) == ((), (), 6)


def test_a_dry_run_shows_the_probe_and_runs_none(host: Host) -> None:
    played = Played(host)
    shown = applied(host, ONE, BOTH, played.ways(), dry=True)
    assert probed(shown) == ["probe replica a (never proven)", "probe replica b (never proven)"]
    assert (played.log, host.system.state["active"]) == ([], {})


def test_a_restart_is_probed_while_its_unit_is_down_and_only_where_the_path_is_new(host: Host) -> None:
    assert applied(host, ONE, BOTH, Played(host).ways()).error is None
    same = Played(host)
    assert applied(host, TWO, BOTH, same.ways()).error is None
    assert same.log == []  # its files changed, nothing that the path depends on
    assert host.holds(TWO)
    new = Played(host)
    outcome = applied(host, ONE, (probe("a", driver="2"), probe("b", driver="2")), new.ways())
    assert outcome.error is None
    assert probed(outcome) == ["probe replica a (new driver)"]
    assert new.log == ["relieve a, running ['nearsocket-x-b.service']", "look", "run nearsocket-path-a-0"]
    assert host.holds(ONE)
    assert json.loads(host.at(proven_file("a")).read_text())["basis"]["driver"] == "2"


def test_the_replicas_mount_is_held_for_the_probe_and_let_go_before_the_start(host: Host) -> None:
    applied(host, ONE, BOTH[:1], Played(host).ways())
    calls = [words for words in host.system.state["calls"] if words[0] == "systemd-run" or words[1:2] in (["start"], ["stop"])]
    (held,) = [at for at, words in enumerate(calls) if words[0] == "systemd-run"]
    assert "--property=Requires=run-nearsocket-shm-a.mount" in calls[held]
    assert "--unit=nearsocket-path-a.service" in calls[held]
    assert calls[held + 1][:2] == ["systemctl", "start"]


def test_a_broken_path_keeps_its_replica_down_and_lets_the_others_start(host: Host) -> None:
    played = Played(host, lambda start: dead(start) if "-a-" in start.container else good(start))
    outcome = applied(host, ONE, BOTH, played.ways())
    failed = "the probe before the start of replica a failed: rank 1: ended by signal 9 at round 1"
    assert outcome.error == f"{UNIT} is not started: {failed}"
    assert "before_start: never" in str(outcome.hint)
    assert outcome.wrote
    assert played.running() == ["nearsocket-x-b.service"]
    assert journal.read(host.tree) is not None
    assert not host.at(proven_file("a")).exists()
    mended = Played(host)
    outcome = applied(host, ONE, BOTH, mended.ways())
    assert outcome.error is None
    assert probed(outcome) == ["probe replica a (never proven)"]
    assert host.holds(ONE)
    assert journal.read(host.tree) is None


def test_a_restart_whose_path_breaks_stays_down_and_the_next_run_starts_it(host: Host) -> None:
    assert applied(host, ONE, BOTH, Played(host).ways()).error is None
    newer = (probe("a", image="x"), BOTH[1])
    outcome = applied(host, TWO, newer, Played(host, dead).ways())
    assert outcome.error is not None
    assert outcome.error.startswith(f"{UNIT} did not restart: the probe before the start of replica a failed: rank 1")
    assert Played(host).running() == ["nearsocket-x-b.service"]
    assert [entry.unit for entry in (journal.read(host.tree) or pytest.fail("no journal")).restart] == [UNIT]
    assert applied(host, TWO, newer, Played(host).ways()).error is None
    assert host.holds(TWO)


@pytest.mark.parametrize("why", ["no torch", "held", "fault"])
def test_what_cannot_be_found_out_is_a_note_and_the_start_goes_on(host: Host, why: str) -> None:
    def answer(start: StartOrder) -> Started:
        if why == "fault":
            raise RuntimeError("nobody foresaw this")
        return Started("a", failed="expected torch in the ranks' Python, found none at start", failed_rank=0, lacks=True)

    played = Played(host, answer, build.host() if why == "held" else IDLE)
    outcome = applied(host, ONE, BOTH[:1], played.ways())
    said = {"no torch": "expected torch", "held": "process 4242 (sglang::scheduler_TP0", "fault": "nobody foresaw this"}[why]
    assert outcome.error is None
    assert len(outcome.notes) == 1
    assert said in outcome.notes[0]
    assert host.holds(ONE)
    assert not host.at(proven_file("a")).exists()  # so that the next start asks again
    assert not host.at(probing_file("a")).exists()


def test_a_record_that_was_damaged_by_hand_is_proven_anew(host: Host) -> None:
    assert applied(host, ONE, BOTH[:1], Played(host).ways()).error is None
    host.at(proven_file("a")).write_text("[1]")
    assert probed(applied(host, TWO, BOTH[:1], Played(host).ways())) == ["probe replica a (never proven)"]


def test_what_is_known_of_a_path_goes_with_its_replica_and_with_nearsocket(host: Host) -> None:
    assert applied(host, ONE, BOTH, Played(host).ways()).error is None
    left = generation({"b": "one"}, mount=True)
    assert applied(host, left, BOTH, Played(host).ways(), allow_removals=True).error is None
    assert (host.at(proven_file("a")).exists(), host.at(proven_file("b")).exists()) == (False, True)
    assert applied(host, None, (), Played(host).ways(), remove=True).error is None
    assert not host.at("/var/lib/nearsocket").exists()


@pytest.mark.parametrize(
    ("fault", "limit_s", "said"),
    [
        ("", 60.0, None),
        ("wrong-sum", 60.0, "wrong sums"),
        ("dead-rank", 60.0, "rank 1: ended with code 1 at round 1, 12288 bytes"),
        ("hang", 5.0, "not done within 5 s; last heard at round 1, 12288 bytes"),
    ],
)
def test_real_ranks_with_a_fault_keep_the_engine_down_and_nothing_of_them_runs_on(
    host: Host, fault: str, limit_s: float, said: str | None
) -> None:
    run = entry.ways(host.tree, lambda: IDLE).run
    outcome = applied(host, ONE, (standin(fault, limit_s),), Ways(lambda: IDLE, lambda name: None, run))
    assert Played(host).running() == ["nearsocket-x-a.service", "nearsocket-x-b.service"][1 if said else 0 :]
    if said is None:
        assert (outcome.error, [one.result for one in outcome.probes]) == (None, [Result.PROVEN])
        assert "near: 8 ring buffers" in outcome.probes[0].summary
    else:
        assert said in str(outcome.error)
    assert b"launcher" not in b"".join(path.read_bytes() for path in _command_lines())


def _command_lines() -> list[Path]:
    """Of this process's own children."""
    children = Path("/proc/self/task").glob("*/children")
    pids = [pid for path in children for pid in path.read_text().split()]
    return [path for pid in pids if (path := Path(f"/proc/{pid}/cmdline")).exists()]


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("quick_disk")
def test_a_cut_at_any_step_of_a_probe_leaves_no_container_and_the_next_run_completes(tmp_path: Path) -> None:
    base = Host(tmp_path / "base")
    assert applied(base, ONE, BOTH, Played(base).ways()).error is None
    newer: tuple[PathProbe, ...] = (probe("a", image="x"), BOTH[1])
    inside = 0
    for at in range(1, 1000):
        root = tmp_path / "root"
        shutil.copytree(base.root, root, symlinks=True)
        host = Host(root)

        def run(bomb: Bomb, host: Host = host) -> None:
            def counted(argv: Sequence[str], limit_s: float) -> Output:
                answer: Output = bomb.step(lambda: host.system(argv, limit_s))
                return answer

            def steps(start: StartOrder) -> Started:
                found: Started = bomb.step(lambda: good(start))
                return found

            ways = Played(host, steps).ways()
            assert applied(host, TWO, newer, ways, counted).error is None

        if not killed(run, at, False):
            break
        cut_inside = any("path" in name for name in host.system.state["containers"])
        inside += cut_inside
        made, probes = ((TWO, newer), (ONE, BOTH))[at % 2] if not cut_inside else ((ONE, BOTH), (TWO, newer))[at % 2]
        outcome = applied(host, made, probes, Played(host).ways())
        assert outcome.error is None
        assert host.holds(made)
        assert host.system.state["containers"] == []
        assert not host.at(probing_file("a")).exists()
        again = applied(host, made, probes, Played(host).ways())
        assert (again.changes, again.error) == ((), None)
        shutil.rmtree(root)
    assert inside >= 1, "expected cuts while the ranks run"
    assert at > 60


def test_one_by_one_a_broken_path_stops_the_replicas_behind_it(host: Host) -> None:
    played = Played(host, answer=lambda start: dead(start) if start.container == "nearsocket-path-a-0" else good(start))
    outcome = applied(host, ONE, BOTH, played.ways(), one_by_one=StopAt.FAILURE)
    assert f"{UNIT} is not started" in str(outcome.error)
    assert played.running() == []
    assert "run nearsocket-path-b-0" not in played.log
    again = applied(host, ONE, BOTH, Played(host).ways(), one_by_one=StopAt.FAILURE)
    assert again.error is None
    assert host.holds(ONE)


@pytest.mark.parametrize(
    ("said", "ended"),
    [("Error: No such container: c", True), ("Cannot connect to the Docker daemon at unix:///run/docker.sock.", False)],
)
def test_a_probe_that_was_cut_off_is_ended_only_where_the_runtime_says_that_no_container_is_left(
    host: Host, said: str, ended: bool
) -> None:
    proven.begin(host.tree, DueProbe(probe("a"), ONE.manifest.replicas[0], "never proven"))
    proven.sweep(host.tree, Systemctl(lambda argv, _limit: Output(1 if argv[0] == "docker" else 0, "", said)))
    assert host.at(probing_file("a")).exists() is not ended

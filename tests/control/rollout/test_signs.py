"""Signs of life: a colleague waits out a client that is lost, is refused by one that is at work, and may take over from it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control import program
from nearsocket.control.rollout import beating, thisrun
from nearsocket.control.rollout.job import Place
from nearsocket.control.target import Target, Way
from nearsocket.control.transport import Answer, Transport, TransportError, Trouble
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout import beat as beats
from nearsocket.model.rollout.beat import GONE_S, Beat, Seen
from nearsocket.model.rollout.progress import Phase, Progress
from nearsocket.onhost.apply import beat, progress
from nearsocket.onhost.apply.tree import Tree
from tests.control.rollout.fleet import APPLY, SEEN, SURVEY, Fleet, make

NAMES = ("r1", "r2", "r3")
SIGN = Beat("x", "site", "1", "them@there", "2030-01-01T00:00:00Z")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


@pytest.fixture
def cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Three hosts that serve, and a change whose client was killed during the second one's apply, its last sign a moment old."""
    fleet = make(tmp_path, NAMES, monkeypatch)
    assert set(fleet.ends().values()) == {"verified"}
    fleet.want(environment={"NEW": "1"})
    fleet.host("r2").lose = (APPLY, True)
    fleet.killed()
    shows_itself(fleet, 1)
    fleet.log.clear()
    return fleet


def shows_itself(fleet: Fleet, count: int, run: str = "") -> Beat:
    """The sign that the killed client would give on r2."""
    left = fleet.host("r2").left
    assert left is not None
    made = Beat(left.id, left.job, left.client, "them@there", "2030-01-01T00:00:00Z", run=run, count=count)
    beat.keep(fleet.host("r2").tree, made)
    return made


def test_a_killed_clients_last_sign_is_waited_out_visibly_and_its_rollout_goes_on(cut: Fleet) -> None:
    report = cut.roll(resume=True)
    assert report.exit_code == 0
    assert [host.end.value for host in report.hosts] == ["verified-earlier", "verified", "verified"]
    assert GONE_S - 1 <= cut.now <= GONE_S
    assert cut.said[0].startswith("waiting 120 s at most: them@there (site ")
    assert "since 2030-01-01T00:00:00Z) at work on r2, last seen 0 s ago" in cut.said[0]
    assert len(cut.said) == 1


def test_a_rollout_is_begun_anew_behind_a_killed_client_once_that_is_waited_out(cut: Fleet) -> None:
    cut.want(environment={"NEW": "2"})
    assert cut.roll(anew=True).exit_code == 0
    assert cut.now > 100


def test_a_client_that_is_at_work_is_not_disturbed(cut: Fleet) -> None:
    counts = iter(range(2, 9))
    cut.meanwhile = lambda: shows_itself(cut, next(counts)) if cut.now >= 30 else None
    with pytest.raises(NearsocketError, match="expected nobody at work on these hosts, found them@there") as told:
        cut.roll(resume=True)
    assert "at work on r2, last seen 0 s ago" in told.value.message
    assert "120 s behind its last sign of life), or --take-over" in str(told.value.hint)
    assert told.value.exit_code == 2
    assert cut.now < 40
    assert cut.log == []  # not even looked at


def test_who_takes_over_waits_for_nobody_and_the_report_says_so(cut: Fleet) -> None:
    report = cut.roll(resume=True, take_over=True)
    assert report.exit_code == 0
    assert (cut.now, cut.said) == (0.0, [])
    assert [note for host in report.hosts for note in host.notes if "taken over" in note] == [report.hosts[1].notes[0]]
    assert report.hosts[1].notes[0].startswith("taken over from them@there (site ")


def test_a_client_that_shows_itself_while_its_apply_is_waited_for_is_seen_behind_the_look(cut: Fleet) -> None:
    cut.host("r2").tree.beat.unlink()
    host = cut.host("r2")
    plain = host.run
    host.log.clear()

    def asked(command: str, stdin: bytes, timeout_s: float, children: Any) -> Answer:
        answer = plain(command, stdin, timeout_s, children)
        if b"survey\0--timeout" in stdin:
            shows_itself(cut, 7)
        return answer

    host.run = asked  # type: ignore[method-assign]
    cut.meanwhile = lambda: shows_itself(cut, 8)
    with pytest.raises(NearsocketError, match="expected nobody at work"):
        cut.roll(resume=True)
    assert host.log.count(SURVEY) == 1
    assert APPLY not in host.log


def test_a_rollout_that_came_to_its_end_well_or_badly_leaves_no_sign_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = make(tmp_path, NAMES, monkeypatch)
    fleet.host("r2").prove(b="far")
    assert fleet.ends() == {"r1": "verified", "r2": "failed", "r3": "not-touched"}
    assert not any(host.tree.beat.exists() for host in fleet.hosts)
    fleet.host("r2").prove()
    assert fleet.roll(resume=True).exit_code == 0
    assert not any(host.tree.beat.exists() for host in fleet.hosts)
    assert (fleet.now, fleet.said) == (0.0, [])


def test_a_sign_that_is_old_a_host_without_an_answer_and_one_that_is_no_sign_hold_nobody_up(cut: Fleet) -> None:
    path = cut.host("r2").tree.beat
    past = path.stat().st_mtime - GONE_S
    os.utime(path, (past, past))
    cut.host("r1").tree.beat.write_text("{}")
    cut.host("r3").broken[SEEN] = "expected an answer, found the connection closed"
    assert cut.roll(resume=True).exit_code == 0
    assert (cut.now, cut.said) == (0.0, [])


def test_a_client_of_this_machine_that_is_no_more_is_not_waited_for(cut: Fleet) -> None:
    code = "import sys; from nearsocket.control.rollout import thisrun; sys.stdout.write(thisrun.mine())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert thisrun.is_gone(ended.stdout)
    shows_itself(cut, 2, ended.stdout)
    assert cut.roll(resume=True).exit_code == 0
    assert cut.now == 0.0


def test_a_process_is_gone_only_where_that_is_sure() -> None:
    machine, pid, began = thisrun.mine().split("/")
    above = os.getppid()
    assert not thisrun.is_gone(f"{machine}/{above}/{thisrun._began(above)}")
    assert thisrun.is_gone(f"{machine}/{pid}/{began}")  # an earlier run of this process
    assert thisrun.is_gone(f"{machine}/{pid}/{int(began) + 1}")  # its id is another's by now
    for run in ("", "//", f"{machine}/", f"{machine}/x/1", f"{machine}/{10**30}/1", f"other/{2**22 + 1}/1", f"{machine}/{pid}/"):
        assert not thisrun.is_gone(run)


def test_where_a_host_gives_no_answer_once_its_last_sign_stands(cut: Fleet) -> None:
    def lost() -> None:
        cut.host("r2").broken[SEEN] = "expected an answer, found the connection closed"

    cut.meanwhile = lost
    assert cut.roll(resume=True).exit_code == 0
    assert GONE_S - 1 <= cut.now <= GONE_S


# On a host


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.beat.parent.mkdir(parents=True)
    return made


def test_a_sign_is_kept_seen_and_taken_away_by_its_own_client_alone(tree: Tree) -> None:
    assert beat.seen(tree) is None
    beat.main(["--root", str(tree.root)], SIGN.to_json().encode())
    found = beats.seen_from(beat.answer(["--root", str(tree.root)]).decode())
    assert found is not None
    assert (found.beat, found.age_s < 60) == (SIGN, True)
    assert tree.beat.stat().st_mode & 0o777 == 0o600
    other = dataclasses.replace(SIGN, client="2")
    beat.main(["--bye", "yes", "--root", str(tree.root)], other.to_json().encode())
    assert beat.seen(tree) is not None
    beat.main(["--bye", "yes", "--root", str(tree.root)], SIGN.to_json().encode())
    assert beat.seen(tree) is None
    beat.main(["--bye", "yes", "--root", str(tree.root)], SIGN.to_json().encode())


def test_on_a_host_of_another_client_a_sign_is_refused_and_over_what_was_seen_it_is_not(tree: Tree) -> None:
    here = Progress("w", "site", "ops@here", "2030-01-01T00:00:00Z", "h", {"h": "w"}, phase=Phase.VERIFIED, client="7")
    progress.write(tree, here)
    with pytest.raises(NearsocketError, match="found another client at work"):
        beat.keep(tree, SIGN)
    beat.keep(tree, dataclasses.replace(SIGN, over="w/7"))
    beat.keep(tree, dataclasses.replace(SIGN, id="w", client="7"))


def test_nothing_is_written_on_a_host_that_has_nothing_of_ours(tmp_path: Path) -> None:
    beat.keep(Tree(tmp_path), SIGN)
    assert list(tmp_path.iterdir()) == []


def test_a_clock_that_was_set_back_and_a_boot_count_as_a_moment_ago(tree: Tree) -> None:
    beat.keep(tree, SIGN)
    later = tree.beat.stat().st_mtime + 9000
    os.utime(tree.beat, (later, later))
    assert beat.seen(tree) == Seen(SIGN, 0.0)
    os.utime(tree.beat, (later - 18000, later - 18000))
    found = beat.seen(tree)
    assert found is not None
    assert found.age_s > 8000
    tree.at("/proc").mkdir()
    tree.at("/proc/uptime").write_text("12.34 20.00\n")  # a host that was down could not be told
    assert beat.seen(tree) == Seen(SIGN, 12.3)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "[" * 60_000, '{"schema": "nearsocket.rollout-beat/1"}', "\0"])
def test_other_text_is_refused_in_one_line(tree: Tree, text: str) -> None:
    with pytest.raises(NearsocketError, match=r"^expected nearsocket\.rollout-beat/1"):
        beat.main(["--root", str(tree.root)], text.encode())
    assert not tree.beat.exists()


@given(st.builds(Beat, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, st.none() | TEXTS, TEXTS, st.integers()), st.floats(0, 1e9))
def test_a_sign_and_its_age_come_through(sign: Beat, age_s: float) -> None:
    assert beats.beat_from(sign.to_json()) == sign
    assert beats.seen_from(beats.seen_to_json(Seen(sign, age_s))) == Seen(sign, age_s)
    assert "\n" not in str(sign)


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3))


@given(st.dictionaries(st.sampled_from(["beat", "age_s", "schema", "id"]), JSON | st.just({"schema": beats.SCHEMA}), max_size=4))
def test_an_answer_of_another_shape_is_one_line(value: dict[str, object]) -> None:
    text = json.dumps({"schema": beats.SEEN, **value})
    try:
        assert beats.seen_from(text) is None
    except NearsocketError as error:
        assert "\n" not in error.message


# The client's side


class Listening(Transport):
    """A host that hears signs; `enough` is set with the third. It may lose every answer."""

    def __init__(self, deaf: bool = False) -> None:
        self.heard: list[str] = []
        self.enough, self.deaf = threading.Event(), deaf

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Answer:
        sizes = [int(word) for word in stdin[stdin.index(program.MARKER) :].split(b"\n", 1)[0].split()[1:]]
        given = stdin[len(stdin) - sizes[3] :].decode()
        bye = b"rollout-beat\0--bye" in stdin
        self.heard.append("bye" if bye else str(beats.beat_from(given).count))
        if len(self.heard) >= 3:
            self.enough.set()
        if self.deaf:
            raise TransportError(Trouble.UNREACHABLE, "expected an answer, found none", "look")
        return Answer(b"", "", 0.0)


@pytest.mark.parametrize("deaf", [False, True])
def test_a_client_shows_itself_until_its_turn_ends_and_says_that_it_goes_whatever_the_host_answers(deaf: bool) -> None:
    way = Listening(deaf)
    with beating.shown(Place(Target("h", Way.LOCAL), way, Children()), SIGN, 0.001):
        assert way.enough.wait(60)
    assert way.heard[:3] == ["1", "2", "3"]
    assert way.heard.count("bye") == 1
    assert way.heard[-1] == "bye"
    assert not [thread for thread in threading.enumerate() if thread.name == "beat-h"]


def test_a_client_that_is_cut_off_says_no_farewell() -> None:
    way = Listening()
    with pytest.raises(KeyboardInterrupt), beating.shown(Place(Target("h", Way.LOCAL), way, Children()), SIGN, 0.001):
        assert way.enough.wait(60)
        raise KeyboardInterrupt
    assert "bye" not in way.heard


def test_nothing_is_shown_where_nothing_is_to_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = make(tmp_path, NAMES, monkeypatch)
    fleet.roll()
    monkeypatch.setattr(beating, "_tell", lambda *_: pytest.fail("a sign"))
    assert set(fleet.ends().values()) == {"current"}

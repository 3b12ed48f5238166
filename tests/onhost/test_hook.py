"""A replica's own hooks: what they end with is kept, a limit of their own ends them, and an apply sees it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nearsocket.model import places
from nearsocket.model.errors import UsageError
from nearsocket.model.order import StopAt
from nearsocket.onhost import hook
from nearsocket.onhost.apply.tree import Tree
from tests.onhost.apply.made import Host, generation

BAD = [sys.executable, "-c", "import sys; sys.exit('the balancer says no')"]


def run(root: Path, name: str, *argv: str, timeout: str = "20") -> int:
    return hook.main(["--replica=a", f"--hook={name}", f"--timeout={timeout}", "--", *argv], Tree(root))


def test_a_hook_that_fails_is_told_and_kept_until_it_does_its_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "drain", *BAD) == 1
    assert "expected the drain hook to do its work, found: exit code 1: the balancer says no" in capsys.readouterr().err
    assert hook.failed(Tree(tmp_path), "a") == "replica a: its drain hook failed: exit code 1: the balancer says no"
    assert run(tmp_path, "undrain", sys.executable, "-c", "print('in')") == 0
    assert "in\n" in capsys.readouterr().err
    assert hook.failed(Tree(tmp_path), "a") is not None
    assert run(tmp_path, "drain", sys.executable, "-c", "") == 0
    assert hook.failed(Tree(tmp_path), "a") is None


def test_a_hook_that_hangs_is_ended_by_its_own_limit(tmp_path: Path) -> None:
    assert run(tmp_path, "undrain", sys.executable, "-c", "import time; time.sleep(600)", timeout="1") == 1
    assert "no answer in" in str(hook.failed(Tree(tmp_path), "a"))


def test_a_hook_that_is_not_there_is_a_line(tmp_path: Path) -> None:
    assert run(tmp_path, "undrain", "/nowhere/hook", "--timeout=9") == 1
    assert "/nowhere/hook is not installed" in str(hook.failed(Tree(tmp_path), "a"))


@pytest.mark.parametrize("words", [[], ["--replica=a", "--hook=drain"], ["--replica=a", "--hook=other", "--", "x"], ["--", "x"]])
def test_words_that_name_no_hook_are_a_slip(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(UsageError, match="expected"):
        hook.main(words, Tree(tmp_path))


@pytest.mark.parametrize("which", hook.HOOKS)
def test_one_by_one_a_hook_that_fails_stops_the_replicas_behind_it_and_elsewhere_it_is_a_note(tmp_path: Path, which: str) -> None:
    host = Host(tmp_path / "root")
    host.at("/models/m").mkdir(parents=True)
    old, new = generation({"a": "one", "b": "one"}), generation({"a": "two", "b": "two"})
    assert host.apply(old).error is None
    before = host.system.state["active"]["nearsocket-x-b.service"]["id"]
    host.system.change(hooks={"nearsocket-x-a.service": ["--replica=a", f"--hook={which}", "--", *BAD]})
    outcome = host.apply(new, one_by_one=StopAt.FAILURE)
    assert f"replica a: its {which} hook failed: exit code 1: the balancer says no" in str(outcome.error)
    assert host.system.state["active"]["nearsocket-x-b.service"]["id"] == before
    back = host.apply(None, number=1, one_by_one=StopAt.NOTHING)
    assert back.error is None
    assert any(f"its {which} hook failed" in note for note in back.notes)
    host.system.change(hooks={})
    again = host.apply(new, one_by_one=StopAt.FAILURE)
    assert (again.error, again.notes) == (None, ())
    assert not host.at(places.hook_failed("a", which)).exists()

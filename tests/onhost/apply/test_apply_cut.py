"""kill -9 and power cuts at every step of an apply, full disks, a read-only /etc: one generation or the other, never between."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from nearsocket.model.generation import Generation
from nearsocket.model.order import Order
from nearsocket.onhost.apply import disk, state
from nearsocket.onhost.apply.run import apply
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.command import Output
from tests.onhost.apply.kill import Bomb, killed
from tests.onhost.apply.made import PROGRAM, Host, generation

#: Some hundred applies each; seconds on a machine that is at rest.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("quick_disk")]

SWAPPINESS = "/proc/sys/vm/swappiness"
OLD = generation({"a": "one", "b": "one", "gone": "one"}, mount=True)
NEW = generation({"a": "two", "b": "one", "fresh": "one"}, sysctl={"vm.swappiness": "1"}, mount=True)
THIRD = generation({"a": "three", "b": "one"}, mount=True)


def prepared(root: Path, drift: bool) -> Host:
    host = Host(root)
    host.at(SWAPPINESS).parent.mkdir(parents=True)
    host.at(SWAPPINESS).write_text("60")
    assert host.apply(OLD).error is None
    if drift:
        (host.tree.current / "env/a.env").write_text("BY=hand\n")
    return host


def leftovers(host: Host) -> list[str]:
    return [str(path) for path in host.root.rglob("*") if path.name.startswith(disk.TEMPORARY)]


def whole(host: Host) -> bool:
    """Whether what `current` names is there in full."""
    number = host.tree.number()
    return number is not None and state.whole(host.tree, number, state.manifest_of(host.tree, number))


def settle(host: Host, made: Generation) -> None:
    """The next run completes, nothing is left over, and the run after it changes nothing."""
    before = host.system.state["active"].get("nearsocket-x-b.service")
    outcome = host.apply(made, allow_removals=True)
    assert outcome.error is None
    assert host.holds(made)
    assert host.system.state["active"].get("nearsocket-x-b.service") == before, "a unit that did not change was restarted"
    again = host.apply(made, allow_removals=True)
    assert (again.changes, again.error) == ((), None)
    assert leftovers(host) == []
    assert not host.tree.journal.exists()
    assert host.at(SWAPPINESS).read_text() == ("1" if made is NEW else "60")


@pytest.mark.parametrize("drift", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["clean", "drifted"])
def test_a_cut_at_any_step_leaves_one_generation_or_the_other_and_the_next_run_completes(tmp_path: Path, drift: bool) -> None:
    base = prepared(tmp_path / "base", drift)
    seen = set()
    for at in range(1, 1000):
        root = tmp_path / "root"
        shutil.copytree(base.root, root, symlinks=True)
        host = Host(root)

        def run(bomb: Bomb, host: Host = host) -> None:
            runner = host.system

            def counted(argv: Sequence[str], limit_s: float) -> Output:
                answer: Output = bomb.step(lambda: runner(argv, limit_s))
                return answer

            outcome = apply(Order(NEW, allow_removals=True), PROGRAM + b"2", host.tree, Systemctl(counted))
            assert outcome.error is None

        if not killed(run, at, drift):
            break
        number = host.tree.number()
        seen.add(number)
        assert number in (1, 2)
        assert drift or whole(host)
        settle(host, (NEW, OLD, THIRD)[(at + drift) % 3])  # the same again, back to the old one, on to another
        shutil.rmtree(root)
    else:
        raise AssertionError("the apply never came to its end")
    assert seen == {1, 2}
    assert at > 80, "expected an apply of many steps"


def test_a_cut_of_the_first_apply_leaves_nothing_in_force_or_all_of_it(tmp_path: Path) -> None:
    made = generation({"a": "one"})
    for at in range(1, 1000):
        host = Host(tmp_path / str(at))
        if not killed(lambda bomb, host=host: host.apply(made), at, False):  # type: ignore[misc]
            break
        assert host.tree.number() is None or whole(host)
        assert host.apply(made).error is None
        assert host.holds(made)
        assert host.tree.numbers() == [1]
        assert leftovers(host) == []
    assert at > 40


@pytest.mark.parametrize("number", [errno.ENOSPC])
def test_a_disk_that_fails_at_any_write_is_one_line_and_leaves_one_generation_or_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    base = prepared(tmp_path / "base", False)
    seen = set()
    for at in range(1, 1000):
        root = tmp_path / "root"
        shutil.copytree(base.root, root, symlinks=True)
        host, count = Host(root), 0

        with monkeypatch.context() as patch:
            for name in ("write", "mkdir", "symlink", "replace"):
                real = getattr(os, name)

                def failing(*args: object, real: object = real, at: int = at, **keywords: object) -> object:
                    nonlocal count
                    count += 1
                    if count >= at:  # it stays full
                        raise OSError(number, os.strerror(number), str(args[0]))
                    return real(*args, **keywords)  # type: ignore[operator]

                patch.setattr(os, name, failing)
            outcome = host.apply(NEW, allow_removals=True)
        if outcome.error is None:
            break
        assert os.strerror(number) in outcome.error
        assert whole(host)
        seen.add((outcome.number, outcome.wrote))
        assert outcome.number == host.tree.number()
        assert outcome.wrote == (outcome.number == 2)
        settle(Host(root), NEW)
        shutil.rmtree(root)
    assert seen == {(1, False), (2, True)}
    assert at > 20


def test_a_read_only_etc_is_said_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = prepared(tmp_path / "root", False)
    before = host.tree_of_files()
    real = os.open

    def read_only(path: object, flags: int, *rest: object, **keywords: object) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(host.root / "etc")):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *rest, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", read_only)
    outcome = host.apply(NEW, allow_removals=True)
    assert outcome.error is not None
    assert "Read-only file system" in outcome.error
    assert host.tree_of_files() == before

"""What stops an apply before anything is written: what is another's, a lock, an older commit, a reload, a damaged order."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nearsocket.model.errors import NearsocketError
from nearsocket.model.order import Order, from_json
from nearsocket.model.outcome import from_json as outcome_from
from nearsocket.onhost.apply import disk, lock
from tests.onhost.apply.made import Host, generation, record


@pytest.fixture
def host(root: Path) -> Host:
    return Host(root)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_anothers_stops_the_apply_before_anything_is_written(host: Host, kind: str) -> None:
    path = host.at("/etc/systemd/system/nearsocket-x-a.service")
    if kind == "file":
        path.write_text("theirs\n")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/opt/theirs.service")
    before = host.tree_of_files()
    outcome = host.apply(generation({"a": "one"}))
    assert outcome.error is not None
    assert "/etc/systemd/system/nearsocket-x-a.service" in outcome.error
    assert not outcome.wrote
    assert host.tree_of_files() == before


def test_anothers_container_stops_the_first_apply_with_its_name(host: Host) -> None:
    host.system.change(containers=["nearsocket-x-a"])
    outcome = host.apply(generation({"a": "one"}))
    assert outcome.error is not None
    assert "container nearsocket-x-a" in outcome.error
    assert host.tree.number() is None


def test_a_port_that_is_held_stops_the_first_apply_with_the_holders_name(host: Host) -> None:
    (host.root / "proc/net").mkdir(parents=True)
    row = "   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 4711 1 0 100 0 0 10 0"
    (host.root / "proc/net/tcp").write_text(f"head\n{row}\n")
    (host.root / "proc/77/fd").mkdir(parents=True)
    (host.root / "proc/77/fd/3").symlink_to("socket:[4711]")
    (host.root / "proc/77/comm").write_text("nginx\n")
    outcome = host.apply(generation({"a": "one"}))
    assert outcome.error == "expected port 30000 to be free for replica a, found process 77 (nginx) listening"


def test_a_second_apply_at_the_same_time_is_told_who_holds_the_lock(host: Host) -> None:
    with lock.exclusive(host.tree, "ops from example", 0):
        for dry in (False, True):
            outcome = host.apply(generation({"a": "one"}), dry=dry)
            assert outcome.error is not None
            assert f"process {os.getpid()}, ops from example" in outcome.error
    assert host.apply(generation({"a": "one"})).error is None


def test_an_older_commit_needs_force(host: Host) -> None:
    host.apply(generation({"a": "new"}, made_by=record("b" * 40, "2030-02-01T00:00:00Z")))
    old = generation({"a": "old"}, made_by=record("a" * 40, "2030-01-01T00:00:00Z"))
    refused = host.apply(old)
    assert refused.error is not None
    assert "commit bbbbbbbbbbbb" in refused.error
    assert host.apply(old, force=True).error is None


def test_a_reload_that_could_take_gpus_is_refused_but_nothing_else_is(host: Host) -> None:
    risk = "container x may lose its GPUs"
    outcome = host.apply(generation({"a": "one"}), reload_risk=risk)
    assert outcome.error is not None
    assert risk in outcome.error
    assert host.tree.number() is None
    host.apply(generation({"a": "one"}))
    assert host.apply(generation({"a": "one"}, extra={"n": "x\n"}), reload_risk=risk).error is None


def test_orders_and_outcomes_survive_their_way(host: Host) -> None:
    order = Order(generation({"a": "one"}), dry=True, reload_risk="x", lock_wait_s=3.5)
    assert from_json(order.to_json()) == order
    outcome = host.apply(order.generation)
    assert outcome_from(outcome.to_json()) == outcome


def test_an_option_that_nobody_knows_and_an_order_that_is_none_are_one_line() -> None:
    for text in ("", "[]", '{"schema": "nearsocket.order/1"}', '{"schema": "x"}', "\0"):
        with pytest.raises(NearsocketError):
            from_json(text)


def test_an_order_whose_contents_are_not_the_manifests_is_refused() -> None:
    order = json.loads(Order(generation({"a": "one"})).to_json())
    order["contents"]["env/a.env"] = "AAAA"
    with pytest.raises(NearsocketError, match=r"env/a\.env"):
        from_json(json.dumps(order))


def test_on_a_read_only_file_system_nothing_that_was_never_there_is_left_over(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(whole: Callable[..., object]) -> Callable[..., object]:
        def call(path: Path, *words: object, **named: object) -> object:
            if "etc" in path.relative_to(host.root).parts:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return whole(path, *words, **named)

        return call

    host.apply(generation({"a": "one"}))
    with monkeypatch.context() as patched:
        for name in ("unlink", "rename", "replace", "mkdir", "symlink_to", "rmdir"):
            patched.setattr(Path, name, refusing(getattr(Path, name)))
        patched.setattr(disk, "write_new", refusing(disk.write_new))
        outcome = host.apply(generation({"a": "two"}))
    assert outcome.error is not None
    assert "Read-only file system" in outcome.error
    assert outcome.hint == "the old generation is in force"
    assert outcome.number == 1

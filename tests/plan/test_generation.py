"""The manifest, and what changes between two."""

from __future__ import annotations

import dataclasses
import json

import pytest

from nearsocket.model import read
from nearsocket.model.changes import difference, older
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest, Record, file, from_json
from nearsocket.model.settings import Limits, Relief, Settings, TuneSettings
from tests.plan.hosts import asked, four_on_one_socket, replica
from tests.plan.rendered import made


def manifest(*replicas: object, **changes: object) -> Manifest:
    settings = asked(*(replicas or (replica("a"), replica("b"))), **changes)  # type: ignore[arg-type]
    return made(read.host(four_on_one_socket()), settings).manifest


A, B = "nearsocket-sglang-a.service", "nearsocket-sglang-b.service"


def test_the_first_generation_adds_everything_and_starts_its_replicas() -> None:
    new = manifest()
    changes = difference(None, new)
    assert changes.added == tuple(entry.path for entry in new.files)
    assert (changes.reload, changes.start, changes.restart, changes.stop) == (True, (A, B, "nearsocket-watch.timer"), (), ())
    assert "/etc/systemd/system/multi-user.target.wants/" + A in changes.links_added


def test_the_same_generation_is_no_change_whoever_made_it() -> None:
    old = dataclasses.replace(manifest(), record=Record("me", "yesterday", "0.0.1", "abc"))
    assert difference(old, manifest()).same


def test_an_argument_restarts_its_replica_alone_and_reloads() -> None:
    changes = difference(manifest(), manifest(replica("a", arguments=("--x",)), replica("b")))
    assert changes.changed == (f"systemd/{A}",)
    assert (changes.reload, changes.restart, changes.start, changes.stop) == (True, (A,), (), ())


def test_a_variable_restarts_without_a_reload() -> None:
    changes = difference(manifest(), manifest(replica("a", environment={"X": "1"}), replica("b")))
    assert changes.changed == ("env/a.env",)
    assert (changes.reload, changes.restart) == (False, (A,))


def test_memory_that_moved_a_little_changes_nothing_and_a_little_more_restarts_nothing() -> None:
    def of(total: int) -> Manifest:
        host = read.host(four_on_one_socket())
        memory = dataclasses.replace(host.nodes[0].memory, total_bytes=total)  # type: ignore[type-var]
        nodes = (dataclasses.replace(host.nodes[0], memory=memory), host.nodes[1])
        return made(dataclasses.replace(host, nodes=nodes), asked(replica())).manifest

    assert difference(of(256 << 30), of((256 << 30) - (100 << 20))).same
    changes = difference(of(256 << 30), of((256 << 30) - (4 << 30)))
    assert changes.changed == ("fingerprint.json",)
    assert (changes.reload, changes.restart) == (False, ())


def test_a_replica_that_is_gone_is_told_with_all_that_its_removal_needs() -> None:
    changes = difference(manifest(), manifest(replica("a"), reserved_cores=1))
    [gone] = changes.removed_replicas
    assert (gone.name, gone.unit, gone.container, gone.mount_point) == ("b", B, "nearsocket-sglang-b", "/run/nearsocket/shm/b")
    assert B in changes.stop
    assert "run-nearsocket-shm-b.mount" in changes.stop
    assert changes.restart == (A,)  # it gets the other's CPUs


def test_a_mount_of_another_size_is_mounted_anew_and_its_replica_restarted() -> None:
    changes = difference(manifest(), manifest(replica("a", limits=Limits(shm_bytes=1 << 30)), replica("b")))
    assert (changes.remount, changes.restart) == (("run-nearsocket-shm-a.mount",), (A,))


def test_a_policy_of_the_start_changes_the_unit_that_names_it() -> None:
    changes = difference(manifest(), manifest(replica("a", relief=Relief.NONE), replica("b")))
    assert changes.changed == ("replicas/a.json", f"systemd/{A}")


def test_tuning_is_applied_without_a_reload_and_put_back() -> None:
    plain = manifest(replica())
    tuned = manifest(replica(), tune=TuneSettings(swappiness=1, transparent_hugepages="madvise"))
    on, off = difference(plain, tuned), difference(tuned, plain)
    assert (on.reload, on.restart) == (False, ())
    assert on.reapply == ("sysctl.d/90-nearsocket.conf", "tmpfiles.d/nearsocket.conf")
    assert on.links_added == ("/etc/sysctl.d/90-nearsocket.conf", "/etc/tmpfiles.d/nearsocket.conf")
    assert (off.sysctl_gone, off.reload) == (("vm.swappiness",), False)


def test_a_mode_is_a_change_too() -> None:
    old = manifest()
    files = tuple(dataclasses.replace(e, mode="0600") if e.path == f"systemd/{A}" else e for e in old.files)
    assert difference(dataclasses.replace(old, files=files), manifest()).changed == (f"systemd/{A}",)


def test_it_comes_back_from_json_and_a_changed_one_does_not() -> None:
    one = manifest()
    assert from_json(one.to_json()) == one
    assert one.to_json() == manifest().to_json()
    value = json.loads(one.to_json())
    for broken in (
        "",
        "[]",
        "{}",
        json.dumps({**value, "schema": "nearsocket.generation/9"}),
        json.dumps({**value, "host": "other"}),
        json.dumps({**value, "files": [{"path": "x"}]}),
        json.dumps({**value, "files": [{**value["files"][0], "path": "../x"}]}),
    ):
        with pytest.raises(NearsocketError):
            from_json(broken)


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../x", "a//b", "", "manifest.json", "./x", "a/."])
def test_no_file_leaves_the_generation(path: str) -> None:
    with pytest.raises(NearsocketError):
        file(path, b"")


@pytest.mark.parametrize(
    ("new", "current", "is_older"),
    [
        (("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-02T00:00:00Z"), True),
        (("b", "2026-01-03T00:00:00Z"), ("a", "2026-01-02T00:00:00Z"), False),
        (("a", "2026-01-01T00:00:00Z"), ("a", "2026-01-02T00:00:00Z"), False),
        ((None, None), ("a", "2026-01-02T00:00:00Z"), False),
        (("b", "2026-01-01T00:00:00Z"), (None, None), False),
    ],
)
def test_an_older_commit_is_told(new: tuple[str, str], current: tuple[str, str], is_older: bool) -> None:
    assert (older(Record("x", "", "0", *new), Record("x", "", "0", *current)) is not None) is is_older


def test_nothing_to_serve_is_a_generation_too() -> None:
    empty = made(read.host(four_on_one_socket()), Settings()).manifest
    assert [entry.path for entry in empty.files] == ["fingerprint.json"]
    assert len(difference(manifest(), empty).removed_replicas) == 2

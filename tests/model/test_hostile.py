"""A damaged or hostile snapshot that can be loaded gives a host, never an exception."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearsocket.model import near
from nearsocket.model.host import Host
from nearsocket.model.read import host
from nearsocket.model.snapshot import SnapshotError, from_json
from tests import snapshots

BASES = {name: snapshots.path(name).read_text(encoding="utf-8") for name in ("two-socket-bound", "nps4", "grace", "vllm-unit")}
ODD_TEXTS = st.sampled_from(
    [
        "",
        " ",
        "-1",
        "N/A",
        "0-",
        "9-1",
        "99999999999999999999",
        "0-65536",
        "\x1b[31m\x07",
        "\u202e\ud800",
        "²",
        "node",
        "a\0b",
        "\\400 \\",
    ]
)
ODD_NUMBERS = st.sampled_from([0, -1, 1 << 31, 1 << 63, 10**400, -(10**30), 1.5, math.nan, math.inf, True, False])
VALUES = st.recursive(
    st.none() | ODD_TEXTS | ODD_NUMBERS | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS | st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything below `value`."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(*path, key), *places(value[key], (*path, key))]]


PLACES = {
    name: [place for place in places(json.loads(text)) if place[0] == "sources" and len(place) > 2] for name, text in BASES.items()
}


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A fixture with one to eight values replaced, removed or cut."""
    name = draw(st.sampled_from(sorted(BASES)))
    whole = json.loads(BASES[name])
    for _ in range(draw(st.integers(1, 8))):
        *path, last = draw(st.sampled_from(PLACES[name]))
        inside: Any = whole
        try:
            for key in path:
                inside = inside[key]
            old = inside[last]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
        if not isinstance(inside, (dict, list)):
            continue
        how = draw(st.sampled_from(["replace", "remove", "cut", "double"]))
        if how == "remove":
            del inside[last]
        elif how == "cut" and isinstance(old, str):
            inside[last] = old[: draw(st.integers(0, len(old)))]
        elif how == "double" and isinstance(old, str):
            inside[last] = old + draw(ODD_TEXTS) + old
        else:
            inside[last] = draw(VALUES)
    return whole


def exercise(made: Host) -> None:
    """What every reader of a host does: ask near of everything; sizes are never negative."""
    near.of_host(made)
    for process in made.processes:
        near.of_process(made, process)
    for replica in made.replicas:
        near.of_processes(made, [p for p in made.processes if p.pid in replica.pids])
        assert set(replica.ranks) <= set(replica.pids)
    for buffer in made.buffers:
        near.of_buffer(made, buffer)
        assert min(buffer.by_node.values(), default=0) >= 0
    assert len({gpu.pci for gpu in made.gpus}) == len(made.gpus)
    assert len({node.id for node in made.nodes}) == len(made.nodes)
    assert all("\x1b" not in note and "\n" not in note for note in made.notes)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(damaged())
def test_a_damaged_snapshot_gives_a_host(whole: dict[str, Any]) -> None:
    try:
        snapshot = from_json(json.dumps(whole))
    except SnapshotError:
        return
    exercise(host(snapshot))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([place[1] for place in PLACES["vllm-unit"] if len(place) == 3]), VALUES))
def test_any_data_under_any_source_gives_a_host(data: dict[str, Any]) -> None:
    sources = {name: {"status": "ok", "data": value} for name, value in data.items()}
    whole = {**json.loads(BASES["vllm-unit"]), "sources": sources}
    exercise(host(from_json(json.dumps(whole))))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([place[1] for place in PLACES["vllm-unit"] if len(place) == 3]), ODD_TEXTS | st.text()))
def test_any_text_under_any_source_gives_a_host(texts: dict[str, str]) -> None:
    sources = {name: {"status": "ok", "text": value} for name, value in texts.items()}
    whole = {**json.loads(BASES["vllm-unit"]), "sources": sources}
    exercise(host(from_json(json.dumps(whole))))


def test_a_snapshot_of_nothing_is_a_host_of_nothing() -> None:
    whole = {**json.loads(BASES["grace"]), "sources": {}}
    made = host(from_json(json.dumps(whole)))
    exercise(made)
    assert made.nodes == made.gpus == made.processes == made.replicas == ()
    assert made.kernel is None and made.os_id is None and made.driver.module_loaded is None
    assert made.notes == ("nodes: not read (not in this snapshot): nodes and sockets are not known",)


@pytest.mark.parametrize("status", ["denied", "timeout", "error"])
def test_nodes_that_could_not_be_read_are_not_made_up(status: str) -> None:
    whole = json.loads(BASES["two-socket-bound"])
    whole["sources"]["nodes"] = {"status": status, "reason": "no\x1b[1mway"}
    made = host(from_json(json.dumps(whole)))
    assert made.nodes == () and made.sockets == ()
    assert made.gpus[0].node is None
    assert "nodes: not read (no\\x1b[1mway): nodes and sockets are not known" in made.notes
    assert made.source("nodes").status.value == status


def test_a_source_of_another_shape_is_noted() -> None:
    whole = json.loads(BASES["two-socket-bound"])
    whole["sources"]["processes"] = {"status": "ok", "data": {"pid": 1}}
    whole["sources"]["mounts"] = {"status": "ok", "data": []}
    whole["sources"]["nvml"] = {"status": "ok", "data": 7}
    made = host(from_json(json.dumps(whole)))
    assert {note for note in made.notes if "expected" in note} == {
        "processes: expected a list, found dict; taken as not read",
        "mounts: expected a text, found list; taken as not read",
        "nvml: expected a map, found int; taken as not read",
    }


def test_the_users_word_and_all_sources_are_kept() -> None:
    snapshot = snapshots.load("no-gpu")
    made = host(snapshot, frozenset({1}))
    assert made.near == {1} and near.of_host(made) == frozenset({1})
    assert dict(made.sources) == dict(snapshot.sources)

"""The report for programs: every key and its type, and nothing raw in the text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsocket.model.finding import Evidence, Finding, Status, Waived
from nearsocket.report import json as report_json
from tests import build
from tests.report import scenarios
from tests.report.scenarios import SCENARIOS, one, report

_INT, _TEXT, _BOOL = (int,), (str,), (bool,)
_NULL = type(None)
_LINK = dict.fromkeys(("speed_gts", "width", "max_speed_gts", "max_width"), (int, float, _NULL))
_MEMORY = {f"{key}_bytes": _INT for key in ("total", "free", "file", "shmem", "anon", "reclaimable", "hugepages", "hugepages_free")}
_CLAIM = {"source": _TEXT, "node": (int, _NULL), "nodes": _TEXT, "text": _TEXT}
_SOCKET = {"id": _INT, "nodes": [_INT], "cpus": _TEXT}
_NODE = {
    "id": _INT,
    "socket": (int, _NULL),
    "cpus": _TEXT,
    "memory": (_MEMORY, None),
    "memoryless": _BOOL,
    "cpuless": _BOOL,
    "distances": [_INT],
}
_GPU = {
    "pci": _TEXT,
    "uuid": (str, _NULL),
    "index": (int, _NULL),
    "name": _TEXT,
    "node": (int, _NULL),
    "socket": (int, _NULL),
    "claims": [_CLAIM],
    "link": _LINK,
    "driver": (str, _NULL),
    "memory_bytes": (int, _NULL),
    "memory_used_bytes": (int, _NULL),
}
_REPLICA = {
    "name": _TEXT,
    "engine": (str, _NULL),
    "pids": [_INT],
    "ranks": [_INT],
    "gpus": [_TEXT],
    "sockets": [_INT],
    "container": (str, _NULL),
    "unit": (str, _NULL),
    "port": (int, _NULL),
}
_BUFFER = {
    "file": _TEXT,
    "identity": _TEXT,
    "role": _TEXT,
    "bytes": _INT,
    "by_node": dict,
    "near": (bool, _NULL),
    "placement": _TEXT,
    "deleted": _BOOL,
    "pids": [_INT],
    "policies": [_TEXT],
}
_FINDING = {
    "id": _TEXT,
    "status": _TEXT,
    "subject": _TEXT,
    "summary": _TEXT,
    "evidence": [{"source": _TEXT, "text": _TEXT}],
    "remedy": (str, _NULL),
    "waived": ({"reason": _TEXT, "owner": _TEXT, "expires": _TEXT}, None),
}
_TOPOLOGY = {
    "sockets": [_SOCKET],
    "nodes": [_NODE],
    "gpus": [_GPU],
    "replicas": [_REPLICA],
    "buffers": [_BUFFER],
    "notes": [_TEXT],
}
_HOST = {
    "name": _TEXT,
    "status": _TEXT,
    "taken_at": _TEXT,
    "maintenance": ({"until": _TEXT, "reason": _TEXT}, None),
    "topology": (_TOPOLOGY, None),
    "plan": (_NULL,),
    "findings": [_FINDING],
}
SHAPE = {"schema": _TEXT, "hosts": [_HOST], "status": _TEXT, "exit_code": _INT}


def check(value: Any, shape: Any, where: str = "$") -> None:
    """Compare a value with its shape: keys and their order, lists, types; a bool is no int."""
    if shape is dict:
        assert isinstance(value, dict) and all(key.isdecimal() and type(n) is int for key, n in value.items()), where
    elif isinstance(shape, dict):
        assert list(value) == list(shape), where
        for key, inner in shape.items():
            check(value[key], inner, f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for index, item in enumerate(value):
            check(item, shape[0], f"{where}[{index}]")
    elif isinstance(shape[0], dict):
        if value is not None:
            check(value, shape[0], where)
    else:
        assert type(value) in shape, f"{where} is {value!r}"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_key_has_its_place_and_type(scenario: str) -> None:
    made = SCENARIOS[scenario]()
    whole = json.loads(report_json.render(made))
    check(whole, SHAPE)
    assert whole["schema"] == "nearsocket.report/1"
    assert (whole["status"], whole["exit_code"]) == (made.status.value, made.exit_code)
    assert [host["name"] for host in whole["hosts"]] == [host.name for host in made.hosts]


def test_the_same_report_gives_the_same_text() -> None:
    assert report_json.render(scenarios.eight()) == report_json.render(scenarios.eight())


def test_an_unreachable_host_has_no_topology() -> None:
    hosts = json.loads(report_json.render(scenarios.many()))["hosts"]
    assert [host["topology"] is None for host in hosts] == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("by_node", "near", "placement"),
    [
        ({1: build.RING_BYTES}, True, "near"),
        ({0: build.RING_BYTES}, False, "far"),
        ({0: build.RING_BYTES // 2, 1: build.RING_BYTES // 2}, False, "split"),
        ({0: 4096, 1: build.RING_BYTES - 4096}, False, "split"),
        ({1: build.RING_BYTES // 2}, None, "incomplete"),
        ({}, None, "unknown"),
    ],
)
def test_a_buffer_says_whether_it_is_near(by_node: dict[int, int], near: bool | None, placement: str) -> None:
    [host] = json.loads(report_json.render(report(one(scenarios.placed(by_node)))))["hosts"]
    buffer = host["topology"]["buffers"][0]
    assert (buffer["near"], buffer["placement"]) == (near, placement)
    assert buffer["by_node"] == {str(node): count for node, count in by_node.items()}


def test_the_figures_are_the_hosts() -> None:
    [host] = json.loads(report_json.render(scenarios.healthy()))["hosts"]
    topology = host["topology"]
    assert topology["sockets"][1] == {"id": 1, "nodes": [1], "cpus": "12-23,36-47"}
    assert topology["nodes"][0]["memory"]["total_bytes"] == 256 << 30
    assert topology["nodes"][0]["distances"] == [10, 21]
    assert topology["gpus"][0]["link"] == {"speed_gts": 32.0, "width": 16, "max_speed_gts": 32.0, "max_width": 16}
    assert topology["replicas"][0]["gpus"] == [gpu["pci"] for gpu in topology["gpus"]]
    assert topology["buffers"][0]["bytes"] == build.RING_BYTES


@settings(deadline=None, max_examples=80)
@given(st.text())
def test_any_text_survives_and_none_of_it_is_raw(text: str) -> None:
    found = Finding("a.b", Status.FAIL, text, text, (Evidence(text, text),), text, Waived(text, text, text))
    written = report_json.render(report(one(build.host(name=text), found)))
    assert all(" " <= character <= "~" or character == "\n" for character in written)
    assert json.loads(written)["hosts"][0]["findings"][0]["summary"] == text

"""Every row of the verdict table (docs/verify.md), from the shapes of real engines: NCCL 2.28.9 on two real GPUs."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Status
from nearsocket.model.prove import settled, started_at
from nearsocket.model.verdict import Held, Verdict, Word, from_json
from tests.onhost.verify.shapes import FOLDER, GPUS, START, Value, data, real, rings, two_nodes, verdict

FAR_PAGES, NEAR_PAGES = 40, 2314


def told(found: Verdict) -> dict[str, str]:
    return {finding.id: finding.status.value for finding in found.findings}


def files(**given: Any) -> Value:
    """Two ranks with ring buffers as files on node 0."""
    return two_nodes(real("shm-cumem-off"), **given)


def cumem(**given: Any) -> Value:
    """Two ranks with cuMem in force on node 0."""
    return two_nodes(real("shm-cumem-on"), **given)


def split(buffer: Value, far: int) -> None:
    buffer["pages"] = {"0": 2354 - far, "1": far}


def without_logs(value: Value) -> Value:
    data(value, "nccl.logs").clear()
    return value


def without_buffers(value: Value) -> Value:
    for process in data(value, "processes"):
        process["buffers"] = []
    return value


def unreadable(value: Value) -> Value:
    for process in without_logs(without_buffers(value))["sources"]["processes"]["data"]:
        process["buffers_reason"] = "no permission (Operation not permitted)"
    return value


def half_logged(value: Value) -> Value:
    data(value, "nccl.logs").pop()
    return value


def old_logs(value: Value) -> Value:
    """Logs of an earlier start, whose processes had other numbers."""
    for log in data(value, "nccl.logs"):
        log["text"] = log["text"].replace(f"vm:{log['pid']}:", "vm:7:")
    return value


def numa_unknown(value: Value) -> Value:
    """The driver knew no node for the GPU."""
    for log in data(value, "nccl.logs"):
        log["text"] = re.sub(r"\bnuma \d+", "numa -1", log["text"])
    return value


def node_unknown(value: Value) -> Value:
    for gpu in data(value, "nvml")["gpus"]:
        gpu.update({"numa_node": None, "cpus": None, "memory_nodes": None})
    for at in GPUS:
        data(value, "pci")[at].update({"numa_node": "-1", "local_cpulist": ""})
    return value


TABLE = {
    "files near, held by a policy": (files(policy="bind:0"), Word.NEAR, Held.FORCE),
    "files near, held by a cpuset": (files(mems="0"), Word.NEAR, Held.FORCE),
    "files near, held by nothing": (files(), Word.NEAR, Held.LUCK),
    "files near, preferred there": (files(policy="prefer:0"), Word.NEAR, Held.LUCK),
    "files far": (files(gpu_node=1), Word.FAR, Held.LUCK),
    "files far, held there": (files(gpu_node=1, policy="bind:0"), Word.FAR, Held.LUCK),
    "files far, bound too late": (files(gpu_node=1, policy="bind:1"), Word.FAR, Held.LUCK),
    "files split, over 1 %": (rings(files(), lambda b: split(b, 100)), Word.FAR, Held.LUCK),
    "files split, under 1 %": (rings(files(), lambda b: split(b, 20)), Word.NEAR, Held.LUCK),
    "files not all touched": (rings(files(), lambda b: b["pages"].update({"0": 1000})), Word.UNKNOWN, Held.LUCK),
    "files near without a log": (without_logs(files(policy="bind:0")), Word.NEAR, Held.FORCE),
    "cuMem near": (cumem(), Word.NEAR, Held.FORCE),
    "cuMem far": (cumem(gpu_node=1), Word.FAR, Held.LUCK),
    "cuMem, one rank's log missing": (half_logged(cumem()), Word.UNKNOWN, Held.LUCK),
    "cuMem, logs of an earlier start": (old_logs(cumem()), Word.UNKNOWN, Held.LUCK),
    "cuMem on no node": (numa_unknown(cumem()), Word.UNKNOWN, Held.LUCK),
    "cuMem without a log": (without_logs(cumem()), Word.UNKNOWN, Held.LUCK),
    "P2P": (two_nodes(real("p2p-cumem-off")), Word.NOT_APPLICABLE, Held.UNKNOWN),
    "processes that may not be read": (unreadable(files()), Word.UNKNOWN, Held.LUCK),
    "the GPUs' node not known": (node_unknown(files()), Word.UNKNOWN, Held.UNKNOWN),
    "nothing runs": (real("idle"), Word.UNKNOWN, Held.UNKNOWN),
}


@pytest.mark.parametrize("name", TABLE)
def test_each_shape_has_its_verdict(name: str) -> None:
    value, word, held = TABLE[name]
    found = verdict(value)
    assert (found.word, found.held) == (word, held), found.line
    assert found.line.startswith(word.value)


def test_a_near_start_by_force_passes_every_finding_but_what_it_does_not_need() -> None:
    found = verdict(files(policy="bind:0"))
    assert told(found) == {
        "nccl.buffer-placement": "pass",
        "nccl.placement-enforced": "pass",
        "nccl.cumem-in-force": "not-applicable",
        "nccl.transport": "pass",
        "nccl.affinity": "pass",
        "engine.binding": "pass",
        "engine.rank-count": "pass",
    }
    assert (found.status, found.ranks_planned, found.ranks_found) == (Status.PASS, 2, 2)
    assert sum(found.by_node.values()) == 8 * 2354 * 4096
    assert (found.start, found.started_at) == (FOLDER, "2026-01-31T11:00:00Z")
    assert settled(found)


def test_cumem_in_force_is_said_so() -> None:
    assert told(verdict(cumem()))["nccl.cumem-in-force"] == "pass"


def test_a_rank_that_died_is_a_failure_and_the_placement_of_the_other_stays() -> None:
    value = files(policy="bind:0")
    gone = data(value, "processes").pop()
    for gpu in data(value, "nvml")["gpus"]:
        gpu["processes"] = [one for one in gpu["processes"] if one["pid"] != gone["pid"]]
    found = verdict(value)
    assert told(found)["engine.rank-count"] == "fail"
    assert (found.ranks_found, found.ranks_planned) == (1, 2)
    assert not settled(found)
    assert "ranks 1 of 2" in found.line


def test_an_engine_on_none_of_its_planned_gpus_has_no_rank_in_place() -> None:
    """The metrics say so as the finding does."""
    elsewhere = dataclasses.replace(START, gpus=("0000:99:00.0", "0000:9a:00.0"))
    found = verdict(files(policy="bind:0"), elsewhere)
    assert (found.ranks_found, found.ranks_planned) == (0, 2)
    assert told(found)["engine.rank-count"] == "fail"
    assert not settled(found)


def test_where_nvml_names_no_process_the_ranks_themselves_are_counted() -> None:
    value = files(policy="bind:0")
    for gpu in data(value, "nvml")["gpus"]:
        gpu["processes"] = None
    for process in data(value, "processes"):
        process.update({"gpu_bytes": {}, "devices": []})
    assert verdict(value).ranks_found == 2


def test_a_replica_without_a_control_group_is_no_pass_and_all_its_ranks_are_missing() -> None:
    found = verdict(real("idle"), running=None)
    assert (told(found)["engine.rank-count"], found.status) == ("fail", Status.FAIL)


def test_ranks_that_talk_through_the_network_are_a_warning() -> None:
    value = cumem()
    for log in data(value, "nccl.logs"):
        log["text"] = log["text"].replace("via SHM/direct", "via NET/Socket/0")
    assert told(verdict(value))["nccl.transport"] == "warn"


def test_a_rank_that_nccl_put_on_far_cpus_is_a_warning() -> None:
    value = files(policy="bind:0", gpu_node=1)
    for log in data(value, "nccl.logs"):
        assert "is empty, ignoring." in log["text"]
        log["text"] = log["text"].replace("is empty, ignoring.", "is 0-31.")
    found = verdict(value)
    assert told(found)["nccl.affinity"] == "warn"
    assert any("NCCL set it on CPUs 0-31, its GPU is at node 1" in finding.summary for finding in found.findings)


def test_cpus_of_a_rank_whose_gpu_is_nowhere_are_not_judged() -> None:
    assert told(verdict(node_unknown(files())))["nccl.affinity"] == "unknown"


def test_logs_that_say_nothing_of_affinity_are_unknown() -> None:
    assert told(verdict(without_logs(files())))["nccl.affinity"] == "unknown"


def test_a_verdict_is_the_same_after_its_file() -> None:
    for value, _, _ in TABLE.values():
        found = dataclasses.replace(verdict(value), basis={"processes": {}}, notes=("a\nb",), confirmed_at="2026-01-31T12:15:00Z")
        assert from_json(found.to_json()) == found
        assert json.loads(found.to_json())["schema"] == "nearsocket.verdict/1"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_other_json_is_refused_in_one_line(value: object) -> None:
    with pytest.raises(NearsocketError) as error:
        from_json(json.dumps(value))
    assert "\n" not in error.value.message


@pytest.mark.parametrize("key", sorted(json.loads(verdict(real("idle")).to_json())))
def test_a_verdict_with_a_wrong_value_is_refused_and_never_a_traceback(key: str) -> None:
    whole = json.loads(verdict(files()).to_json())
    for wrong in ({"x": [1]}, None, 7):
        try:
            from_json(json.dumps({**whole, key: wrong}))
        except NearsocketError as error:
            assert "\n" not in error.message


@pytest.mark.parametrize("text", ["", "x", "20260131", "2026-01-31T11:00:00Z", "a20260131T110000Z"])
def test_a_folder_of_another_name_has_no_moment(text: str) -> None:
    assert started_at(text) is None

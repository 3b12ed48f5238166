"""When a path has to be proven, what one start of the ranks says of it, and what only is a note."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model import order, outcome
from nearsocket.model.outcome import Action, Change, Kind, Outcome
from nearsocket.model.probe import path, pathjudge
from nearsocket.model.probe.baseline import Baseline
from nearsocket.model.probe.order import Backend, Place, RanksOrder
from nearsocket.model.probe.path import PathProbe, Result
from nearsocket.model.probe.series import of_rows
from nearsocket.model.probe.starts import Started, StartOrder
from tests.model.probe.figures import rows
from tests.model.probe.test_place import started
from tests.snapshots import hosts

RANKS = RanksOrder(Backend.NCCL, (Place(0, near=(1,)), Place(1, near=(1,))), (48 << 20,), 3, 0.1, 120.0, {"NCCL_ALGO": "Ring"})
START = StartOrder("as configured", RANKS, ("/usr/bin/docker", "run", "@NAME@"), "", "/usr/bin/docker", "nearsocket-path-a-0")
PROBE = PathProbe(
    "a", START, "engine@sha256:cd", "595.45", "e" * 64, "sha256:ab", ("0000:c1:00.0", "0000:c2:00.0"), "--cpuset-mems=1"
)
FACTS = {0: {"nccl": "2.30.7"}, 1: {"nccl": "2.30.7"}}


def near_start(**changes: object) -> Started:
    """A start whose ranks are found near."""
    whole = {"rows": rows(2300.0), "facts": FACTS, **changes}
    return dataclasses.replace(started(hosts.two_socket_bound()), **whole)  # type: ignore[arg-type]


def bare(probe: PathProbe = PROBE) -> PathProbe:
    """The same with ranks that no container holds, as in the snapshots."""
    return dataclasses.replace(probe, start=dataclasses.replace(probe.start, container=""))


def test_a_path_that_was_never_proven_is_due() -> None:
    assert path.due(PROBE, None) == "never proven"


def test_what_was_proven_is_not_due_again() -> None:
    assert path.due(PROBE, PROBE.basis) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"image": "x"}, "new image"),
        ({"driver": "600.1"}, "new driver"),
        ({"environment": "f" * 64}, "new environment"),
        ({"fingerprint": "sha256:cd"}, "new host"),
        ({"gpus": ("0000:c2:00.0", "0000:c1:00.0")}, "new GPUs"),
        ({"binding": ""}, "new binding"),
        ({"image": "x", "driver": "600.1"}, "new image, driver"),
    ],
)
def test_whatever_the_path_depends_on_makes_it_due_when_it_is_new(changed: dict[str, str], said: str) -> None:
    assert path.due(dataclasses.replace(PROBE, **changed), PROBE.basis) == said  # type: ignore[arg-type]


@given(st.dictionaries(st.sampled_from(["FOO", "HF_HOME", "NCCL_DEBUG", "NCCL_DEBUG_FILE"]), st.text(max_size=9)))
def test_variables_that_no_path_depends_on_make_nothing_due(extra: dict[str, str]) -> None:
    assert path.environment_digest({"NCCL_PROTO": "LL", **extra}) == path.environment_digest({"NCCL_PROTO": "LL"})


@given(
    st.sampled_from(["NCCL_PROTO", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "TORCH_NCCL_AVOID_RECORD_STREAMS"]), st.text(max_size=9)
)
def test_a_variable_that_nccl_cuda_or_the_loader_reads_counts_and_its_value_is_not_kept(name: str, value: str) -> None:
    found = path.environment_digest({name: value})
    assert found != path.environment_digest({})
    assert found != path.environment_digest({name: value + "x"})
    assert len(found) == 64


def test_right_sums_and_near_buffers_prove_the_path_with_figures() -> None:
    found = pathjudge.judge(bare(), near_start(), None)
    assert (found.result, found.notes) == (Result.PROVEN, ())
    assert "48 MiB 2.30 ms" in str(found)
    assert "near" in found.summary


@pytest.mark.parametrize(
    ("came", "said"),
    [
        (near_start(rows=rows(wrong=3)), "wrong sums: 3 of"),
        (near_start(failed="ended by signal 9 at round 1, 12288 bytes", failed_rank=1), "rank 1: ended by signal 9"),
        (near_start(failed="not done within 120 s; last heard at start", failed_rank=0, rows=()), "rank 0: not done within 120 s"),
        (near_start(failed="no answer within 180 s"), "no answer within 180 s"),
        (dataclasses.replace(started(hosts.two_socket_far()), rows=rows(), facts=FACTS), "its buffers: far"),
    ],
)
def test_a_wrong_sum_a_dead_rank_a_hang_and_far_buffers_break_it(came: Started, said: str) -> None:
    found = pathjudge.judge(bare(), came, None)
    assert found.result is Result.BROKEN
    assert said in found.summary


@pytest.mark.parametrize(
    "came",
    [
        Started("a", failed="expected torch in the ranks' Python, found none at start", failed_rank=0, lacks=True),
        Started("a", failed="expected to start /usr/bin/docker, found: No such file or directory"),
        Started("a", failed="the ranks' Python ended with code 125 before it measured: no such image"),
        Started("a", facts=FACTS, pids=(1, 2)),
        dataclasses.replace(near_start(), seen=None),
    ],
    ids=["no torch", "no runtime", "no image", "no memory", "not seen"],
)
def test_what_could_not_be_found_out_proves_nothing_and_breaks_nothing(came: Started) -> None:
    assert pathjudge.judge(bare(), came, None).result is Result.UNKNOWN


@pytest.mark.parametrize(("before", "notes"), [(2300.0, 0), (1000.0, 1)])
def test_slower_than_the_hosts_baseline_is_a_note(before: float, notes: int) -> None:
    key = pathjudge.key(PROBE, near_start())
    assert key is not None
    found = pathjudge.judge(bare(), near_start(), Baseline(key, "2030-01-01T00:00:00Z", of_rows(rows(before))))
    assert found.result is Result.PROVEN
    assert len(found.notes) == notes
    assert all("slower than its baseline" in note for note in found.notes)


def test_gloo_proves_sums_and_says_nothing_of_buffers() -> None:
    ranks = dataclasses.replace(RANKS, backend=Backend.GLOO)
    gloo = dataclasses.replace(PROBE, start=dataclasses.replace(START, ranks=ranks))
    found = pathjudge.judge(gloo, Started("a", rows(), {0: {"torch": "2.11"}}, pids=(1, 2)), None)
    assert (found.result, found.summary) == (Result.PROVEN, "every element right, no buffers in host memory to judge")


@pytest.mark.parametrize("near", [None, (0, 1)])
def test_an_order_comes_over_with_its_probes(near: tuple[int, ...] | None) -> None:
    given = order.Order(number=3, probes=(dataclasses.replace(PROBE, near=near),))
    assert order.from_json(given.to_json()) == given


def test_an_outcome_comes_over_with_what_its_probes_came_to() -> None:
    probed = pathjudge.judge(bare(), near_start(), None)
    change = Change(Kind.REPLICA, Action.PROBE, "a", "new driver")
    given = Outcome(False, 1, None, None, (change,), probes=(probed,))
    assert outcome.from_json(given.to_json()) == given
    assert str(change) == "probe replica a (new driver)"

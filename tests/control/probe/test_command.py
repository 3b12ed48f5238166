"""`nearsocket probe` from the command line to a verdict: this machine as the host, the stand-in's ranks, a small HTTP engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import lab.standins.engine
from nearsocket import cli
from nearsocket.control import audit
from nearsocket.control.probe import ask
from nearsocket.control.target import Target, Way
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import UsageError
from nearsocket.model.probe import baseline as baselines
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.starts import Row, Started
from nearsocket.model.snapshot import Snapshot
from nearsocket.onhost.probe import standin
from tests.onhost.probe.engine import Engine, serve
from tests.plan.hosts import four_on_one_socket
from tests.snapshots.hosts import two_socket_far

ENGINE = str(Path(lab.standins.engine.__file__).parent)
RANKS = ("--backend", "standin", "--python", sys.executable, "--near", "0", "--env", f"PYTHONPATH={ENGINE}")
FILES = (*RANKS, "--env", "NCCL_CUMEM_ENABLE=0", "--sizes", "4K,12K")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Code, standard output, standard error."""
    with pytest.raises(SystemExit) as left:
        cli.main(["probe", *words])
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Code and the one report of `--json`."""
    code, out, _ = run(capsys, *words, "--json")
    whole = json.loads(out)
    assert whole["schema"] == "nearsocket.probe/1"
    assert whole["exit_code"] == code
    (one,) = whole["probes"]
    return code, one


def statuses(one: dict[str, Any]) -> dict[str, str]:
    return {finding["id"]: finding["status"] for finding in one["findings"]}


@pytest.fixture(autouse=True)
def no_baselines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Baseline]:
    """The host keeps none, and this machine is not written to: what is kept is in the fixture."""
    kept: dict[str, Baseline] = {}
    monkeypatch.setattr(ask, "load_baseline", lambda target, key, children: kept.get(key.digest))
    monkeypatch.setattr(ask, "keep_baseline", lambda target, made, children: kept.update({made.key.digest: made}))
    return kept


def test_a_run_is_judged_and_its_own_buffers_are_placed(capsys: pytest.CaptureFixture[str]) -> None:
    code, one = report(capsys, "allreduce", "@local", *FILES)
    assert statuses(one) == {"probe.allreduce": "pass", "nccl.buffer-placement": "pass", "probe.baseline": "not-applicable"}
    assert code == 0
    (table,) = one["measured"]
    assert [size["size_bytes"] for size in table["sizes"]] == [4096, 12288]
    assert all(size["wrong_elements"] == 0 and len(size["rounds_us"]) == 5 for size in table["sizes"])
    assert one["key"]["backend"] == "standin"


def test_a_wrong_sum_ends_with_2_and_is_not_kept(capsys: pytest.CaptureFixture[str], no_baselines: dict[str, Baseline]) -> None:
    code, out, err = run(capsys, "allreduce", *FILES, "--env", f"{standin.FAULT}=wrong-sum", "--keep-baseline")
    assert code == 2
    assert "wrong sums" in out
    assert "--keep-baseline: expected a clean run, found probe.allreduce fail" in err
    assert no_baselines == {}


def test_a_rank_that_dies_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, one = report(capsys, "allreduce", *FILES, "--env", f"{standin.FAULT}=dead-rank")
    assert code == 2
    assert "rank 1: ended with code 1" in one["findings"][0]["summary"]


def test_a_kept_baseline_is_what_the_next_run_is_judged_by(
    capsys: pytest.CaptureFixture[str], no_baselines: dict[str, Baseline]
) -> None:
    assert run(capsys, "allreduce", *FILES, "--keep-baseline")[0] == 0
    assert len(no_baselines) == 1
    _, one = report(capsys, "allreduce", *FILES)
    assert statuses(one)["probe.baseline"] in ("pass", "warn", "fail")  # a busy machine may well be slower
    (kept,) = no_baselines.values()
    assert [size["median_us"] for size in one["baseline"]["sizes"]] == [series.median_us for series in kept.sizes]
    assert one["baseline"]["kept_at"] == kept.kept_at


def test_a_lottery_draws_as_configured_and_naive(capsys: pytest.CaptureFixture[str]) -> None:
    code, one = report(capsys, "lottery", "@local", *FILES, "--draws", "2")
    assert [(draw["name"], draw["where"]) for draw in one["draws"]] == [("as configured", "near"), ("naive", "near")] * 2
    assert (code, statuses(one)) == (0, {"probe.lottery": "pass"})


def test_a_sweep_measures_every_setting_beside_the_one_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    _, one = report(capsys, "allreduce", "@local", *FILES, "--passes", "2", "--sweep", "NCCL_BUFFSIZE=1048576,8388608")
    names = [table["name"] for table in one["measured"]]
    assert sorted(names) == ["NCCL_BUFFSIZE=1048576", "NCCL_BUFFSIZE=8388608", "as configured"]
    assert statuses(one)["probe.sweep"] == "pass"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("allreduce", "@local", "A=1"), "settings stand behind --sweep"),
        (("allreduce", "@local", "--sweep", "A", *RANKS), "--sweep: expected NAME=VALUE"),
        (("allreduce", "@local", "--gpus", "0"), "--gpus: expected --python beside it"),
        (("allreduce", "@local", *RANKS, "--gpus", "x"), "--gpus:"),
        (("allreduce", "@local", *RANKS, "--env", "A"), "--env: expected NAME=VALUE"),
        (("allreduce", "@local", *RANKS, "--sizes", "1"), "expected sizes such as"),
        (("allreduce", "@local", *RANKS, "--contrast"), "nothing can be far here"),
        (("allreduce", "@local"), "expected what is served there"),
        (("allreduce", "a", "b", *RANKS), "expected one TARGET, found 2"),
        (("lottery", "@local", *RANKS, "--fill"), "--fill: expected near nodes to fill and others beside them"),
        (("prefill", "@local", "--lengths", "0"), "--lengths: expected numbers of tokens"),
        (("prefill", "@local", "--url", "ftp://x", "--no-thermal-guard"), "expected an http address"),
        (("prefill", "@local", "--api-key-file", "key"), "--api-key-file: expected an absolute path on the host"),
        (("prefill", "@local", "--api-key-file", "/a", "--api-key-file", "/b"), "expected one for each engine (1), found 2"),
    ],
)
def test_wrong_usage_is_one_line_and_64(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    if "--contrast" in words and Path("/sys/devices/system/node/node1").exists():
        pytest.skip("this machine has a node that can be far")
    code, out, err = run(capsys, *words)
    assert (code, out) == (64, "")
    assert said in err
    assert "Traceback" not in err


def test_gpus_that_somebody_holds_are_refused_with_the_holders_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "collect", lambda target, timeout_s, children: two_socket_far())
    monkeypatch.setattr(ask, "run_starts", lambda *words: pytest.fail("it started"))
    code, out, err = run(capsys, "allreduce", "@local", "--python", "/usr/bin/python3")
    assert (code, out) == (2, "")
    assert "refused: process" in err
    assert "holds GPU" in err


def test_a_refused_host_makes_the_whole_unknown_beside_one_that_passed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("hosts:\n- {name: a, local: true}\n- {name: b, local: true}\n")
    real, asked = audit.collect, []

    def collect(target: Target, timeout_s: float, children: Children) -> Snapshot:
        asked.append(target.name)
        return real(target, timeout_s, children) if len(asked) == 1 else two_socket_far()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "collect", collect)
        code, out, err = run(capsys, "allreduce", str(fleet), *FILES, "--json")
    whole = json.loads(out)
    assert (code, whole["exit_code"], whole["status"]) == (2, 2, "unknown")
    assert len(whole["probes"]) == 1
    assert "refused: process" in err


def test_a_contrast_beside_a_sweep_keeps_its_figures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(target: Target, order: Any, children: Children) -> tuple[Any, ...]:
        rows = tuple(Row(rank, 0, 12288, 5, 10.0, 10.0, 10.0, 10.0, 0, None) for rank in range(4))
        return tuple(Started(one.name, rows, pids=(1, 2, 3, 4)) for one in order.starts)

    monkeypatch.setattr(audit, "collect", lambda target, timeout_s, children: four_on_one_socket())
    monkeypatch.setattr(ask, "run_starts", answer)
    words = ("--python", "/usr/bin/python3", "--contrast", "--sweep", "NCCL_PROTO=LL,Simple")
    _, one = report(capsys, "allreduce", "@local", *words)
    names = {table["name"] for table in one["measured"]}
    assert names == {"as configured", "forced near", "forced far", "NCCL_PROTO=LL", "NCCL_PROTO=Simple"}
    (sweep,) = [finding for finding in one["findings"] if finding["id"] == "probe.sweep"]
    assert {piece["source"] for piece in sweep["evidence"]} == {"NCCL_PROTO=LL", "NCCL_PROTO=Simple"}


def test_leave_to_disturb_is_leave(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Began(Exception):
        pass

    def begin(*_: object) -> None:
        raise Began

    monkeypatch.setattr(audit, "collect", lambda target, timeout_s, children: two_socket_far())
    monkeypatch.setattr(ask, "run_starts", begin)
    with pytest.raises(Began):
        cli.main(["probe", "allreduce", "@local", "--python", "/usr/bin/python3", "--disturb"])


def test_an_idle_host_is_measured_on_all_its_gpus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def answer(target: Target, order: Any, children: Children) -> tuple[Any, ...]:
        seen.append(order)
        return tuple(Started(one.name, failed="not here") for one in order.starts)

    def idle(target: Target, timeout_s: float, children: Children) -> Snapshot:
        return four_on_one_socket()

    monkeypatch.setattr(audit, "collect", idle)
    monkeypatch.setattr(ask, "run_starts", answer)
    assert run(capsys, "allreduce", "@local", "--python", "/usr/bin/python3", "--contrast")[0] == 2
    (order,) = seen
    assert [one.name for one in order.starts] == ["as configured", *["forced near", "forced far"] * 2]
    assert len(order.starts[0].ranks.ranks) == 4


@pytest.mark.parametrize(("until", "code", "status"), [("2999-01-01", 0, "not-applicable"), ("2001-01-01", 2, "fail")])
def test_a_waiver_takes_a_finding_out_of_the_code_until_its_day_and_it_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, until: str, code: int, status: str
) -> None:
    ids = ("probe.allreduce", "nccl.buffer-placement")
    lines = [f"  - {{id: {id}, host: 'gpu*', reason: a known bad link, owner: ops, expires: {until}}}" for id in ids]
    file = tmp_path / "fleet.yaml"
    file.write_text("hosts:\n  - name: gpu1\nwaivers:\n" + "\n".join(lines) + "\n")
    monkeypatch.setattr(audit, "collect", lambda target, timeout_s, children: four_on_one_socket())
    monkeypatch.setattr(ask, "run_starts", lambda t, order, c: tuple(Started(one.name, failed="dead") for one in order.starts))
    found, out, _ = run(capsys, "allreduce", str(file), "--python", "/usr/bin/python3")
    assert found == code
    assert ("by ops: a known bad link" in out) == (code == 0)
    found, out, _ = run(capsys, "allreduce", str(file), "--python", "/usr/bin/python3", "--json")
    said = json.loads(out)
    assert (said["exit_code"], said["status"]) == (code, status)
    (one,) = said["probes"]
    assert [finding["waived"] is not None for finding in one["findings"]] == [code == 0] * 2


def test_a_host_that_was_refused_makes_the_whole_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fleet.yaml"
    waiver = "{id: nccl.buffer-placement, host: gpu2, reason: not seen, owner: ops, expires: 2999-01-01}"
    file.write_text(f"hosts:\n  - name: gpu1\n  - name: gpu2\nwaivers:\n  - {waiver}\n")
    held, idle = two_socket_far(), four_on_one_socket()
    rows = tuple(Row(rank, 0, 4096, 5, 1.0, 1.0, 1.0, 1.0, 0, None) for rank in range(4))
    monkeypatch.setattr(audit, "collect", lambda target, timeout_s, children: held if target.name == "gpu1" else idle)
    monkeypatch.setattr(ask, "run_starts", lambda t, order, c: tuple(Started(one.name, rows) for one in order.starts))
    code, out, err = run(capsys, "allreduce", str(file), "--python", "/usr/bin/python3", "--json")
    said = json.loads(out)
    assert [(one["host"], one["findings"][0]["status"]) for one in said["probes"]] == [("gpu2", "pass")]
    assert (code, said["status"]) == (2, "unknown")
    assert "gpu1" in err


def test_cold_prompts_are_timed_through_the_hosts_own_program(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(Engine()) as url:
        words = ("prefill", "@local", "--url", url, "--lengths", "200", "--repeat", "2", "--no-thermal-guard", "--bound", "50")
        code, one = report(capsys, *words)
    assert [prompt["cached_tokens"] for prompt in one["prompts"]] == [0] * 4
    assert statuses(one)["probe.prefill"] in ("pass", "unknown")  # a busy machine's baselines may differ by half
    assert code in (0, 1)


def test_a_cached_run_is_void_and_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(Engine(ignores_salt=True)) as url:
        code, one = report(capsys, "prefill", "@local", "--url", url, "--no-thermal-guard")
    assert code == 2
    assert "void" in one["findings"][0]["summary"]


def test_a_guard_without_nvml_guards_nothing_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a GPU")
    with serve(Engine()) as url:
        code, _, err = run(capsys, "prefill", "@local", "--url", url)
    assert code == 2
    assert "expected NVML to tell the GPUs' temperatures" in err


def test_a_baseline_goes_to_the_host_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that are sent, and what is made of the answer; the file itself is tested on the host's side."""
    from nearsocket.model.probe.series import Series

    key = Key("sha256:ab", "595.45", "2.30.7", "engine", "nccl", ())
    made = Baseline(key, "2026-01-01T00:00:00Z", (Series(4096, 2, (1.0,), 2.0),))
    sent: list[tuple[list[str], bytes]] = []

    def answer(target: Target, words: list[str], given: bytes, limit_s: float, children: Children) -> str:
        sent.append((words, given))
        return made.to_json()

    monkeypatch.undo()
    monkeypatch.setattr(ask, "ask", answer)
    target = Target("h", Way.LOCAL)
    ask.keep_baseline(target, made, Children())
    assert ask.load_baseline(target, key, Children()) == made
    assert sent[0] == (["baseline", "--digest", key.digest, "--keep", "yes"], made.to_json().encode())
    assert baselines.from_json(sent[0][1].decode()) == made


def test_a_saved_snapshot_cannot_be_measured() -> None:
    with pytest.raises(UsageError, match="expected a host to measure on"):
        ask.ask(Target("x", Way.FILE, file=Path("x")), ["probe"], b"", 1, Children())

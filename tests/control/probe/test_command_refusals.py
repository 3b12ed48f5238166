"""What `nearsocket probe` does not begin: wrong usage, GPUs that somebody holds; and how that and waivers show in its code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nearsocket import cli
from nearsocket.control import audit
from nearsocket.control.probe import ask
from nearsocket.control.target import Target
from nearsocket.control.transport.process import Children
from nearsocket.model.probe.starts import Row, Started
from nearsocket.model.snapshot import Snapshot
from tests.control.probe.commands import FILES, RANKS, run
from tests.plan.hosts import four_on_one_socket
from tests.snapshots.hosts import two_socket_far

pytestmark = pytest.mark.usefixtures("no_baselines")


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


def test_leave_to_disturb_is_leave(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Began(Exception):
        pass

    def begin(*_: object) -> None:
        raise Began

    monkeypatch.setattr(audit, "collect", lambda target, timeout_s, children: two_socket_far())
    monkeypatch.setattr(ask, "run_starts", begin)
    with pytest.raises(Began):
        cli.main(["probe", "allreduce", "@local", "--python", "/usr/bin/python3", "--disturb"])


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

"""`nearsocket rollout` as it is typed, over stand-in hosts: codes, JSON against its schema, the page, slips."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nearsocket import cli
from nearsocket.control.rollout import run
from tests.control.rollout.fleet import APPLY, Fleet, Lost, make
from tests.plan.hosts import IMAGE
from tests.report.test_schemas import faults

NAMES = ("r1", "r2")


class Typed:
    """A fleet with its file, and the command."""

    def __init__(self, fleet: Fleet, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.fleet, self.folder, self.capsys = fleet, folder, capsys
        self.file = folder / "fleet.yaml"
        self.write()

    def write(self, **changes: Any) -> None:
        """The fleet file; `changes`: of the first host."""
        serve = {"engine": "sglang", "image": {"reference": IMAGE.reference}, "model": "/srv/models/m", "gpu_count": 2}
        replicas = [{"name": "a", "port": 30000}, {"name": "b", "port": 30001}]
        hosts: list[dict[str, Any]] = [{"name": host.name, "serve": serve, "replicas": replicas} for host in self.fleet.hosts]
        hosts[0] |= changes
        self.file.write_text(yaml.safe_dump({"hosts": hosts}))

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = cli._run(["rollout", str(self.file), "--lock-wait", "0", *words])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def json(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit code and report, which is what the schema says."""
        code, out, _ = self(*words, "--json")
        report: dict[str, Any] = json.loads(out)
        assert faults("rollout-1", report) == []
        assert report["exit_code"] == code
        return code, report


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(make(tmp_path / "hosts", NAMES, monkeypatch), tmp_path, capsys)


def test_a_check_a_plan_for_review_the_rollout_and_nothing_left_to_do(typed: Typed) -> None:
    plan = typed.folder / "plan.json"
    code, out, _ = typed("--check", "--save-plan", str(plan))
    assert code == 4
    assert "PENDING  r1" in out
    assert "start unit nearsocket-sglang-a.service" in out
    assert [host["name"] for host in json.loads(plan.read_text())["hosts"]] == list(NAMES)
    code, out, err = typed("--plan", str(plan))
    assert code == 0
    assert "VERIFIED  r1  generation none to 1" in out
    assert "looking at 2 hosts" in err
    assert "r1: changing it" in err
    assert "[1/2] VERIFIED  r1" in err
    code, report = typed.json()
    assert code == 0
    assert [host["end"] for host in report["hosts"]] == ["current", "current"]
    assert report["id"] is None
    assert typed.json("--check")[0] == 0


def test_a_failure_its_report_and_its_way_on(typed: Typed) -> None:
    typed.fleet.host("r1").prove(a="far")
    code, report = typed.json()
    assert code == 2
    assert [host["end"] for host in report["hosts"]] == ["failed", "not-touched"]
    code, out, err = typed()
    assert (code, out) == (2, "")
    assert "expected no rollout that is not at its end, found site" in err
    assert "--resume goes on with it" in err
    code, out, _ = typed("--resume")
    assert code == 2
    assert "next: see to the cause, then the same again; with --resume where rollout" in out
    assert "✗ far" in out or "x far" in out
    typed.fleet.host("r1").prove()
    code, report = typed.json("--resume")
    assert (code, [host["end"] for host in report["hosts"]]) == (0, ["verified", "verified"])
    assert report["hosts"][0]["replicas"][0]["did"] == "restarted"


def test_an_interrupt_tells_what_is_done_what_goes_on_and_how_to_go_on(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    host, plain = typed.fleet.host("r2"), typed.fleet.host("r2").run

    def interrupted(*given: Any) -> Any:
        try:
            return plain(*given)
        except Lost:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(host, "run", interrupted)
    host.lose = (APPLY, True)
    code, out, err = typed()
    assert code == 130
    assert "VERIFIED  r1" in out
    assert "INTERRUPTED  r2" in out
    assert "ends by itself" in out
    assert "--resume" in out
    assert "interrupted" in err
    code, report = typed.json("--resume")
    assert (code, [one["end"] for one in report["hosts"]]) == (0, ["verified-earlier", "verified"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--limit", "nobody"], "expected a host, or a group of the inventory"),
        (["--resume", "--anew"], "expected one of --resume and --anew"),
        (["--check", "--resume"], "expected one of --check and --resume"),
        (["--check", "--plan", "x"], "expected one of --check and --plan"),
        (["--take-over"], "--take-over: expected --resume or --anew beside it"),
        (["--save-plan", "x"], "--save-plan: expected --check beside it"),
        (["--plan", "no-such-file"], "expected a plan that can be read"),
        (["--max-unavailable", "0"], "max-unavailable"),
        (["--disturb"], "--disturb: expected the job reprovision, found site"),
        (["--reboot-limit", "60"], "--reboot-limit: expected the job reprovision, found site"),
        (["reprovision", "--driver", "580.105.08", "--force"], "--force: expected the job site, found reprovision"),
        (["reprovision"], "--driver: expected a driver's version such as 580.105.08, found none"),
        (["reprovision", "--driver", "\u0665\u0668\u0660.\u0661.\u0660"], "--driver: expected a driver's version"),
        (["--override-freeze", " "], "--override-freeze: expected the reason, found none"),
        (["--check", "--save-plan", "no-such-folder/x"], "--save-plan: expected a file in a folder to write in"),
        (["--check", "--save-plan", "."], "save-plan"),
        (["--unreachable", "ask"], "unreachable"),
        (["elsewhere"], "elsewhere"),
    ],
)
def test_a_slip_is_one_line_and_64_and_nothing_is_read(typed: Typed, words: list[str], said: str) -> None:
    code, out, err = typed(*words)
    assert (code, out) == (64, "")
    assert said in err
    assert typed.fleet.log == []


def test_a_plan_file_of_something_else_is_a_slip(typed: Typed) -> None:
    other = typed.folder / "other.json"
    other.write_text('{"schema": "nearsocket.report/1"}')
    code, _, err = typed("--plan", str(other))
    assert code == 64
    assert "expected nearsocket.rollout-plan/1, found another schema" in err


def test_a_host_without_anything_to_serve_is_a_slip(typed: Typed) -> None:
    typed.file.write_text(yaml.safe_dump({"hosts": [{"name": "r1"}]}))
    code, _, err = typed()
    assert code == 64
    assert "expected what to serve, found none" in err


def test_the_hosts_of_a_limit_alone_are_read(typed: Typed) -> None:
    code, report = typed.json("--limit", "r2")
    assert (code, [host["name"] for host in report["hosts"]]) == (0, ["r2"])
    assert not any(line.startswith("r1") for line in typed.fleet.log)
    assert run.RESUME_WAIT_S > 600


class Full:
    """A standard error whose disk is full."""

    encoding = "utf-8"

    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_standard_error_that_takes_nothing_holds_nothing_up(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Full())
    code, report = typed.json()
    assert (code, [host["end"] for host in report["hosts"]]) == (0, ["verified", "verified"])


def test_a_plan_that_cannot_be_written_is_said_behind_the_report(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nearsocket.control.whole.write", full)
    code, out, err = typed("--check", "--save-plan", str(typed.folder / "plan.json"))
    assert code == 74
    assert "PENDING  r1" in out
    assert "expected to write the plan there, found: No space left on device" in err


def test_a_plan_goes_through_a_link_and_into_a_pipe_and_leaves_them_what_they_are(typed: Typed) -> None:
    link, target = typed.folder / "link.json", typed.folder / "target.json"
    link.symlink_to(target)
    assert typed("--check", "--save-plan", str(link))[0] == 4
    assert link.is_symlink()
    assert json.loads(target.read_text())["job"] == "site"
    pipe = typed.folder / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        assert typed("--check", "--save-plan", str(pipe))[0] == 4
        assert json.loads(reader.communicate(timeout=30)[0])["job"] == "site"
    assert pipe.is_fifo()


def test_a_rollout_that_reached_nobody_is_no_success(typed: Typed) -> None:
    for host in typed.fleet.hosts:
        host.down = True
    code, report = typed.json("--unreachable", "skip")
    assert (code, [host["end"] for host in report["hosts"]]) == (2, ["skipped", "skipped"])


def test_a_fleet_file_that_is_a_pipe_is_refused_and_not_waited_for(typed: Typed) -> None:
    typed.file.unlink()
    os.mkfifo(typed.file)
    code, out, err = typed("--check")
    assert (code, out) == (64, "")
    assert "expected a fleet file, found no regular file" in err


@pytest.mark.parametrize(
    ("damage", "said"), [("list", "no JSON object"), ("cut", "found:"), ("twice", "a host that is named twice")]
)
def test_a_damaged_plan_is_one_line_with_the_way_on(typed: Typed, damage: str, said: str) -> None:
    plan = typed.folder / "plan.json"
    assert typed("--check", "--save-plan", str(plan))[0] == 4
    value = json.loads(plan.read_text())
    twice = {**value, "hosts": value["hosts"] + value["hosts"]}
    plan.write_text({"list": "[]", "cut": plan.read_text()[:-40], "twice": json.dumps(twice)}[damage])
    code, out, err = typed("--plan", str(plan))
    assert (code, out) == (64, "")
    assert said in err
    assert "write one: nearsocket rollout" in err

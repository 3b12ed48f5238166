"""The proof at every start on a real machine: systemd starts the unit of starts.py, and the proof judges what runs then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import lifecycle
from lab.standins.equip import equip
from lab.standins.gpu.nvidia_ctk import FAULTS
from nearsocket.control import verify as proofs
from nearsocket.control.inventory import Inventory
from nearsocket.control.targets import resolve
from nearsocket.model import places, programs
from nearsocket.model.settings import OnFar
from tests.lab.host import LabHost
from tests.lab.judged import in_time
from tests.lab.starts import BESIDE, HEALTH, PREPARE, ROOT, UNIT, begin, install, proven_anew, put, report


def targets(host: LabHost) -> Inventory:
    return resolve([str(ROOT / "inventories/lab.py")]).limited([host.name])


@pytest.fixture(scope="module")
def equipped(lab_state: Path, profile: str) -> LabHost:
    record = lifecycle.up(lifecycle.Wish(name="verify", shape="gpus", profile=profile, timeout_s=600))
    equip(record, record.machines[0])
    return LabHost(record, record.machines[0])


@pytest.fixture
def host(equipped: LabHost) -> Iterator[LabHost]:
    clean = (
        f"systemctl stop {UNIT} beside || :; systemctl reset-failed || :; "
        f"rm -rf {FAULTS} /run/nearsocket {places.VAR} /etc/nearsocket; echo 3 >/proc/sys/vm/drop_caches"
    )
    equipped.sh(clean)
    yield equipped
    equipped.sh(clean)


def faults(host: LabHost, *names: str) -> None:
    host.sh(f"mkdir -p {FAULTS}; cd {FAULTS}; touch {' '.join(names)}")


def test_a_start_is_proven_and_so_is_the_next_when_the_engines_processes_are_killed(host: LabHost) -> None:
    install(host, binding="/usr/bin/numactl --membind=0")
    assert begin(host) == "active"
    first = report(host)
    assert (first["word"], first["held"], first["trigger"]) == ("near", "force", "start")
    assert "near by force" in host.sh(f"systemctl show -p StatusText --value {UNIT}")
    assert "verdict on this start: near by force" in host.sh(f"journalctl -u {UNIT} -o cat")
    host.sh("pkill -KILL -f '[s]glang'")
    proven_anew(host, first["start"])
    again = report(host)
    assert again["start"] != first["start"] and again["word"] == "near"


def test_a_start_after_a_power_cut_is_proven_without_a_deploy(host: LabHost) -> None:
    install(host, binding="/usr/bin/numactl --membind=0")
    host.sh(f"ln -sf /etc/systemd/system/{UNIT} /etc/systemd/system/multi-user.target.wants/{UNIT}; sync")
    assert begin(host) == "active"
    before = report(host)
    lifecycle.kill(host.record, host.machine)
    record = lifecycle.up(lifecycle.Wish(name="verify", shape="gpus", profile="full", timeout_s=600))
    after = LabHost(record, record.machines[0])
    proven_anew(after, before["start"])
    assert report(after)["boot_id"] != before["boot_id"]
    after.sh(f"rm /etc/systemd/system/multi-user.target.wants/{UNIT}")


@pytest.mark.parametrize(("policy", "state"), [(OnFar.WARN, "active"), (OnFar.FAIL, "failed"), (OnFar.RESTART, "active")])
def test_far_is_said_everywhere_and_each_policy_acts(host: LabHost, policy: OnFar, state: str) -> None:
    """No binding, the near node full, the ranks allocate from the far CPUs. One replica alone is never restarted."""
    faults(host, "far")
    host.sh("lab-fill 0")
    install(host, policy)
    begin(host)
    # The stop was asked for while the start was under way: `systemctl start` returns before it is done.
    settled = f"for _ in $(seq 60); do [ $(systemctl is-active {UNIT} || :) = {state} ] && exit 0; sleep 1; done; exit 1"
    host.sh(settled, timeout_s=90)
    found = report(host)
    assert found["word"] == "far"
    assert "far:" in host.sh(f"systemctl status --no-pager -l {UNIT} || :")
    if state == "failed":
        assert found["action"] == "fail"
        host.sh(f"sleep 5; [ $(systemctl is-active {UNIT} || :) = failed ]")
        assert host.sh(f"systemctl show -p NRestarts --value {UNIT}") == "0"
        host.fails(f"test -e {places.metrics_file(places.METRICS, 'a')}")
        assert "nearsocket_replica_stopped" in host.sh(f"cat {places.stopped_file(places.METRICS, 'a')}")
        return
    assert 'verdict="far"} 1' in host.sh(f"cat {places.metrics_file(places.METRICS, 'a')}")
    assert "far:" in host.sh(f"journalctl --unit {UNIT} --output cat")
    [told] = proofs.verify(targets(host).targets, 240, 1, "a")
    assert told.code() == 2 and told.verdicts[0].word.value == "far"
    audited = in_time(host.name)
    assert audited.of("engine.start-verdict", "nccl.buffer-placement") == ("fail", "fail"), audited.said("engine.start-verdict")


def test_an_engine_that_kills_itself_when_it_is_stopped_leaves_a_clean_unit_and_comes_back_when_it_was_not(host: LabHost) -> None:
    """137 of a stop is as good as 0; 137 of anything else is a crash."""
    install(host, OnFar.FAIL, binding="/usr/bin/numactl --membind=0")
    assert begin(host) == "active"
    before = report(host)["start"]
    host.sh("pkill -KILL -f '[s]glang.launch_server'")
    proven_anew(host, before)
    host.sh(f"systemctl restart {UNIT}; systemctl stop {UNIT}", timeout_s=600)
    assert host.sh(f"systemctl show -p ActiveState --value {UNIT}") == "inactive"
    assert host.sh(f"systemctl show -p Result --value {UNIT}") == "success"


def test_far_starts_beside_one_that_serves_end_after_three_restarts_and_crashes_then_in_a_stopped_unit(host: LabHost) -> None:
    faults(host, "far")
    install(host, OnFar.RESTART)
    host.sh(BESIDE)
    beside = "20260101T000000Z-1"
    host.sh(f"mkdir -p /run/nearsocket/b/{beside} {places.VERDICTS}")
    put(host, places.start_env("b"), f'START_DIR="/run/nearsocket/b/{beside}"\n'.encode())
    assert begin(host) in ("activating", "failed", "active")
    other = {**report(host), "replica": "b", "start": beside, "action": "none"}
    host.sh(f"systemctl stop {UNIT}; systemctl reset-failed {UNIT} || :; rm -f {places.history_file('a')}")
    put(host, places.verdict_file("b"), json.dumps(other).encode())
    assert host.sh(f"systemctl start {UNIT}; systemctl is-active {UNIT}", timeout_s=1200) == "active", (
        "who waits waits for the last"
    )
    assert len(json.loads(host.sh(f"cat {places.history_file('a')}"))["restarts"]) == 3
    assert "at most once a day" in report(host)["reason"]
    # Seven starts in all: the far ones have used up four, crashes have the other three, each judged and left alone.
    done = f"for _ in $(seq 500); do [ $(systemctl is-active {UNIT} || :) = {{0}} ] && exit 0; sleep 1; done; exit 1"
    for _ in range(3):
        before = report(host)["start"]
        host.sh("pkill -KILL -f '[s]glang'")
        proven_anew(host, before)
    host.sh(done.format("active"), timeout_s=600)
    host.sh("pkill -KILL -f '[s]glang'")
    host.sh(done.format("failed"), timeout_s=600)
    # systemd keeps the last death as the unit's result where that was a signal: its words say why nothing starts any more.
    assert "Start request repeated too quickly" in host.sh(f"journalctl --unit {UNIT} --output cat --lines 30")
    assert host.sh(f"sleep 5; systemctl is-active {UNIT} || :") == "failed"


def test_a_health_port_that_never_opens_is_no_verdict_and_the_metrics_say_so_in_time(host: LabHost) -> None:
    faults(host, "hang-health")
    install(host, OnFar.FAIL)
    assert begin(host) != "active"
    host.fails(f"test -e {places.verdict_file('a')}")


def test_where_mbind_is_refused_as_docker_refuses_it_without_sys_nice_nothing_is_near_by_force(host: LabHost) -> None:
    """Docker's filter answers EPERM; the capability alone is not what mbind(2) asks for. NCCL falls back to files."""
    install(host, variables="NCCL_CUMEM_ENABLE=1")
    refused = "SystemCallFilter=~mbind set_mempolicy\\nSystemCallErrorNumber=EPERM"
    host.sh(f"sed -i '/^Type=exec/a {refused}' /etc/systemd/system/{UNIT}; systemctl daemon-reload")
    assert begin(host) == "active"
    found = report(host)
    assert found["word"] in ("near", "far") and found["held"] == "luck", found["summary"]
    assert any(one["id"] == "nccl.cumem-in-force" and one["status"] == "fail" for one in found["findings"])


def test_a_dead_rank_is_found_by_the_watch_behind_an_api_that_answers(host: LabHost) -> None:
    install(host, binding="/usr/bin/numactl --membind=0")
    assert begin(host) == "active"
    watch = " ".join(programs.watch())
    host.sh(watch)
    assert report(host)["confirmed_at"] is not None
    host.sh(f"mkdir -p {FAULTS}; printf 1 >{FAULTS}/dead-rank")
    host.sh("for _ in $(seq 100); do pgrep -f ^sglang::scheduler_TP1 >/dev/null || exit 0; sleep 0.3; done; exit 1")
    assert host.sh(f"curl -s -o /dev/null -w '%{{http_code}}' {HEALTH} || :") in ("200", "")
    host.sh(watch)
    found = report(host)
    assert (found["trigger"], found["ranks_found"], found["status"]) == ("watch", 1, "fail")


def test_a_hostile_log_folder_delays_nothing_and_claims_nothing(host: LabHost) -> None:
    faults(host, "far")
    install(host)
    put(
        host,
        "/usr/local/lib/nearsocket/prepare",
        (
            PREPARE + 'mkfifo "$dir/nccl.h.1"; ln -s /etc/shadow "$dir/nccl.h.2"; truncate -s 10G "$dir/nccl.h.3"; '
            'seq 3000 | sed "s|^|$dir/nccl.x.|" | xargs touch\n'
        ).encode(),
        "755",
    )
    assert begin(host) == "active"
    assert report(host)["word"] == "far"


def test_an_old_log_that_lies_about_proves_nothing_for_this_start(host: LabHost) -> None:
    """The log of a start that was near by cuMem lies in the folder of one that writes none, and shows no ring file."""
    install(host, variables="NCCL_CUMEM_ENABLE=1")
    assert begin(host) == "active"
    first = report(host)
    assert first["word"] == "near"
    host.sh(f"systemctl stop {UNIT}; rm -rf /root/old; cp -a /run/nearsocket/a/{first['start']} /root/old; ls /root/old/nccl.*")
    install(host, variables="NCCL_CUMEM_ENABLE=1 NCCL_DEBUG_FILE=/dev/null", proof_s=60)
    put(host, "/usr/local/lib/nearsocket/prepare", (PREPARE + 'cp -p /root/old/nccl.* "$dir/"\n').encode(), "755")
    assert begin(host) == "active"
    after = report(host)
    assert (after["start"] != first["start"], after["word"]) == (True, "unknown"), after["summary"]

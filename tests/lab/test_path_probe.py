"""The probe before a start on a two-socket machine: systemd, containers, mounts and buffers are real, GPUs are for show."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from lab import lifecycle, site
from nearsocket.onhost.probe import standin
from tests.lab import sites
from tests.lab.sites import Site

pytestmark = pytest.mark.timeout(1800)

#: Whatever a probe could leave: containers, processes of ranks, its unit, folders, marks.
LEFT = (
    "docker ps --all --quiet --filter label=nearsocket.probe; podman ps --all --quiet --filter label=nearsocket.probe; "
    "pgrep -f 'nearsocket[.]onhost.probe.launcher'; systemctl list-units --all --plain --no-legend 'nearsocket-path-*'; "
    "ls -d /run/nearsocket/probe-* /var/lib/nearsocket/proven/*.probing 2>/dev/null"
)
PROVEN = "cat /var/lib/nearsocket/proven/%s.json 2>/dev/null || echo none"
#: The process that applies, as its lock names it.
HOLDER = "sed -n 's/^process \\([0-9]*\\),.*/\\1/p' /run/nearsocket/apply.lock"
#: A rank of a probe.
RUNNING = "pgrep -f 'nearsocket[.]onhost.probe.launcher' || :"


def two(**changes: Any) -> list[dict[str, Any]]:
    """Replica a by what the plan decides, b by its bound mount alone: its probe needs that mount while its unit is down."""
    a, b = site.replicas(**changes)
    return [a, {**b, "binding": ["shm"]}]


@pytest.fixture(scope="module")
def fresh(request: pytest.FixtureRequest, profile: str) -> Site:
    return sites.fresh(request, profile, "path")


@pytest.fixture
def ready(fresh: Site) -> Site:
    """The machine with nothing of nearsocket's on it, both nodes full of page cache."""
    return sites.full(fresh)


@pytest.fixture(scope="module")
def served_once(fresh: Site) -> Site:
    return sites.served(fresh, two(), "proven")


@pytest.fixture
def served(served_once: Site) -> Site:
    """The machine with both replicas serving, their paths proven."""
    served_once.host.reset("proven")
    return served_once


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_a_first_deploy_proves_both_paths_before_their_starts_and_a_second_one_proves_nothing(ready: Site, runtime: str) -> None:
    fleet = ready.fleet(two(), serve={"runtime": runtime})
    said = ready.good(fleet)
    assert "probe replica a (never proven)" in said
    assert "probe: replica a proven: every element right, near" in said
    assert "probe: replica b proven: every element right, near" in said
    assert "note: replica" not in said
    moments = ready.host.sh(
        "stat -c %Y /var/lib/nearsocket/proven/[ab].json | sort -n | tail -1; "
        'date -d "$(systemctl show --property=ActiveEnterTimestamp --value nearsocket-sglang-a.service)" +%s'
    ).split()
    assert int(moments[0]) <= int(moments[1])
    ready.nothing(LEFT)
    ready.serves(30000, 30001)
    ready.settled(fleet)


def test_a_dry_run_shows_the_probe_and_runs_none(ready: Site) -> None:
    ran = site.deploy(ready.fleet(two()), "site.py", "--dry")
    assert ran.code == 0, ran.said
    assert "probe replica a (never proven)" in ran.said
    ready.nothing(f"ls /var/lib/nearsocket; {LEFT}")


def test_a_changed_environment_of_nccl_is_proven_again_and_another_change_is_not(served: Site) -> None:
    said = served.good(served.fleet(two(environment={"WORD": "new"})))
    assert "restart unit nearsocket-sglang-a.service" in said
    assert "probe replica" not in said
    before = served.host.sh(PROVEN % "a")
    said = served.good(served.fleet(two(environment={"WORD": "new"}, nccl={"NCCL_MIN_NCHANNELS": "2"})))
    assert "probe replica a (new environment)" in said
    assert "probe replica b (new environment)" in said
    assert served.host.sh(PROVEN % "a") != before
    served.nothing(LEFT)
    served.serves(30000, 30001)


@pytest.mark.parametrize(
    ("fault", "found"), [("wrong-sum", "wrong sums"), ("dead-rank", "ended with code 1"), ("hang", "not done within 60 s")]
)
def test_a_broken_path_keeps_its_replica_down_is_said_and_leaves_nothing_running(ready: Site, fault: str, found: str) -> None:
    a, b = two()
    broken = {**a, "environment": {standin.FAULT: fault}, "probe": {"limit": "60s"}}
    said = ready.refused(ready.fleet([broken, b]))
    assert "nearsocket-sglang-a.service is not started: the probe before the start of replica a failed" in said
    assert found in said
    ready.nothing(LEFT)
    assert ready.host.sh("systemctl is-active nearsocket-sglang-a.service || :") == "inactive"
    ready.serves(30001)
    assert ready.host.sh(PROVEN % "a") == "none"
    fleet = ready.fleet([a, b])
    assert "probe: replica a proven" in ready.good(fleet)
    ready.serves(30000, 30001)
    ready.settled(fleet)


def test_an_image_that_cannot_run_the_ranks_is_a_note_and_the_engine_starts(ready: Site) -> None:
    said = ready.good(ready.fleet(two()[:1], serve={"probe": {"backend": "nccl"}}))
    assert "note: replica a: the probe before its start: it could not run" in said
    assert "torch" in said
    ready.serves(30000)
    assert ready.host.sh(PROVEN % "a") == "none"
    ready.nothing(LEFT)


def test_far_buffers_keep_the_replica_down(ready: Site) -> None:
    """Nothing binds, nothing relieves: the near node is full of page cache, and the ranks' buffers land on the other one."""
    a, _ = two()
    for _draw in range(3):  # about one start in seven stays near by luck
        ready.host.reset("ready")
        ready.host.sh("lab-fill 0")
        ran = site.deploy(ready.fleet([{**a, "binding": "none", "page_cache": "none", "nccl": {"NCCL_CUMEM_ENABLE": "0"}}]))
        if ran.code:
            break
    assert ran.code == 1, ran.said
    assert "the probe before the start of replica a failed: its buffers: far" in ran.said
    ready.nothing(LEFT)


def started(fleet: Path) -> subprocess.Popen[bytes]:
    """A deploy in a session of its own, to be killed."""
    return subprocess.Popen(
        site.command("site.py"), env=site.environment(fleet), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def until_ranks_run(made: Site) -> None:
    end = time.monotonic() + 600
    while not made.host.sh(RUNNING):
        assert time.monotonic() < end, "no rank of a probe was seen"
        time.sleep(1)


def test_a_client_killed_in_the_middle_of_a_probe_leaves_an_apply_that_goes_on_to_its_end(ready: Site) -> None:
    fleet = ready.fleet(two())
    client = started(fleet)
    try:
        until_ranks_run(ready)
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    said = ready.good(fleet, "site.py", "--data", "lock_wait=600")
    assert "Traceback" not in said
    ready.serves(30000, 30001)
    ready.nothing(LEFT)
    ready.settled(fleet)


@pytest.mark.parametrize("cut", ["apply", "power"])
def test_an_apply_that_ends_in_the_middle_of_a_probe_leaves_no_container_and_the_next_run_completes(ready: Site, cut: str) -> None:
    fleet = ready.fleet(two())
    client = started(fleet)
    try:
        until_ranks_run(ready)
        if cut == "apply":
            ready.host.sh(f"kill -9 $({HOLDER})")
        else:
            lifecycle.kill(ready.host.record, ready.host.machine)
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    if cut == "power":
        lifecycle.up(lifecycle.Wish(name=ready.host.record.name, shape="gpus", timeout_s=900))
    ready.good(fleet)
    ready.nothing(LEFT)
    ready.serves(30000, 30001)
    ready.settled(fleet)

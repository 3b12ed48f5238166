"""`pyinfra INVENTORY deploys/site.py` on a two-socket machine: from fresh to two replicas near by force, and what may come between.

The engine, its GPUs and their driver are stand-ins; kernel, page cache, systemd, Docker, Podman and SSH are real. Where ring
buffers lie is judged by grep and awk over numa_maps as well as by the audit.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import lifecycle, site
from lab.standins.equip import equip, files
from lab.standins.gpu import describe
from tests.lab import sites
from tests.lab.host import LabHost
from tests.lab.judged import in_time
from tests.lab.sites import CUMEM, Site

pytestmark = pytest.mark.timeout(1800)

PLACEMENT = ("nccl.buffer-placement", "nccl.placement-enforced", "nccl.cumem-in-force")
#: What shows anything of nearsocket's on a host: nothing, where it never was.
TRACES = "ls -d /etc/nearsocket /usr/local/lib/nearsocket /var/lib/nearsocket 2>/dev/null; ls /etc/systemd/system | grep nearsocket"


def two(**changes: Any) -> list[dict[str, Any]]:
    """Replica a by what the plan decides (cuMem and more), b by its bound mount alone; b does not start on other nodes."""
    a, b = site.replicas(**changes)
    return [a, {**b, "binding": ["shm"], "changed_nodes": "refuse"}]


@pytest.fixture(scope="module")
def fresh(request: pytest.FixtureRequest, profile: str) -> Site:
    """The module's machine; each test puts it to where it begins."""
    return sites.fresh(request, profile, "site")


@pytest.fixture
def ready(fresh: Site) -> Site:
    """That machine with nothing of nearsocket's on it, both nodes full of page cache."""
    return sites.full(fresh)


@pytest.fixture(scope="module")
def served_once(fresh: Site) -> Site:
    """That machine, saved as `served`: both replicas in Docker, generation 1."""
    return sites.served(fresh, two(), "served")


@pytest.fixture
def served(served_once: Site) -> Site:
    """That machine with both replicas serving from generation 1."""
    served_once.host.reset("served")
    return served_once


def test_the_naive_engine_lands_far_and_is_not_pushed_aside(ready: Site) -> None:
    for _draw in range(3):
        ready.host.sh("lab-fill 0; standin-engine start NCCL_CUMEM_ENABLE=0")
        found = in_time(ready.host.name)
        if found.statuses["nccl.buffer-placement"] == "fail":
            break
    assert found.of("nccl.buffer-placement", "nccl.placement-enforced") == ("fail", "warn")
    said = ready.refused(ready.fleet(two()))
    assert "to be free, found process" in said and "sglang::scheduler" in said
    ready.nothing(TRACES)


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_a_fresh_host_comes_to_two_replicas_near_by_force_and_a_second_run_does_nothing(ready: Site, runtime: str) -> None:
    fleet = ready.fleet(two(), serve={"runtime": runtime})
    said = ready.good(fleet)
    assert "generation none to 1" in said
    assert ready.generation() == "1"
    ready.near("a", (0,), CUMEM)
    ready.near("b", (1,))
    ready.serves(30000, 30001)
    found = in_time(ready.host.name)
    assert found.of(*PLACEMENT) == ("pass", "pass", "pass"), found.said(*PLACEMENT)
    ready.settled(fleet)


def test_dry_and_diff_show_all_and_write_nothing(ready: Site) -> None:
    fleet = ready.fleet(two())
    ran = site.deploy(fleet, "site.py", "--dry", "--diff")
    assert ran.code == 0, ran.said
    assert "+++ b/systemd/nearsocket-sglang-a.service" in ran.said
    assert f"pull image {ready.image}" in ran.said
    assert "start unit nearsocket-sglang-b.service" in ran.said
    ready.nothing(TRACES)
    ready.nothing("docker ps --all --quiet; docker images --quiet")


def test_what_was_changed_by_hand_is_kept_aside_and_put_right_and_only_its_replica_restarts(served: Site) -> None:
    fleet, before = served.fleet(two()), served.invocation("b")
    unit = "nearsocket-sglang-a.service"
    served.host.sh(f"echo '# mine' >>/etc/nearsocket/current/systemd/{unit}; rm /etc/systemd/system/multi-user.target.wants/{unit}")
    said = served.good(fleet)
    assert f"keep aside file systemd/{unit} (changed by hand)" in said
    assert f"add link /etc/systemd/system/multi-user.target.wants/{unit}" in said
    assert f"restart unit {unit}" in said
    served.host.sh(f"grep -q '# mine' /var/lib/nearsocket/aside/*/systemd/{unit}")
    assert served.invocation("b") == before
    served.near("a", (0,), CUMEM)
    served.settled(fleet)


def test_a_removal_needs_leave_leaves_no_trace_and_a_rollback_brings_the_replica_back(served: Site) -> None:
    fleet, before = served.fleet(two()[:1]), served.invocation("a")
    assert "allow_removals=true" in served.refused(fleet)
    served.serves(30001)
    said = served.good(fleet, "site.py", "--data", "allow_removals=true")
    assert "remove replica b" in said
    served.nothing("docker ps --all --quiet --filter name=nearsocket-sglang-b; grep nearsocket/shm/b /proc/mounts")
    served.nothing("ls -d /run/nearsocket/shm/b /run/nearsocket/b 2>/dev/null")
    served.nothing("find /etc/systemd /etc/nearsocket/current/ | grep -E 'sglang-b|-b[.]|/b[.]'")
    served.nothing("systemctl list-units --all --plain --no-legend 'nearsocket*b.*' '*shm-b.mount'")
    served.settled(fleet)
    assert "generation 2 to 1" in served.good(fleet, "rollback.py")
    assert served.generation() == "1"
    served.near("b", (1,))
    served.serves(30000, 30001)
    assert served.invocation("a") == before


def test_a_client_that_is_killed_in_the_middle_of_an_apply_leaves_it_to_end_by_itself(ready: Site) -> None:
    fleet = ready.fleet(two())
    client = subprocess.Popen(
        site.command("site.py"), env=site.environment(fleet), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        ready.host.sh("for _ in $(seq 600); do [ -e /etc/nearsocket/pending.json ] && exit 0; sleep 0.2; done; exit 1")
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    ready.host.sh("for _ in $(seq 900); do [ ! -e /etc/nearsocket/pending.json ] && exit 0; sleep 0.5; done; exit 1", timeout_s=600)
    assert ready.generation() == "1"
    ready.near("b", (1,))
    ready.settled(fleet)


def test_a_docker_client_that_is_killed_leaves_a_container_that_goes_with_it_and_the_next_start_is_proven(served: Site) -> None:
    """The container is no child of the client's: it survives it, holding the GPUs, until the unit's end takes it away."""
    host, unit, file = served.host, "nearsocket-sglang-a.service", "/var/lib/nearsocket/verdicts/a.verdict.json"
    before, other = json.loads(host.sh(f"cat {file}")), served.invocation("b")
    container = host.sh("docker inspect --format '{{.Id}}' nearsocket-sglang-a")
    host.sh(f"kill -KILL $(systemctl show --property=MainPID --value {unit})")
    proven = f"[ -f {file} ] && ! grep -q {before['start']} {file}"
    host.sh(f"for _ in $(seq 600); do {proven} && exit 0; sleep 1; done; exit 1", timeout_s=700)
    after = json.loads(host.sh(f"cat {file}"))
    assert (after["word"], after["held"], after["trigger"]) == ("near", "force", "start"), after["summary"]
    assert host.sh("docker ps --all --quiet --no-trunc --filter name=nearsocket-sglang-a") not in ("", container)
    assert served.invocation("b") == other
    served.near("a", (0,), CUMEM)
    served.serves(30000, 30001)


FULL = """mkdir -p /mnt/etc; mount -t tmpfs -o size=24m tmpfs /mnt/etc; cp -a /etc/. /mnt/etc; mount --bind /mnt/etc /etc
dd if=/dev/zero of=/etc/filler bs=4k 2>/dev/null || :; truncate -s -{kib}K /etc/filler"""
READ_ONLY = "mount --bind /etc /etc; mount -o remount,bind,ro /etc"


@pytest.mark.parametrize(
    ("break_", "mend", "found"),
    [
        pytest.param(FULL.format(kib=0), "rm /etc/filler", "No space left on device", id="full"),
        pytest.param(FULL.format(kib=20), "rm /etc/filler", "No space left on device", id="nearly-full"),
        pytest.param(READ_ONLY, "umount /etc", "Read-only file system", id="read-only"),
    ],
)
def test_an_etc_that_cannot_be_written_leaves_the_old_generation_serving_and_the_next_run_completes(
    served: Site, break_: str, mend: str, found: str
) -> None:
    fleet = served.fleet(two(environment={"NEW": "1"}))
    before = served.invocation("a"), served.invocation("b")
    served.host.sh(break_)
    said = served.refused(fleet)
    assert found in said
    assert served.generation() == "1"
    assert (served.invocation("a"), served.invocation("b")) == before
    served.serves(30000, 30001)
    served.nothing(f"{mend}; find /etc /usr/local/lib/nearsocket -name '.nearsocket-new-*'")
    assert "generation 1 to 2" in served.good(fleet)
    assert served.generation() == "2"
    served.near("a", (0,), CUMEM)
    served.near("b", (1,))
    served.settled(fleet)


def test_after_a_flip_of_snc_one_replica_starts_unbound_and_loud_the_other_refuses_and_a_deploy_binds_both_anew(
    served: Site,
) -> None:
    fleet = served.fleet(two())
    flipped = sites.reshaped(served, "snc4")
    host = flipped.host
    said = host.sh("journalctl --boot --no-pager --output=cat --unit nearsocket-sglang-a.service")
    assert "THE NODES ARE NOT THOSE OF THE PLAN; THIS START IS UNBOUND" in said
    assert "node 2 is new" in said
    assert host.sh("systemctl is-active nearsocket-sglang-a.service") == "active"
    flipped.serves(30000)
    assert host.sh("docker inspect --format '{{.HostConfig.CpusetCpus}}{{.HostConfig.CpusetMems}}' nearsocket-sglang-a") == ""
    assert "failed" in host.sh("systemctl show --property=ActiveState,Result nearsocket-sglang-b.service")
    said = host.sh("journalctl --boot --no-pager --output=cat --unit nearsocket-sglang-b.service")
    assert "not started: " in said and "node 2 is new" in said

    # The stand-ins tell the GPUs' nodes by a file, where a driver would ask the firmware anew.
    content = next(content for path, content, _ in files("snc4", []) if path == describe.GUEST_PATH).decode()
    host.sh(f"printf '%s' '{content}' >{describe.GUEST_PATH}; lab-fill 0; lab-fill 2")
    assert "generation 1 to 2" in flipped.good(fleet)
    flipped.near("a", (0, 1), CUMEM)
    flipped.near("b", (2, 3))
    found = in_time(host.name)
    assert found.of(*PLACEMENT) == ("pass", "pass", "pass"), found.said(*PLACEMENT)
    flipped.settled(fleet)


@pytest.fixture
def memoryless(lab_state: Path, profile: str) -> Iterator[Site]:
    """A machine whose second socket has no memory, with GPUs for show on both."""
    record = lifecycle.up(lifecycle.Wish(name="memoryless", shape="memoryless", profile=profile, timeout_s=600))
    equip(record, record.machines[0])
    yield Site(LabHost(record, record.machines[0]), f"127.0.0.1:5000/none@sha256:{'0' * 64}")
    lifecycle.down("memoryless")


def test_a_replica_on_a_socket_without_memory_is_refused_with_the_reason_and_the_other_one_is_planned(memoryless: Site) -> None:
    command = ["-m", "nearsocket", "plan", str(memoryless.fleet(two())), "--timeout", "180"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "b: node 1 near its GPUs has no memory" in done.stdout
    assert "a: " not in done.stdout.partition("refused")[2]
    said = memoryless.refused(memoryless.fleet(two()))
    assert "node 1 near its GPUs has no memory" in said
    memoryless.nothing(TRACES)

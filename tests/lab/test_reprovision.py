"""A driver upgrade over two machines with two replicas each: in order, with real apt, systemd, Docker and reboots; stopped before
anything is stopped, waited for, taken back, found after it happened by itself, gone on with after a client that was killed.

The driver, its GPUs and the engine are stand-ins; apt, dpkg, kernels, systemd, Docker and SSH are real.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import yaml

from lab import lifecycle, site
from lab.standins.equip import TOOLKIT, equip
from lab.standins.gpu import nvidia_ctk
from lab.standins.gpu.packages import NEWER, VERSION
from nearsocket.model.driver import orders
from tests.lab import sites
from tests.lab.host import LabHost
from tests.lab.judged import judged
from tests.lab.obstacles import ALONE, BRAKE, DKMS, FABRIC, FULL_BOOT, kept_by_boots
from tests.lab.rows import PACKAGES
from tests.lab.sites import Site
from tests.lab.upgrades import INSTALLED, LOADED, PORTS, Pair, run, wait_for

pytestmark = pytest.mark.timeout(7200)

READY = "serving"
#: The engine's home in its container.
HOME = "/root"
#: What replicas `a` mount as their home's cache: code that was compiled for a driver, and a model.
CACHES = "/var/cache/engine"
COMPILED = f"{CACHES}/vllm/torch_compile_cache/0123456789"
MODEL = f"{CACHES}/huggingface/model.safetensors"
CACHE = f"mkdir -p {COMPILED} {CACHES}/huggingface; touch {COMPILED}/artifact {MODEL}"


@pytest.fixture(scope="module")
def machines(request: pytest.FixtureRequest, profile: str, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two machines that serve two replicas each, their driver held, all-reduces kept as baselines; saved as `serving`."""
    made = sites.fresh_hosts(request, profile, "reprovision", 2)
    hosts = []
    a, b = site.replicas()
    wanted = [{**a, "mounts": [f"{CACHES}:{HOME}/.cache"]}, {**b, "binding": ["shm"]}]
    for one in made:
        hosts += yaml.safe_load(one.fleet(wanted).read_text())["hosts"]
    fleet = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"hosts": hosts}, sort_keys=False))
    pair = Pair(made, fleet)
    if sites.all_saved(made, READY):
        return pair
    for one in made:
        one.host.sh(f"{ALONE}; apt-mark hold {PACKAGES}; ln -s {TOOLKIT} /usr/bin/nvidia-ctk; {CACHE}", timeout_s=900)
        one.host.sh(f"docker pull --quiet {one.image}", timeout_s=900)
    run(fleet, "probe", "allreduce", str(fleet), "--backend", "standin", "--keep-baseline", "--sizes", "12K,1M", "--timeout", "400")
    run(fleet, "rollout", str(fleet), "--timeout", "400")
    sites.save_all(made, READY)
    return pair


@pytest.fixture
def pair(machines: Pair) -> Pair:
    """The machines as they served first."""
    for one in machines.sites:
        one.host.reset(READY)
        one.serves(*PORTS.values())
    return machines


def test_two_hosts_are_upgraded_in_order_and_the_other_serves(pair: Pair) -> None:
    first, second = pair.sites
    before = pair.starts()
    client = pair.start()
    first.host.sh(f"for _ in $(seq 3000); do grep -q upgrad {orders.FILE} && exit 0; sleep 0.3; done; exit 1", timeout_s=1800)
    second.serves(*PORTS.values())
    said, errors = client.communicate()
    assert client.returncode == 0, said + errors
    report = json.loads(said)
    assert [host["end"] for host in report["hosts"]] == ["verified", "verified"]
    for one, host in zip(pair.sites, report["hosts"], strict=True):
        notes = "\n".join(host["notes"])
        assert "all-reduces as fast as" in notes, notes
        assert "containers see their GPUs: a 2 (libcuda), b 2 (libcuda)" in notes, notes
        assert f"{nvidia_ctk.OUTPUT} was made anew" in notes, notes
        assert f"cleared what was compiled in {COMPILED.rpartition('/')[0]}" in notes, notes
        assert f"driver's module in memory: {VERSION} -> {NEWER}" in notes, notes
        libraries = one.host.sh(f"grep -o 'libcuda.so.[0-9][0-9.]*' {nvidia_ctk.OUTPUT} | sort -u").split()
        assert libraries == ["libcuda.so.1", f"libcuda.so.{NEWER}"]
        one.host.sh(f"test ! -e {COMPILED} && test -e {MODEL}")
    pair.is_at(NEWER, NEWER)
    assert all(before[key] != now for key, now in pair.starts().items())
    code, report = pair.upgrade()
    assert (code, [host["end"] for host in report["hosts"]]) == (0, ["current", "current"])


STOPPED = {
    "a held package": (BRAKE, "brake : Breaks: nvidia-kernel-standin"),
    "a module that cannot be built": (DKMS, "DKMS builds the module, and dkms, make or gcc is not there"),
    "a full /boot": (FULL_BOOT, "disk: /boot"),
    "no container toolkit": ("rm /usr/bin/nvidia-ctk", "a CDI specification names files of"),
}


@pytest.mark.parametrize("fault", STOPPED)
def test_what_would_stop_it_on_the_second_host_is_found_before_anything_is_stopped_on_the_first(pair: Pair, fault: str) -> None:
    script, said = STOPPED[fault]
    pair.sites[1].host.sh(script, timeout_s=600)
    before = pair.starts()
    code, report = pair.upgrade()
    assert code == 2, json.dumps(report, indent=1)
    assert [host["end"] for host in report["hosts"]] == ["not-touched", "failed"]
    assert said in report["hosts"][1]["reason"]
    assert pair.starts() == before
    pair.sites[0].serves(*PORTS.values())


def test_a_fabric_manager_of_another_version_is_said_where_no_nvswitch_needs_it(pair: Pair) -> None:
    """QEMU's devices cannot carry an NVSwitch's class; that it stops where there is one is tested on values (tests/driver)."""
    pair.sites[0].host.sh(FABRIC, timeout_s=600)
    code, report = pair.upgrade("--check")
    assert code == 4
    assert "nvidia-fabricmanager is 570.1.2-1" in " ".join(report["hosts"][0]["notes"])


def test_a_host_that_never_comes_back_is_the_end_of_the_rollout_in_one_line(pair: Pair) -> None:
    first, second = pair.sites
    first.host.sh("systemctl mask ssh.service ssh.socket")  # the next boot has no sshd
    code, report = pair.upgrade("--reboot-limit", "240")
    assert code == 2
    assert [host["end"] for host in report["hosts"]] == ["failed", "not-touched"]
    assert "expected the host to come back from its reboot within 240 s" in report["hosts"][0]["reason"]
    second.serves(*PORTS.values())


#: What shows behind the new driver alone: the fault of the stand-ins, and what the host is taken back for.
WORSE = {
    "all-reduces": ("slow-driver", "all-reduces are slower than with the driver before"),
    "containers": ("no-cuda", "cuInit ends with 999"),
}


@pytest.mark.parametrize("worse", WORSE)
def test_a_driver_that_is_worse_is_taken_back_and_the_fleet_stopped(pair: Pair, worse: str) -> None:
    fault, said = WORSE[worse]
    pair.sites[0].host.sh(kept_by_boots(fault, NEWER))
    code, report = pair.upgrade()
    assert code == 2
    assert [host["end"] for host in report["hosts"]] == ["rolled-back", "not-touched"], json.dumps(report, indent=1)
    assert said in report["hosts"][0]["reason"]
    pair.is_at(VERSION, VERSION)
    pair.sites[0].host.sh(f"grep -q libcuda.so.{VERSION} {nvidia_ctk.OUTPUT}")


def test_a_silent_upgrade_is_named_by_the_audit_and_repaired_by_the_same_command(pair: Pair) -> None:
    first = pair.sites[0]
    first.host.sh(f"apt-mark unhold {PACKAGES}; DEBIAN_FRONTEND=noninteractive apt-get -qq -y upgrade; ldconfig", timeout_s=900)
    window = judged(first.host.name)
    assert window.of("driver.versions-match") == ("fail",), window.said("driver.versions-match")
    code, report = pair.upgrade("--limit", first.host.name)
    assert code == 0, json.dumps(report, indent=1)
    assert first.host.sh(LOADED) == NEWER
    first.serves(*PORTS.values())
    assert judged(first.host.name).of("driver.versions-match") == ("pass",)


#: The phases in which one client after another is killed.
KILLS = ("stopping", "upgrading", "rebooting", "proven")


def test_clients_that_are_killed_in_each_phase_are_gone_on_with_from_other_folders(pair: Pair, tmp_path: Path) -> None:
    first = pair.sites[0]
    resume: tuple[str, ...] = ("--limit", first.host.name)
    for phase in KILLS:
        folder = tmp_path / phase
        folder.mkdir()
        client = pair.start(*resume, folder=folder)
        try:
            wait_for(first, phase)
            assert client.poll() is None
        finally:
            client.send_signal(signal.SIGKILL)
            said = client.communicate()
        assert client.returncode == -signal.SIGKILL, said
        resume = ("--resume", "--limit", first.host.name)
    code, report = pair.upgrade(*resume, folder=tmp_path)
    assert code == 0, json.dumps(report, indent=1)
    assert [host["end"] for host in report["hosts"]] == ["verified"]
    pair.is_at(NEWER, VERSION)


def test_a_shutdown_that_takes_a_minute_is_waited_out(pair: Pair) -> None:
    words = "-p After=ssh.service -p ExecStop='/bin/sleep 60' -p TimeoutStopSec=120"
    pair.sites[0].host.sh(f"systemd-run --unit=slow {words} sleep infinity")
    code, report = pair.upgrade("--limit", pair.sites[0].host.name)
    assert code == 0, json.dumps(report, indent=1)
    pair.is_at(NEWER, VERSION)


@pytest.mark.slow
def test_a_module_that_does_not_build_is_found_by_building_it_aside(lab_state: Path, tmp_path: Path) -> None:
    """By the real DKMS, on a machine with a compiler; nothing is served there, and nothing of the driver changes."""
    record = lifecycle.up(lifecycle.Wish(name="trial", shape="gpus", profile="dkms", timeout_s=900))
    machine = record.machines[0]
    host = LabHost(record, machine)
    equip(record, machine)
    host.sh(f"{ALONE}; ln -s {TOOLKIT} /usr/bin/nvidia-ctk; {DKMS}", timeout_s=900)
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(site.write_fleet(record, machine, "example.org/none@sha256:" + "1" * 64, []).read_text())
    pair = Pair([Site(host, "")], fleet)
    code, report = pair.upgrade()
    assert code == 2, json.dumps(report, indent=1)
    assert f"trial build: the module of {NEWER} does not build for kernel {host.sh('uname -r')}" in report["hosts"][0]["reason"]
    assert host.sh(INSTALLED) == f"{VERSION}-0standin1"
    assert host.sh("ls /var/lib/dkms 2>/dev/null || :") in ("", "mok.key\nmok.pub")
    lifecycle.down("trial")

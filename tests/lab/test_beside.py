"""Beside what already runs, on a real machine: import, observe, a refused first apply, the guard of the reload, and out again.

Three engines that somebody made by hand serve throughout: a container of Docker, one as compose makes it, and a unit with podman.
"""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import inventory, lifecycle, state
from lab.standins.engine import image
from lab.standins.equip import equip, lay
from nearsocket import paths
from tests.lab.host import LabHost
from tests.lab.judged import judged

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = "[ -d /srv/models/m ] || { mkdir -p /srv/models/m; head -c 30M /dev/zero >/srv/models/m/weights.bin; }"
ENGINE = "--model-path /srv/models/m/weights.bin --tp 1 --port {port}"
COMMON = "--network host --shm-size 256m -v /srv/models:/srv/models:ro -e NCCL_CUMEM_ENABLE=1 --cap-add SYS_NICE"
COMPOSE = "--label com.docker.compose.project=llm --label com.docker.compose.service=b"
#: Polls until it is told to stop; every answer and failure is a line.
POLL = """cat >/root/poll.py <<'END'
import http.client, pathlib, sys, time
ports, stop = [int(word) for word in sys.argv[1:]], pathlib.Path("/root/poll.stop")
log = open("/root/poll.log", "w", buffering=1)
while not stop.exists():
    for port in ports:
        try:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            link.request("GET", "/health")
            said = link.getresponse().status
        except OSError as error:
            said = repr(error)
        log.write(f"{port} {said}\\n")
    time.sleep(0.5)
log.write("end\\n")
END
rm -f /root/poll.stop /root/poll.log; nohup python3 /root/poll.py %s >/dev/null 2>&1 &"""
#: All that leaving has to put back. Times of files are no trace of ours, nor is the mount that Docker keeps of its first container.
SEEN = (
    "find /etc /usr/local /var/lib/nearsocket /run/nearsocket /run/systemd/system -xdev ! -name machine-id ! -path '*/ld.so.cache' "
    "-printf '%p %y %m %u %l\\n' 2>/dev/null | sort; "
    "find /etc -xdev -type f ! -path '*/ld.so.cache' -exec sha256sum {} + | sort -k2; "
    "systemctl list-unit-files --no-legend | sort; "
    "systemctl list-units --no-legend --plain --type=service,mount,slice | awk '{print $1, $3}' | "
    "grep -v -e user -e session -e run-r -e run-docker | sort; "
    "awk '{print $2, $3}' /proc/mounts | grep -v -e overlay -e '^/run/user' -e '^/run/docker' | sort; "
    "sysctl vm.swappiness vm.zone_reclaim_mode kernel.numa_balancing; dpkg-query -W; apt-mark showhold"
)


@dataclass(frozen=True)
class Beside:
    """The machine, its engines' image by digest for each runtime, and a folder for inventories."""

    host: LabHost
    images: dict[str, str]
    folder: Path

    def deploy(self, name: str, replicas: list[dict[str, Any]], *options: str, **data: Any) -> tuple[int, str]:
        """One deploy of pyinfra's; its exit code and what it said."""
        serve = {"engine": "sglang", "image": self.images["docker"], "model": "/srv/models/m"}
        known = {**inventory.data(self.host.record, self.host.machine), "_sudo": True, "nearsocket_serve": serve, **data}
        known = {**known, "nearsocket_replicas": replicas, "nearsocket_timeout": 240}
        path = self.folder / "inventory.py"
        path.write_text(f"hosts = [('@nearsocket/{self.host.name}', {known!r})]\n")
        words = [sys.executable, "-m", "pyinfra", str(path), str(paths.deploys_folder() / name), "-y", *options]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            words, cwd=self.folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=850, check=False
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.returncode, done.stdout + done.stderr

    def polled(self) -> list[str]:
        """End the poll; what was not a 200."""
        self.host.sh(
            "touch /root/poll.stop; for _ in $(seq 200); do grep -q ^end /root/poll.log && exit 0; sleep 0.5; done; exit 1"
        )
        lines = self.host.sh("cat /root/poll.log").splitlines()[:-1]
        assert len(lines) > 10, lines
        return [line for line in lines if not line.endswith(" 200")]


@pytest.fixture(scope="module")
def equipped(request: pytest.FixtureRequest, profile: str, tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """A machine with stand-ins, Docker, podman and a registry; NEARSOCKET_LAB_EQUIPPED names one that is up already."""
    if profile != "full":
        pytest.skip("the small image has no container engine")
    named = os.environ.get("NEARSOCKET_LAB_EQUIPPED")
    if named:
        record, machine = state.find_machine(named)
    else:
        request.getfixturevalue("lab_state")
        record = lifecycle.up(lifecycle.Wish(name="beside", shape="gpus", profile=profile, timeout_s=600))
        machine = record.machines[0]
        equip(record, machine)
    host = LabHost(record, machine)
    host.sh(f"lab-registry start; {WEIGHTS}", timeout_s=300)
    images = {runtime: image.publish(record.name, machine.name, runtime) for runtime in ("docker", "podman")}
    return Beside(host, images, tmp_path_factory.mktemp("beside"))


@pytest.fixture
def machine(equipped: Beside) -> Iterator[Beside]:
    """That machine with none of anybody's engines."""
    clean(equipped)
    yield equipped
    clean(equipped)


def clean(beside: Beside) -> None:
    """Nothing runs and nothing of nearsocket's is left, whatever a failed test did."""
    beside.deploy("remove.py", [])
    beside.host.sh(
        "set +e; touch /root/poll.stop; systemctl stop hand.service 2>/dev/null; rm -rf /etc/systemd/system/hand.service*; "
        "rm -f /etc/systemd/system/multi-user.target.wants/hand.service; docker rm -f one two >/dev/null 2>&1; "
        "podman rm -f -i -t 0 hand >/dev/null; systemctl daemon-reload; systemctl reset-failed; true",
        timeout_s=300,
    )


def serving(beside: Beside) -> None:
    """The three engines by hand, each on a GPU of its own, until all serve."""
    docker, podman = beside.images["docker"], beside.images["podman"]
    run = f"docker run -d {COMMON}"
    unit = (
        "[Unit]\nDescription=by hand\n[Service]\nRestart=always\nTimeoutStopSec=60\n"
        f"ExecStart=/usr/bin/podman run --rm --name hand --device nvidia.com/gpu=2 {COMMON} {podman} {ENGINE.format(port=30002)}\n"
        "ExecStop=/usr/bin/podman stop -t 20 hand\n[Install]\nWantedBy=multi-user.target\n"
    )
    beside.host.sh(
        f"{run} --name one --device nvidia.com/gpu=0 {docker} {ENGINE.format(port=30000)}; "
        f"{run} --name two {COMPOSE} --device nvidia.com/gpu=1 {docker} {ENGINE.format(port=30001)}; "
        f"printf '%b' '{unit.replace(chr(10), chr(92) + 'n')}' >/etc/systemd/system/hand.service; "
        "systemctl daemon-reload; systemctl enable -q hand.service; systemctl start hand.service; "
        f"{until(30000, 30001, 30002)}",
        timeout_s=800,
    )


def until(*ports: int) -> str:
    """A script that waits until something at each port is healthy."""
    return (
        f"for port in {' '.join(map(str, ports))}; do for _ in $(seq 400); do "
        "python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=30)\" 2>/dev/null "
        "&& continue 2; sleep 0.5; done; exit 1; done"
    )


def imported(beside: Beside) -> list[dict[str, Any]]:
    """The replicas that `nearsocket import` finds on the machine."""
    out = beside.folder / "imported.yaml"
    out.unlink(missing_ok=True)
    words = [sys.executable, "-m", "nearsocket", "import", str(inventory.path()), "--output", str(out), "--timeout", "240"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = yaml.safe_load(out.read_text())["hosts"][0]["replicas"]
    return found


def test_three_engines_by_hand_serve_through_import_observe_and_a_refused_first_apply(machine: Beside) -> None:
    serving(machine)
    machine.host.sh(POLL % "30000 30001 30002")
    replicas = imported(machine)
    assert {replica["port"] for replica in replicas} == {30000, 30001, 30002}
    assert {replica["runtime"] for replica in replicas} == {"docker", "podman"}
    began = "docker inspect -f '{{.State.StartedAt}}' one two; systemctl show -p InvocationID hand.service"
    starts = machine.host.sh(began)
    code, said = machine.deploy("site.py", replicas)
    assert code == 0, said
    machine_reloaded = machine.host.sh("systemctl show -p NeedDaemonReload hand.service")
    assert machine_reloaded == "NeedDaemonReload=no"
    code, said = machine.deploy("site.py", [{**one, "adopt": None} for one in replicas])
    assert code != 0
    assert "to be free, found" in said, said
    assert machine.host.sh(began) == starts
    assert machine.polled() == []


#: What Docker looks for at its start, to offer `--gpus`.
HOOK = "/usr/bin/nvidia-container-runtime-hook"
DOCKER = "systemctl restart docker; docker info >/dev/null"


@pytest.fixture
def hooked(machine: Beside) -> Iterator[Beside]:
    """The machine with a legacy hook (a stand-in), by which Docker hands out GPUs that systemd is not told of."""
    lay(machine.host.record, machine.host.machine, [(HOOK.lstrip("/"), (ROOT / "lab/standins/gpu/hook.py").read_bytes(), 0o755)])
    machine.host.sh(DOCKER, timeout_s=300)
    yield machine
    machine.host.sh(f"docker rm -f one >/dev/null 2>&1 || :; rm -f {HOOK}; {DOCKER}", timeout_s=300)


def test_a_container_whose_devices_systemd_was_not_told_of_is_protected(hooked: Beside) -> None:
    """First by hand: systemd 257 takes them away when it writes the container's rules anew, if not at a reload as 252 does
    (test_reloads.py). Then the guard."""
    host = hooked.host
    run = f"docker run -d --name one {COMMON} --gpus device=0 {hooked.images['docker']} {ENGINE.format(port=30000)}; {until(30000)}"
    reads = "docker exec one sh -c 'exec 3</dev/nvidiactl' 2>&1 && echo reads || echo lost"
    host.sh(run, timeout_s=400)
    assert host.sh(reads).endswith("reads")
    host.sh("systemctl set-property --runtime docker-$(docker inspect -f '{{.Id}}' one).scope CPUWeight=90")
    assert host.sh(reads).endswith("lost"), "the fault itself, shown by hand"
    host.sh(f"docker rm -f one; {run}", timeout_s=400)
    assert host.sh(reads).endswith("reads")
    assert judged(host.name).of("host.daemon-reload-risk") == ("warn",)
    code, said = hooked.deploy("site.py", [{"name": "z", "gpus": ["2"], "port": 30009}])
    assert code != 0
    assert "daemon-reload" in said
    assert "nvidia.com/gpu" in said
    assert host.sh(reads).endswith("reads")
    assert host.sh("ls -d /etc/nearsocket /usr/local/lib/nearsocket 2>/dev/null || echo none") == "none"


def test_a_listed_device_outlives_a_reload_with_or_without_its_link(machine: Beside) -> None:
    """systemd takes the numbers out of `/dev/char/195:255`: what makes a reload a risk is a device that it was not told of."""
    host = machine.host
    run = f"docker run -d --name one {COMMON} --device nvidia.com/gpu=0 {machine.images['docker']} {ENGINE.format(port=30000)}"
    host.sh(f"{run}; {until(30000)}; mkdir -p /root/links; mv /dev/char/195:* /root/links/", timeout_s=400)
    try:
        found = json.loads(host.sh("docker inspect one"))[0]["Id"]
        assert "195:255" in host.sh(f"systemctl show -p DeviceAllow docker-{found}.scope")
        host.sh("systemctl daemon-reload")
        assert host.sh("docker exec one sh -c 'exec 3</dev/nvidiactl' && echo reads") == "reads"
        assert judged(host.name).of("host.daemon-reload-risk") == ("pass",)
    finally:
        host.sh("mv /root/links/* /dev/char/")


def test_after_remove_nothing_differs_from_before_the_first_apply(machine: Beside) -> None:
    before = machine.host.sh(SEEN)
    tune = {"swappiness": 1}
    code, said = machine.deploy("site.py", [{"name": "z", "gpus": ["0"], "port": 30009}], nearsocket_tune=tune)
    assert code == 0, said
    assert machine.host.sh(SEEN) != before
    code, said = machine.deploy("remove.py", [])
    assert code == 0, said
    after = machine.host.sh(SEEN)
    assert list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")) == []


def test_kept_engines_serve_on_by_units_of_their_own_and_start_again_by_them(machine: Beside) -> None:
    code, said = machine.deploy("site.py", [{"name": "z", "gpus": ["0"], "port": 30009}])
    assert code == 0, said
    machine.host.sh(POLL % "30009")
    code, said = machine.deploy("remove.py", [], "--data", "keep_engines=true")
    assert code == 0, said
    assert machine.polled() == []
    unit = "nearsocket-sglang-z.service"
    try:
        machine.host.sh(f"test ! -e /etc/nearsocket; systemctl restart {unit}; systemctl is-active {unit}", timeout_s=400)
    finally:
        machine.host.sh(
            f"systemctl stop {unit}; rm -f /etc/systemd/system/{unit} /etc/systemd/system/*.wants/{unit}; "
            "rm -f /etc/default/nearsocket-sglang-z /etc/systemd/system/nearsocket-z.slice; "
            "rm -f /etc/systemd/system/run-nearsocket-shm-z.mount; "
            "systemctl daemon-reload",
            timeout_s=300,
        )


@pytest.mark.parametrize("how", ["now", "next-restart"])
def test_the_unit_by_hand_is_taken_over_and_put_back(machine: Beside, how: str) -> None:
    serving(machine)
    (mine,) = [one for one in imported(machine) if one["port"] == 30002]
    code, said = machine.deploy("site.py", [{**mine, "adopt": how}])
    assert code == 0, said
    ours = f"nearsocket-sglang-{mine['name']}.service"
    if how == "next-restart":
        assert machine.host.sh("systemctl is-active hand.service") == "active"
        machine.host.sh("systemctl stop hand.service", timeout_s=300)
        machine.host.sh(f"for _ in $(seq 600); do systemctl is-active -q {ours} && exit 0; sleep 0.5; done; exit 1", timeout_s=400)
    assert machine.host.sh(f"systemctl is-active {ours}") == "active"
    down = machine.host.fails("systemctl is-active hand.service").strip()
    assert down == "inactive" if how == "now" else down in ("inactive", "failed")
    machine.host.sh("systemctl start hand.service; true")
    assert machine.host.fails("systemctl is-active hand.service").strip() == down, "it does not start while nearsocket is in force"
    code, said = machine.deploy("remove.py", [])
    assert code == 0, said
    assert machine.host.sh("systemctl is-enabled hand.service") == "enabled"
    machine.host.sh("systemctl start hand.service; systemctl is-active hand.service", timeout_s=300)

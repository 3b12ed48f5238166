"""The whole reading: with secrets in every place, with everything hanging, with nothing there."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from nearsocket.model.snapshot import SourceStatus, from_json
from nearsocket.onhost.collect.sources import JOBS
from nearsocket.onhost.collect.whole import collect
from tests.onhost.actors import end, line, pair, start
from tests.onhost.standins import commands, pynvml, tree
from tests.onhost.test_runtimes import INSPECT, SHOW

CANARY = "canary"
# A rank that logs as NCCL does, with secrets among what it says, and holds the log open.
_RANK = """
import sys
log, bird = open(sys.argv[1], "w"), "can" "ary"  # in two, since this text is itself in the process's command line
log.write("gpu1:1:2 [0] NCCL INFO NCCL version 2.30.7+cuda13.0\\n")
log.write("gpu1:1:2 [0] NCCL INFO NCCL_CUMEM_ENABLE set by environment to 1.\\n")
log.write("gpu1:1:2 [0] NCCL INFO NCCL_NET_TOKEN set by environment to x token=%s api_key: %s\\n" % (bird, bird))
log.write(bird + " on a line that nobody needs\\n")
log.write("gpu1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct\\n")
log.flush()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host(root: Path, tools: Path) -> Path:
    return tree(root, {"/proc/driver/nvidia/version": "NVRM version: 595.45.04\n"})


def test_no_secret_of_any_place_is_in_the_snapshot(host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(
        host,
        {
            "/proc/cmdline": f"root=/dev/sda1 ip=dhcp rd.luks.key={CANARY} my.password={CANARY}\n",
            "/proc/self/mountinfo": f"1 2 0:5 / /mnt rw - cifs //h/s rw,username=u,password={CANARY}\n",
            "/etc/nccl.conf": f"NCCL_DEBUG=INFO\nNCCL_AUTH_TOKEN={CANARY}\nOTHER={CANARY}\n",
            "/etc/cdi/x.yaml": f"env:\n- HF_TOKEN={CANARY}\n",
            "/etc/modprobe.d/x.conf": f"install nvidia echo password={CANARY}\n",
            "/etc/apt/apt.conf.d/50unattended": f'Unattended-Upgrade::Mail "x"; Acquire::http::Proxy "http://u:{CANARY}@proxy";\n',
            "/etc/nvidia-container-runtime/config.toml": f'auth-token = "{CANARY}"\n',
            "/etc/tuned/active_profile": "p\n",
            "/etc/tuned/p/tuned.conf": f"secret={CANARY}\n",
            "/run/docker.sock": "",
            "/run/systemd/system": "<folder>",
        },
    )
    inspect = json.loads(json.dumps(INSPECT))
    inspect["Config"]["Env"] += [f"SGLANG_API_KEY={CANARY}", f"NCCL_X=https://u:{CANARY}@h", f"OMP_ARGS=--hf-token {CANARY}"]
    inspect["Config"]["Cmd"] += [f"--db=postgres://u:{CANARY}@h/x", "--header", f"Authorization: Bearer {CANARY}"]
    inspect["Config"]["Labels"] = {"token": CANARY}
    (tmp_path / "inspect").write_text(json.dumps([inspect]))
    (tmp_path / "show").write_text(SHOW)
    answers = f'ps) echo {"ab" * 32};; inspect) cat {tmp_path}/inspect;; *) echo "bad token={CANARY}" >&2; exit 1;;'
    commands(
        tmp_path / "tools",
        docker=f'case "$1" in {answers} esac',
        systemctl=f'[ "$1" = show ] && cat {tmp_path}/show || echo "docker.service loaded active running x"',
    )
    monkeypatch.setitem(sys.modules, "pynvml", pynvml())
    log = tmp_path / "nccl.gpu1.1"
    words = [log, "--api-key", CANARY, f"--hf-token={CANARY}", f"DB_PASSWORD={CANARY} x", f"https://u:{CANARY}@h"]
    env = {"VLLM_API_KEY": CANARY, "HF_TOKEN": CANARY, "VLLM_URL": f"http://u:{CANARY}@h", "NCCL_DEBUG": "INFO"}
    rank = start(_RANK, *words, argv0="VLLM::EngineCore", env=env)
    try:
        assert line(rank) == "ready"
        text = collect(30, "gpu1", host).to_json()
    finally:
        end(rank)
    taken = from_json(text)
    # Everything that held a secret was read; only then its absence means anything.
    for name in ("kernel.cmdline", "mounts", "nccl.conf", "cdi", "modprobe", "packages.upgrades", "container.toolkit", "tuned"):
        assert "<redacted>" in json.dumps([taken.text(name), taken.data(name)]), name
    for name in ("containers", "units", "processes", "nccl.logs"):
        assert "<redacted>" in json.dumps(taken.data(name)), name
    assert CANARY not in text
    mine = next(one for one in taken.data("processes") if one["pid"] == rank.pid)
    assert mine["environ"] == {"NCCL_DEBUG": "INFO", "VLLM_URL": "http://<redacted>@h"}
    (found,) = [one for one in taken.data("nccl.logs") if one["pid"] == rank.pid]
    assert found["path"] == str(log) and found["size_bytes"] == log.stat().st_size
    assert "NCCL version 2.30.7" in found["text"] and "via SHM/direct" in found["text"] and "nobody needs" not in found["text"]
    assert taken.data("nccl.conf")["/etc/nccl.conf"].startswith("NCCL_DEBUG=INFO") and "OTHER" not in str(taken.data("nccl.conf"))


def test_when_nvml_and_every_command_hang_the_rest_is_still_told_in_time(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(
        host,
        {
            "/run/docker.sock": "",
            "/run/systemd/system": "<folder>",
            "/var/lib/dpkg/status": "",
            "/proc/meminfo": "MemTotal: 1 kB\n",
        },
    )
    hang = "kill -STOP $$"
    sleep = "exec sleep 60"
    commands(tmp_path / "tools", nvidia_smi=hang, docker=sleep, systemctl=hang, dpkg_query=sleep, numactl=sleep, ldconfig=hang)
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(nvmlInit=lambda: os.kill(os.getpid(), signal.SIGSTOP)))
    began = time.monotonic()
    taken = collect(4, None, host)
    assert time.monotonic() - began < 6
    hung = {name for name, source in taken.sources.items() if source.status is SourceStatus.TIMEOUT}
    assert {"nvml", "nvidia.smi", "nvidia.topo", "containers", "units", "packages", "numactl"} <= hung
    assert all(taken.sources[name].reason for name in hung)
    assert taken.source("meminfo").ok and taken.source("kernel.release").ok
    assert set(taken.sources) == {job.name for job in JOBS}


def test_an_empty_host_is_absent_everywhere_and_breaks_nothing(tmp_path: Path) -> None:
    taken = from_json(collect(30, "x", tmp_path).to_json())
    assert {source.status for source in taken.sources.values()} <= {SourceStatus.ABSENT, SourceStatus.OK}
    assert taken.source("nodes").status is SourceStatus.ABSENT
    assert all(source.reason for source in taken.sources.values() if not source.ok)


def test_the_contract_s_table_and_the_sources_are_the_same() -> None:
    page = (Path(__file__).parents[2] / "docs/snapshot.md").read_text()
    named = {row.split("`")[1] for row in page.splitlines() if row.startswith("| `")}
    assert named == {job.name for job in JOBS}


def test_the_systems_configuration_is_read_through_its_link_and_nothing_else_of_that_file(host: Path) -> None:
    tree(host, {"/etc/nccl.conf": "-> ../srv/own", "/srv/own": f"NCCL_X=1\nroot:{CANARY}:0\nNCCL_TOKEN={CANARY}\n"})
    taken = collect(30, "x", host)
    assert taken.data("nccl.conf")["/etc/nccl.conf"] == "NCCL_X=1\nNCCL_TOKEN=<redacted>"
    assert CANARY not in taken.to_json()


def test_a_directory_of_users_that_hangs_costs_the_name_alone(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nearsocket.onhost.collect.whole as subject

    monkeypatch.setattr(subject.pwd, "getpwuid", lambda uid: signal.pause())
    began = time.monotonic()
    taken = collect(30, "x", host)
    assert time.monotonic() - began < 20
    assert taken.privilege["user"] == str(os.geteuid()) and taken.source("kernel.release").ok
    assert set(taken.sources) == {job.name for job in JOBS}


def test_hanging_nvml_leaves_time_for_the_processes(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(nvmlInit=signal.pause))
    with pair() as ranks:
        taken = collect(6, "x", host)
    assert taken.source("nvml").status is SourceStatus.TIMEOUT
    assert {ranks.owner, ranks.peer} <= {one["pid"] for one in taken.data("processes")}

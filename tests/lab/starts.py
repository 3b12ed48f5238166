"""Starts on a lab machine: a unit of the shipped template that runs the stand-in engine, and what a start left behind.

Only fingerprint, page-cache relief and the container are left out: the engine runs on the machine, in its unit's control group.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import jinja2

from lab import ssh
from nearsocket.control import program
from nearsocket.model import places, programs
from nearsocket.model.generation import Manifest, Record, ReplicaEntry
from nearsocket.model.settings import OnFar, Verify
from nearsocket.model.start import Start
from tests.lab.host import LabHost
from tests.onhost.verify.shapes import START

ROOT = Path(__file__).resolve().parents[2]
UNIT, HEALTH = "nearsocket-sglang-a.service", "http://127.0.0.1:30000/health"
LOG = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,BOOTSTRAP,SHM,ALLOC,ALLOC_HOST NCCL_DEBUG_FILE=${START_DIR}/nccl.%%h.%%p"
#: What `fingerprint` does for a start, without its look at the host.
PREPARE = """#!/bin/sh
set -eu
rm -f /run/nearsocket/a/acted-far /var/lib/nearsocket/metrics/nearsocket_stopped-a.prom
dir=/run/nearsocket/a/$(date -u +%Y%m%dT%H%M%SZ)-$$
mkdir -p "$dir" && chmod 1777 "$dir"
printf 'START_DIR="%s"\\n' "$dir" >/run/nearsocket/a/start.env
"""
#: What a container runtime's client does with signals and statuses: it passes SIGTERM on, and says 128 and the signal's number.
CLIENT = """#!/usr/bin/python3
import signal, subprocess, sys
one = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: one.terminate())
code = one.wait()
sys.exit(128 - code if code < 0 else code)
"""
#: Replica b, which only answers its health address: it serves, so that a is not the last one.
BESIDE = """systemd-run --quiet --unit beside python3 -c 'import http.server as h
class Face(h.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
h.HTTPServer(("127.0.0.1", 30001), Face).serve_forever()'"""


def put(host: LabHost, path: str, data: bytes, mode: str = "644") -> None:
    """Write a file, its folder first."""
    done = ssh.run(
        host.record.name,
        host.name,
        f"mkdir -p $(dirname {path}); base64 -d >{path} && chmod {mode} {path}",
        feed=base64.b64encode(data).decode(),
    )
    assert done.returncode == 0, done.stderr


def start(policy: OnFar, gpus: tuple[str, ...], proof_s: int, name: str = "a", port: int = 30000) -> Start:
    """The record of a replica's starts, as its generation keeps it."""
    health = f"http://127.0.0.1:{port}/health"
    unit = UNIT.replace("-a.", f"-{name}.")
    verify = Verify(policy, timeout_s=proof_s)
    return dataclasses.replace(
        START, replica=name, gpus=gpus, unit=unit, health=health, slice=f"nearsocket-{name}.slice", verify=verify, start_s=300
    )


def install(
    host: LabHost,
    policy: OnFar = OnFar.WARN,
    binding: str = "",
    variables: str = "NCCL_CUMEM_ENABLE=0",
    proof_s: int = 240,
) -> None:
    """The program, the generation's records and the unit of the shipped template. `proof_s`: the time of a proof."""
    gpus = tuple(host.sh("cat /etc/nearsocket-standin/gpus.conf | grep -o '0000:[0-9a-f:.]*' | head -2").split())
    starts = [start(policy, gpus, proof_s), start(policy, gpus, proof_s, "b", 30001)]
    current = "/etc/nearsocket/generations/1"
    put(host, programs.PROGRAM, program.build())
    put(host, "/usr/local/lib/nearsocket/prepare", PREPARE.encode(), "755")
    put(host, "/usr/local/lib/nearsocket/client", CLIENT.encode(), "755")
    for one in starts:
        put(host, f"{current}/replicas/{one.replica}.json", one.to_json().encode())
    entries = tuple(entry(one, port) for one, port in zip(starts, (30000, 30001), strict=True))
    made = Manifest(host.name, "sha256:f", (), (), (), entries, {}, (), Record("a test", "2026-01-01T00:00:00Z", "0"))
    put(host, f"{current}/manifest.json", made.to_json().encode())
    put(host, f"/etc/systemd/system/{UNIT}", unit_text(starts[0].verify, binding, variables).encode())
    host.sh(
        "ln -sfn generations/1 /etc/nearsocket/current; systemctl daemon-reload; "
        "[ -f /var/lib/weights.bin ] || head -c 30M /dev/zero >/var/lib/weights.bin"
    )


def entry(one: Start, port: int) -> ReplicaEntry:
    """What the generation says of a replica that no container runs."""
    runs = ("sglang", "docker", one.unit, one.slice, None, None, one.unit.removesuffix(".service"))
    return ReplicaEntry(one.replica, *runs, f"none@sha256:{'0' * 64}", "/var/lib/weights.bin", port, one.gpus, (), 30)


def unit_text(verify: Verify, binding: str, variables: str) -> str:
    """Replica a's unit of the shipped template, without what a container runtime and a fingerprint would do."""
    client = "/usr/local/lib/nearsocket/client /usr/bin/env"
    command = f"{client} {LOG} {variables} PYTHONPATH=/opt/nearsocket-standin/engine {binding} /usr/bin/python3 -m"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "templates"), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    blank = dict.fromkeys(("mount_unit", "undrain", "drain", "forget"), "")
    names = ("GPUS", "RUN_BINDING", "NUMACTL", "ENGINE_BINDING", "START_DIR")
    return environment.get_template("systemd/engine.service.j2").render(
        head="# Made by a test.",
        name="a",
        engine="sglang",
        runtime="none",
        gpus_text="two",
        sockets="0",
        unit=UNIT,
        description="stand-in",
        model_path="/var/lib",
        limit_interval_s=3600,
        starts=7 if verify.policy is OnFar.RESTART else 4,
        hold_starts=places.hold_file("a"),
        let_start=places.let_start("a"),
        not_acted=" ".join(programs.not_acted("a")),
        why=[],
        gpus=f"{names[0]}=",
        run_binding=f"{names[1]}=",
        numactl=f"{names[2]}=",
        engine_binding=f"{names[3]}=",
        start_dir=f"{names[4]}=/none",
        start_env=places.start_env("a"),
        remove="/usr/bin/true",
        fingerprint="/usr/local/lib/nearsocket/prepare",
        relief="/usr/bin/true",
        exec_start=f"{command} sglang.launch_server --model-path /var/lib/weights.bin --tp 2 --port 30000",
        wait_health=" ".join(programs.wait_health("a", HEALTH, 120)),
        verify=" ".join(programs.verify("a", verify)),
        policy=verify.policy.value,
        stop="/usr/bin/true",
        forget_metrics=" ".join(programs.forget_metrics("a", verify)),
        timeout_start_s=600,
        timeout_stop_s=30,
        restart_delay_s=1,
        **blank,
    )


def report(host: LabHost) -> Any:
    """The verdict on replica a's last start, as the proof wrote it."""
    return json.loads(host.sh(f"cat {places.verdict_file('a')}"))


def begin(host: LabHost) -> str:
    """Start the unit and wait; its state then."""
    return host.sh(f"systemctl start {UNIT} || :; systemctl is-active {UNIT} || :", timeout_s=600)


def proven_anew(host: LabHost, before: str) -> None:
    """Wait until a later start than that one has its verdict."""
    file = places.verdict_file("a")
    wait = f"for _ in $(seq 600); do [ -f {file} ] && ! grep -q {before} {file} && exit 0; sleep 1; done; exit 1"
    host.sh(wait, timeout_s=700)

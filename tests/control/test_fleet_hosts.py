"""A fleet file through pyinfra: the same hosts with the same settings as through `nearsocket`."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearsocket import paths
from nearsocket.control import fleet, pyinfra_inventory
from nearsocket.control.fleet_hosts import fleet_hosts, inventory_hosts
from nearsocket.control.target import Target
from nearsocket.model.errors import UsageError
from tests.plan.rendered import RECIPE, ROOT

RICH = """
defaults:
  user: root
  near: "0"
  serve: {engine: sglang, image: "r.example/s@sha256:%s", model: /m, gpu_count: 2, environment: {A: "1"}, limits: {start: 30m}}
  tune: {swappiness: 1}
groups:
  fast: {sudo: true, serve: {environment: {B: "2"}, binding: none, host_memory: 48GiB}, reserved_cores: 2}
hosts:
  - {name: gpu1, groups: [fast], port: 22, replicas: [{name: a}, {name: b, gpus: [2, 3], binding: [shm, cumem]}]}
  - name: gpu2
    address: 192.0.2.1
    sudo: {user: svc}
    serve: {secrets: {T: {file: /s}}, hooks: {drain: [/usr/bin/lb, x]}}
    replicas: []
  - name: gpu3
    sudo: false
    waivers: [{id: memory.near-free, reason: r, owner: o, expires: 2030-01-01}]
    maintenance: {until: 2030-01-01, reason: r}
waivers:
  - {id: kernel.numa-balancing, host: "gpu[12]", reason: r, owner: o, expires: 2030-01-01}
""" % ("0" * 64)


def comparable(target: Target) -> Target:
    """Groups are pyinfra's own there, and a host key is checked strictly by its word instead of by default."""
    strict = target.ssh and dataclasses.replace(target.ssh, strict_host_key_checking=target.ssh.strict_host_key_checking or "yes")
    return dataclasses.replace(target, groups=frozenset(), ssh=strict)


@pytest.mark.parametrize("text", [RECIPE.read_text(), (ROOT / "inventories" / "example.yaml").read_text(), RICH])
def test_a_fleet_file_means_the_same_to_pyinfra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "our fleet.yaml"
    path.write_text(text)
    monkeypatch.setenv("NEARSOCKET_FLEET", str(path))
    here, there = fleet.read(path), pyinfra_inventory.read(paths.deploys_folder().parent / "inventories" / "fleet.py")
    assert [comparable(target) for target in here.targets] == [comparable(target) for target in there.targets]
    assert [target.settings for target in here.targets] == [target.settings for target in there.targets]
    assert sorted((w.id, w.reason, w.expires) for w in here.waivers) == sorted((w.id, w.reason, w.expires) for w in there.waivers)


def test_the_file_says_where_its_commit_is_to_be_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(RICH)
    assert {data["nearsocket_inventory"] for _, data in fleet_hosts(path)} == {str(path)}


def test_this_machine_is_pyinfras_local(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("hosts: [{name: here, local: true}]")
    assert [name for name, _ in fleet_hosts(path)] == ["@local"]


def test_a_fault_of_the_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("hosts: [{name: gpu1, replicas: [{name: a}]}]")
    with pytest.raises(UsageError, match="replica a: expected 'engine'"):
        fleet_hosts(path)
    path.write_text("hosts: [{name: gpu1, repliccas: []}]")
    with pytest.raises(UsageError, match=r"fleet.yaml:1: .*did you mean 'replicas'"):
        fleet_hosts(path)


def test_an_inventory_that_pyinfra_runs_ends_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("hosts:\n- name: gpu1\n  replicas:\n  - {name: a, adopt: later}\n")
    with pytest.raises(SystemExit, match=r"\Anearsocket: .*fleet\.yaml:4: .*expected to be 'observe'.*found 'later'\Z"):
        inventory_hosts(path)
    with pytest.raises(SystemExit, match=r"\Anearsocket: .*none\.yaml: expected"):
        inventory_hosts(tmp_path / "none.yaml")


def test_a_bad_fleet_file_is_one_line_through_pyinfra_itself_and_through_an_audit(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("hosts:\n- name: gpu1\n  replicas:\n  - {name: a, adopt: later}\n")
    environ = {**os.environ, "NEARSOCKET_FLEET": str(tmp_path / "fleet.yaml")}
    inventory = str(paths.inventories_folder() / "fleet.py")
    for words in (["pyinfra", inventory, str(paths.deploys_folder() / "audit.py"), "-y"], ["nearsocket", "audit", inventory]):
        done = subprocess.run([sys.executable, "-m", *words], env=environ, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode in (1, 64)
        assert "Traceback" not in done.stdout + done.stderr
        assert "fleet.yaml:4: " in done.stderr, done.stderr

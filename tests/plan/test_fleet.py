"""What is to be served, from fleet files and pyinfra's data: levels merged, every fault one line with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nearsocket.control import fleet, pyinfra_inventory
from nearsocket.model.errors import UsageError
from nearsocket.model.host import Engine
from nearsocket.model.settings import GIB, GpuChoice, Layer, OnChange, OnFar, Relief, Runtime, Settings, Verify

DIGEST = "sha256:" + "0" * 64
WHOLE = f"""
defaults:
  user: root
  reserved_cores: 2
  tune: {{numa_balancing: 0}}
  serve:
    engine: sglang
    image: {{reference: "r.example/sglang@{DIGEST}", numactl: false}}
    model: /srv/models/m
    environment: {{A: "1", B: "1"}}
    arguments: [--a]
    limits: {{start: 30m, shm: 8GiB}}
groups:
  podmen:
    port: 2222
    serve: {{runtime: podman, environment: {{B: "2", C: 3}}}}
    tune: {{swappiness: 10}}
hosts:
  - name: gpu1
    groups: [podmen, unknown]
    serve: {{arguments: [--b], binding: none}}
    replicas:
      - {{name: a, gpus: [0, "0000:C1:00.0"], port: 1000, binding: auto, image: {{nccl: 2.28.9}}, limits: {{stop: 90}}}}
      - name: b
        gpus: auto
        gpu_count: 2
        engine: vllm
        binding: [shm, per-rank]
        secrets: {{TOKEN: {{file: /etc/secrets/token}}}}
        host_memory: 1.5GiB
        page_cache: near
        changed_nodes: refuse
        hooks: {{drain: [/usr/bin/lb, drain]}}
  - name: gpu2
    user: audit
"""


def read(tmp_path: Path, text: str) -> list[Settings | None]:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return [target.settings for target in fleet.read(path).targets]


def test_the_nearest_level_wins_and_mappings_are_merged(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)[0]
    assert settings is not None
    a, b = settings.replicas
    assert (a.engine, a.runtime, a.gpus, a.port) == (Engine.SGLANG, Runtime.PODMAN, GpuChoice(("0", "0000:C1:00.0")), 1000)
    assert a.environment == {"A": "1", "B": "2", "C": "3"}
    assert (a.arguments, a.binding) == (("--b",), None)
    assert (a.image.digest, a.image.numactl, a.image.nccl) == (DIGEST, False, "2.28.9")
    assert (a.limits.start_s, a.limits.stop_s, a.limits.shm_bytes) == (1800, 90, 8 * GIB)
    assert (b.engine, b.gpus, b.binding) == (Engine.VLLM, GpuChoice(count=2), {Layer.SHM, Layer.PER_RANK})
    assert (b.secrets, b.host_memory_bytes) == ({"TOKEN": "/etc/secrets/token"}, 3 * GIB // 2)
    assert (b.relief, b.on_change, b.hooks.drain) == (Relief.NEAR, OnChange.REFUSE, ("/usr/bin/lb", "drain"))
    assert (settings.reserved_cores, settings.tune.numa_balancing, settings.tune.swappiness) == (2, 0, 10)


def test_a_group_says_how_a_host_is_reached_too(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(WHOLE)
    one, other = fleet.read(tmp_path / "fleet.yaml").targets
    assert one.ssh and other.ssh
    assert (one.ssh.port, other.ssh.port, other.ssh.user) == (2222, None, "audit")


def test_a_fleet_without_serving_has_no_settings(tmp_path: Path) -> None:
    assert read(tmp_path, "hosts: [{name: gpu1}]") == [None]


def one(text: str) -> str:
    """A fleet with one replica that says this, its image and model given."""
    image = f"engine: sglang, model: /m, image: 'r.example/s@{DIGEST}', gpu_count: 1"
    return f"hosts:\n  - name: gpu1\n    serve: {{{image}}}\n    replicas:\n      - {{name: a, {text}}}\n"


FAULTS: list[tuple[str, str, str]] = [
    (one("modle: /m"), ":5: hosts.0.replicas.0.modle: expected one of", "did you mean 'model'?"),
    (one("limits: {sart: 1}"), ":5: hosts.0.replicas.0.limits.sart", "did you mean 'start'?"),
    (one("image: {digest: x}"), "hosts.0.replicas.0.image.digest: expected one of", "reference"),
    ("groups: {g: {serve: {modle: /m}}}\nhosts: [{name: a}]", ":1: groups.g.serve.modle: expected one of", "did you mean 'model'?"),
    ("groups: {g: {srve: 1}}\nhosts: [{name: a}]", "groups.g.srve", "did you mean 'serve'?"),
    ("defaults: {tune: {swapiness: 1}}\nhosts: [{name: a}]", "defaults.tune.swapiness", "did you mean 'swappiness'?"),
    (one("secrets: {T: {flie: /x}}"), "secrets.T.flie", "did you mean 'file'?"),
    (one("secrets: {T: hunter2}"), "secrets.T", "not shown"),
    (one("image: 'r.example/s:latest'"), "expected an image by digest", "found 'r.example/s:latest'"),
    (one("gpus: [0000:41:00.0]"), "expected a PCI address in quotes", "found"),
    (one("gpus: [x]"), "expected GPU indices such as 0", "found"),
    (one("gpus: []"), "expected auto, or a list", "found []"),
    (one("gpus: [0, 1]"), "host gpu1: replica a: expected 1 GPUs as gpu_count says", "found 2"),
    (one("model: models/m"), "expected an absolute path", "found 'models/m'"),
    (one("model: /m/../x"), "expected an absolute path in its shortest form", "found"),
    (one("mounts: ['/a:/b:rx']"), "expected SOURCE:TARGET", "found"),
    (one("mounts: ['/a,x:/b']"), "expected an absolute path", "found"),
    (one("binding: [shmem]"), "hosts.0.replicas.0.binding", "found 'shmem'"),
    (one("host_memory: 16 GB"), "expected a size such as 16GiB", "found '16 GB'"),
    (one("limits: {start: 5 days}"), "expected a time such as 30m", "found '5 days'"),
    (one("listen: localhost"), "expected an IP address", "found 'localhost'"),
    (one("hooks: {drain: [lb]}"), "expected an absolute path", "found"),
    (one('environment: {A: "a\\nb"}'), "expected a text of one line", "not shown"),
    (one("environment: {'A B': x}"), "environment", "not shown"),
    (one("nccl: {DEBUG: x}"), "nccl", "found"),
    (one("x: 1").replace("name: a", "name: A_"), "hosts.0.replicas.0.x", "expected one of"),
    (one("port: 1").replace("name: a,", "name: A_,"), "hosts.0.replicas.0.name", "found 'A_'"),
    (one("port: 1").replace("name: a,", "name: shm,"), "expected a name other than shm", "found 'shm'"),
    (one("port: 1").replace("name: a,", "name: probe-1-a,"), "expected a name other than shm", "found 'probe-1-a'"),
    ("hosts: [{name: g, replicas: [{name: a}]}]", "host g: replica a: expected 'engine' in its settings", "found none"),
    ("hosts: [{name: g, replicas: [{name: a}, {name: a}]}]", "expected each replica once", "found 'a' twice"),
    (
        f"hosts: [{{name: g, serve: {{engine: vllm, model: /m, image: 'r/s@{DIGEST}'}}, replicas: [{{name: a}}]}}]",
        "expected `gpus`, or `gpu_count`",
        "found neither",
    ),
    (
        "hosts: [{name: g, serve: {engine: vllm, model: /m, image: {nccl: 2.28.9}}, replicas: [{name: a}]}]",
        "expected 'image.reference'",
        "",
    ),
]


@pytest.mark.parametrize(("text", "begin", "end"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_one_line_with_its_place(tmp_path: Path, text: str, begin: str, end: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    message = caught.value.message
    assert message.startswith(str(tmp_path / "fleet.yaml"))
    assert "\n" not in message
    assert "hunter2" not in message
    assert begin in message
    assert end in message


def member(data: dict[str, Any]) -> Settings | None:
    return pyinfra_inventory.member("gpu1", "ssh", [], data, "inventory.py")[0].settings


SERVE = {"engine": "sglang", "model": "/m", "image": f"r.example/s@{DIGEST}"}


def test_pyinfras_data_says_the_same() -> None:
    settings = member(
        {
            "nearsocket_serve": SERVE,
            "nearsocket_replicas": [{"name": "a", "gpus": [0]}],
            "nearsocket_tune": {"swappiness": 1},
            "other": 1,
        }
    )
    assert settings is not None
    assert settings.replicas[0].gpus.wanted == ("0",)
    assert settings.tune.swappiness == 1
    assert member({"other": 1}) is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"nearsocket_serve": {"modle": 1}}, "inventory.py: host gpu1: nearsocket_serve.modle: expected one of"),
        ({"nearsocket_replicas": [{"name": "a", "prot": 1}]}, "did you mean 'port'?"),
        ({"nearsocket_replicas": [{"name": "a"}]}, "inventory.py: host gpu1: replica a: expected 'engine'"),
        ({"nearsocket_waivers": [{"hst": 1}]}, "did you mean 'host'?"),
    ],
)
def test_a_fault_in_pyinfras_data_is_one_line_too(data: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        member(data)
    assert expected in caught.value.message


VERIFY = f"""
hosts:
  - name: gpu1
    serve: {{engine: sglang, image: "r.example/sglang@{DIGEST}", model: /m, gpu_count: 2, verify: {{policy: fail, timeout: 5m}}}}
    replicas:
      - {{name: a, secrets: {{KEY: {{file: /etc/key}}}}, verify: {{api_key: KEY, metrics: /srv/prom, request: false}}}}
      - {{name: b}}
"""


def test_how_a_start_is_proven_is_merged_from_its_levels(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(VERIFY)
    settings = fleet.read(path).targets[0].settings
    assert settings is not None
    assert settings.replicas[0].verify == Verify(OnFar.FAIL, False, "KEY", 300, "/srv/prom")
    assert settings.replicas[1].verify == Verify(OnFar.FAIL, timeout_s=300)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("api_key: KEY", "api_key: OTHER", "expected verify.api_key to name one of its secrets, found 'OTHER'"),
        ("policy: fail", "policy: kill", "policy"),
        ("metrics: /srv/prom", "metrics: prom", "metrics"),
        ("timeout: 5m", "timeout: 1s", "timeout"),
    ],
)
def test_a_proof_that_cannot_be_is_refused_in_a_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(VERIFY.replace(old, new))
    with pytest.raises(UsageError) as error:
        fleet.read(path)
    assert said in error.value.message
    assert "\n" not in error.value.message

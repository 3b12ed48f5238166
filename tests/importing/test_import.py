"""What runs comes back as the same container: image, GPUs, command, mounts, environment, compared with what inspect says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nearsocket import paths
from nearsocket.cli import cli
from nearsocket.control import fleet
from nearsocket.control.importing import words, write
from nearsocket.control.importing.engines import read_engines
from nearsocket.control.importing.values import Import
from nearsocket.control.render import render
from nearsocket.model.errors import UsageError
from nearsocket.model.generation import Generation, Record
from nearsocket.model.host import Engine, Host
from nearsocket.model.plan.make import plan
from tests import build
from tests.importing.inspects import DIGEST, GPUS, IMAGE, PODMAN, UUIDS, docker, host, snapshot
from tests.importing.meaning import Meaning, of_inspect, of_unit

SGLANG = [
    *("python3", "-m", "sglang.launch_server", "--model-path", "/srv/models/glm", "--host", "0.0.0.0", "--port", "30010"),
    *("--tp", "2", "--context-length", "131072", "--chat-template", "{{ 'a' }} $x %y"),
]
REFERENCE = f"lmsysorg/sglang@{DIGEST}"


def again(found: Import, on: Host, folder: Path) -> Generation:
    """What the written fleet file renders to, on the host as it is when the engine is taken over."""
    path = folder / "fleet.yaml"
    path.write_text(write.to_yaml([found], {}).replace("adopt: observe", "adopt: now"))
    settings = fleet.read(path).targets[0].settings
    assert settings is not None
    made = plan(on, settings)
    assert not made.refused, made.refusals
    return render(made, Record("", "", "0"), paths.templates_folder())


def same(
    inspected: dict[str, Any], rendered: Meaning, model: str = "/srv/models/glm", changed: frozenset[str] = frozenset()
) -> None:
    """Everything that the container has is in what was rendered; what the plan adds is the plan's."""
    there = of_inspect(inspected, REFERENCE, GPUS[:2])
    assert rendered.image == there.image
    assert rendered.gpus == there.gpus
    assert rendered.program == there.program
    assert {o for o in there.options if o[0] not in changed} <= rendered.options
    assert {name for name, _ in rendered.options} - {name for name, _ in there.options} <= {"--tp-size", "--host", "--port"}
    mine = {(source, target) for source, target, _ in rendered.mounts}
    assert there.mounts <= rendered.mounts
    assert mine - {(s, t) for s, t, _ in there.mounts} <= {(model, model)}, "the plan mounts the model itself, nothing else"
    own = [line for line in there.environment if line.startswith(("NCCL_", "SGLANG_", "HF_HOME"))]
    assert set(own) <= rendered.environment
    assert not [line for line in rendered.environment if "canary" in line]


def test_a_container_of_docker_comes_back_as_it_is(tmp_path: Path) -> None:
    inspected = docker(SGLANG)
    found = read_engines(host(inspected))
    (engine,) = found.found
    assert engine.command == ()
    assert (engine.port, engine.listen, engine.model) == (30010, "0.0.0.0", "/srv/models/glm")
    assert engine.arguments == ("--context-length", "131072", "--chat-template", "{{ 'a' }} $x %y")
    assert engine.secrets == {"HF_TOKEN": "/etc/secrets/glm-main/HF_TOKEN"}
    same(inspected, of_unit(again(found, host(inspected), tmp_path), "glm-main"))


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (["python", "-m", "sglang.launch_server", "--model-path=/srv/models/glm", "--tp-size=2"], "/srv/models/glm"),
        (["python3", "-m", "sglang.launch_server", "--model-path", "/cache/glm", "--tp", "2", "--port", "30000"], "/srv/cache/glm"),
        (["python3", "-m", "sglang.launch_server", "--model-path", "zai-org/GLM", "--tp", "2", "--port", "30000"], "/srv/cache"),
        (
            ["vllm", "serve", "/srv/models/glm", "--tensor-parallel-size", "2", "--port", "8001", "--host", "127.0.0.1"],
            "/srv/models/glm",
        ),
        (["vllm", "serve", "--model", "/cache/m", "--tensor-parallel-size", "2", "--port", "8001"], "/srv/cache/m"),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/srv/models/glm"], "/srv/models/glm"),
        (
            ["python3", "-m", "sglang.launch_server", "--model-path", "/srv/models/glm", "--tp", "4", "--port", "30000"],
            "/srv/models/glm",
        ),
    ],
)
def test_other_ways_of_starting_come_back_too(command: list[str], model: str, tmp_path: Path) -> None:
    inspected = docker(command)
    found = read_engines(host(inspected))
    assert found.found[0].model == model
    same(inspected, of_unit(again(found, host(inspected), tmp_path), "glm-main"), model)


def test_a_container_of_podman_comes_back_with_its_words_apart(tmp_path: Path) -> None:
    inspected = {**PODMAN[0], "Name": "glm-main"}
    inspected["HostConfig"] = {
        **inspected["HostConfig"],
        "Devices": [{"PathOnHost": "/dev/nvidia0"}, {"PathOnHost": "/dev/nvidia1"}],
    }
    digest = inspected["ImageDigest"]
    image = {
        "Id": inspected["Image"],
        "RepoDigests": [f"registry.example/sglang@{digest}"],
        "Config": {"Env": ["CUDA_VERSION=12.9"]},
    }
    on = host(inspected, runtime="podman", image=image)
    found = read_engines(on)
    (engine,) = found.found
    assert engine.image == f"registry.example/sglang@{digest}"
    assert engine.model == "/srv/models/a b"
    assert "/models/a b" in engine.command
    assert "/srv/models:/models:ro" in engine.mounts
    rendered = of_unit(again(found, on, tmp_path), "glm-main")
    there = of_inspect(inspected, engine.image, GPUS[:2])
    assert there.options <= rendered.options
    assert there.mounts <= rendered.mounts
    assert rendered.program == there.program
    assert any(left.what == "volume at /cache" for left in found.left)


def test_a_compose_service_on_a_network_of_its_own_listens_where_it_was_published(tmp_path: Path) -> None:
    labels = {
        "com.docker.compose.project": "llm",
        "com.docker.compose.service": "glm",
        "com.docker.compose.project.config_files": "/srv/llm/compose.yaml",
    }
    inspected = docker(
        [*SGLANG[:8], "30000", *SGLANG[9:]],
        Config__Labels=labels,
        HostConfig__NetworkMode="llm_default",
        HostConfig__PortBindings={"30000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}]},
    )
    found = read_engines(host(inspected))
    (engine,) = found.found
    assert engine.origin == "docker container glm-main, service glm of /srv/llm/compose.yaml"
    assert (engine.port, engine.listen) == (8080, "127.0.0.1")
    assert {left.what for left in found.left} >= {"network llm_default", "port 30000 in a network of its own"}
    rendered = of_unit(again(found, host(inspected), tmp_path), "glm-main")
    same(inspected, rendered, changed=frozenset({"--host", "--port"}))
    assert {("--host", "127.0.0.1"), ("--port", "8080")} <= rendered.options


def test_no_secret_is_in_the_file_and_each_is_said() -> None:
    inspected = docker([*SGLANG, "--api-key", "canary-of-a-key"])
    found = read_engines(host(inspected))
    text = write.to_yaml([found], {})
    assert "canary" not in text
    assert "--api-key is not carried" in text
    assert "WITHOUT IT ANYBODY MAY ASK" in text
    assert "the value of HF_TOKEN is not carried" in text
    assert "variable http_proxy is not carried" in text
    assert "--api-key" not in found.found[0].arguments


def test_vllms_key_goes_where_vllm_reads_it() -> None:
    found = read_engines(host(docker(["vllm", "serve", "/srv/models/glm", "--api-key", "canary-of-a-key"])))
    assert found.found[0].secrets["VLLM_API_KEY"] == "/etc/secrets/glm-main/VLLM_API_KEY"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"HostConfig__Privileged": True}, "privileged"),
        ({"HostConfig__CapAdd": ["SYS_NICE", "IPC_LOCK"]}, "capabilities IPC_LOCK"),
        ({"HostConfig__IpcMode": "host"}, "the host's /dev/shm"),
        ({"HostConfig__PidMode": "host"}, "the host's process numbers"),
        ({"HostConfig__Devices": [{"PathOnHost": "/dev/infiniband/uverbs0"}]}, "devices /dev/infiniband/uverbs0"),
        ({"Config__User": "1000"}, "user 1000"),
        ({"Config__WorkingDir": "/elsewhere"}, "working folder /elsewhere"),
        ({"HostConfig__CpusetMems": "1"}, "CPUs and nodes 1"),
        ({"HostConfig__Ulimits": [{"Name": "stack", "Hard": 1, "Soft": 1}]}, "limits stack=1:1"),
        ({"HostConfig__SecurityOpt": ["seccomp=unconfined"]}, "security options seccomp=unconfined"),
        ({}, "restart policy unless-stopped"),
    ],
)
def test_what_a_replica_has_no_word_for_is_said(changes: dict[str, Any], what: str) -> None:
    found = read_engines(host(docker(SGLANG, **changes)))
    assert what in {left.what for left in found.left}
    assert len(found.found) == 1


@pytest.mark.parametrize(
    ("inspected", "image", "what"),
    [
        (docker(SGLANG), {**IMAGE, "RepoDigests": []}, "image lmsysorg/sglang:v0.5.23"),
        (docker(SGLANG, HostConfig__DeviceRequests=None), IMAGE, "its GPUs"),
        (docker([*SGLANG[:4], "/inside/m"]), IMAGE, "model /inside/m"),
        (docker(SGLANG[:3]), IMAGE, "its model"),
    ],
)
def test_an_engine_that_cannot_be_a_replica_is_left_out_with_the_reason(
    inspected: dict[str, Any], image: dict[str, Any], what: str
) -> None:
    found = read_engines(host(inspected, image=image))
    assert (found.found, found.lost) == ((), 1)
    assert what in {left.what for left in found.left}


def test_two_engines_have_two_names_and_other_containers_are_nobodys_business() -> None:
    second = docker(
        SGLANG,
        Id="cd" * 32,
        Name="/GLM_main",
        HostConfig__DeviceRequests=[{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={UUIDS[2]}"]}],
    )
    other = docker(["nginx"], Id="ef" * 32, Name="/web")
    ours = docker(SGLANG, Id="01" * 32, Name="/nearsocket-sglang-a")
    found = read_engines(host(docker(SGLANG), second, other, ours))
    assert [(engine.name, engine.gpus) for engine in found.found] == [("glm-main", GPUS[:2]), ("glm-main-2", GPUS[2:3])]


@pytest.mark.parametrize("model", ["zai-org/GLM", "/root/.cache/huggingface"])
def test_a_cache_that_is_mounted_at_its_own_path_is_mounted_once(model: str, tmp_path: Path) -> None:
    cache = {"Type": "bind", "Source": "/root/.cache/huggingface", "Destination": "/root/.cache/huggingface", "RW": True}
    inspected = docker(["python", "-m", "sglang.launch_server", "--model-path", model, "--tp", "2"], Mounts=[cache])
    inspected["Config"]["Env"] = ["PATH=/usr/bin"]
    found = read_engines(host(inspected))
    assert (found.found[0].model, found.found[0].command[0]) == ("/root/.cache/huggingface", "python")
    generation = again(found, host(inspected), tmp_path)
    (text,) = [text.decode() for path, text in generation.contents.items() if path.endswith("glm-main.service")]
    assert text.count("target=/root/.cache/huggingface") == 1
    assert "target=/root/.cache/huggingface,readonly" not in text, "what the container writes to, it writes to again"


@pytest.mark.parametrize(
    ("ranks", "kept", "tensor"),
    [
        (["--data-parallel-size", "2"], ("--data-parallel-size", "2"), None),
        (["-dp", "2"], ("-dp", "2"), None),
        (["-pp", "2"], ("-pp", "2"), None),
        (["-tp", "1", "-pp", "2"], ("-pp", "2", "--tensor-parallel-size=1"), "1"),
        (["-tp=2", "-dp=1"], ("-dp=1", "--tensor-parallel-size=2"), "2"),
        (["-tp", "2"], (), "2"),
        ([], (), "2"),
    ],
)
def test_the_number_of_ranks_is_the_containers_own(
    ranks: list[str], kept: tuple[str, ...], tensor: str | None, tmp_path: Path
) -> None:
    inspected = docker(["vllm", "serve", "/srv/models/glm", *ranks])
    found = read_engines(host(inspected))
    assert found.found[0].arguments == kept
    rendered = of_unit(again(found, host(inspected), tmp_path), "glm-main")
    assert dict(rendered.options).get("--tp-size") == tensor


@pytest.mark.parametrize(
    ("rest", "arguments"),
    [
        (["--numa-bind", "MODEL"], ()),
        (["--numa-bind-nodes", "0", "1", "--numa-bind", "MODEL"], ()),
        (["--port", "8000", "MODEL"], ()),
        (["--host", "::", "--trust-remote-code", "MODEL", "--seed", "1"], ("--trust-remote-code", "--seed", "1")),
        (["--max-model-len=4096", "MODEL"], ("--max-model-len=4096",)),
        (["--enable-prefix-caching", "--tensor-parallel-size", "2", "MODEL"], ("--enable-prefix-caching",)),
    ],
)
def test_vllms_model_is_found_behind_options(rest: list[str], arguments: tuple[str, ...]) -> None:
    command = ["vllm", "serve", *("/srv/models/glm" if word == "MODEL" else word for word in rest)]
    (engine,) = read_engines(host(docker(command))).found
    assert (engine.model, engine.arguments, engine.command) == ("/srv/models/glm", arguments, ())


def test_a_word_that_may_be_an_options_value_is_no_model() -> None:
    found = read_engines(host(docker(["vllm", "serve", "--served-model-name", "a", "/srv/models/glm"])))
    assert (found.found, found.lost) == ((), 1)
    assert any("name it first, or by --model" in left.reason for left in found.left)


def test_an_engine_behind_a_shell_is_lost_and_said() -> None:
    inspected = docker(["bash", "-c", "python3 -m sglang.launch_server --model-path /srv/models/glm"])
    base = host(inspected)
    ranks = tuple(build.process(pid, container=inspected["Id"], engine=Engine.SGLANG) for pid in (4001, 4002))
    running = build.replica(ranks, name="glm-main", container=inspected["Id"])
    found = read_engines(dataclasses.replace(base, processes=ranks, replicas=(running,)))
    assert (found.found, found.lost) == ((), 1)
    (left,) = [left for left in found.left if left.what.startswith("the engine behind the command 'bash -c")]
    assert "give them as the container's command" in left.reason


def test_numactl_in_front_is_the_plans_business() -> None:
    found = read_engines(host(docker(["numactl", "-N", "1", "--membind=1", *SGLANG])))
    assert found.found[0].command == ()
    assert "numactl -N 1 --membind=1" in {left.what for left in found.left}


def test_the_file_is_one_that_a_fleet_reads_and_every_replica_is_observed(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(write.to_yaml([read_engines(host(docker(SGLANG)))], {}))
    (replica,) = yaml.safe_load(path.read_text())["hosts"][0]["replicas"]
    assert replica["adopt"] == "observe"
    assert fleet.read(path).targets[0].settings is not None


def test_the_command_reads_a_saved_snapshot_and_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, out = tmp_path / "gpu1.snapshot.json", tmp_path / "fleet.yaml"
    saved.write_text(snapshot(docker(SGLANG)).to_json())
    assert cli.main(["import", str(saved), "--output", str(out), "--json"], standalone_mode=False) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "nearsocket.import/1"
    assert said["hosts"][0]["replicas"][0]["name"] == "glm-main"
    assert out.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    before = out.read_text()
    with pytest.raises(UsageError, match="expected a new file"):
        cli.main(["import", str(saved), "--output", str(out)], standalone_mode=False)
    assert out.read_text() == before


def test_a_lost_engine_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "gpu1.snapshot.json"
    saved.write_text(snapshot(docker(SGLANG), image={**IMAGE, "RepoDigests": []}).to_json())
    assert cli.main(["import", str(saved)], standalone_mode=False) == 2
    assert "No engine was found" in capsys.readouterr().out


@given(
    st.lists(
        st.sampled_from(["--tp", "2", "--port", "80", "--host", "x", "--a=b", "<redacted>", "--api-key", "", "-x", "m"]),
        max_size=12,
    )
)
def test_no_word_of_a_command_is_lost_but_those_that_are_told(rest: list[str]) -> None:
    found = words.parse(["python3", "-m", "sglang.launch_server", *rest], 2)
    if found is None:
        return
    assert not any("<redacted>" in word for word in (*found.whole, *found.rest))
    kept = [word for word in found.whole if word in rest]
    assert len(kept) + rest.count("<redacted>") + len(found.hidden) >= len(rest)

"""What runs comes back as the same container: image, GPUs, command, mounts, environment, compared with what inspect says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nearsocket import paths
from nearsocket.control import fleet
from nearsocket.control.importing import write
from nearsocket.control.importing.engines import read_engines
from nearsocket.control.importing.values import Import
from nearsocket.control.render import render
from nearsocket.model.generation import Generation, Record
from nearsocket.model.host import Host
from nearsocket.model.plan.make import plan
from tests.importing.inspects import DIGEST, GPUS, PODMAN, SGLANG, UUIDS, docker, host
from tests.importing.meaning import Meaning, of_inspect, of_unit

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

"""What an import does not carry is said with its reason: secrets, what a replica has no word for, engines that are left out."""

from __future__ import annotations

from typing import Any

import pytest

from nearsocket.control.importing import write
from nearsocket.control.importing.engines import read_engines
from tests.importing.inspects import IMAGE, SGLANG, docker, host


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

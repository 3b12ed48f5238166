from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.parsers.compose import PREFIX
from nearsocket.model.snapshot import SourceStatus
from nearsocket.onhost.collect import containers, defined, files, units
from nearsocket.onhost.collect.files import Context
from tests.onhost.standins import commands, tree

INSPECT: dict[str, Any] = {
    "Id": "ab" * 32,
    "Name": "/sglang",
    "Image": "sha256:" + "cd" * 32,
    "Config": {
        "Image": "lmsysorg/sglang:v0.5",
        "Env": ["NCCL_DEBUG=INFO", "HF_TOKEN=canary", "PATH=/bin"],
        "Entrypoint": ["python3"],
        "Cmd": ["-m", "sglang.launch_server", "--api-key", "canary"],
    },
    "State": {"Pid": 77, "Status": "running"},
    "HostConfig": {
        "RestartPolicy": {"Name": "always"},
        "Privileged": False,
        "CapAdd": ["SYS_NICE"],
        "SecurityOpt": None,
        "IpcMode": "private",
        "ShmSize": 67108864,
        "CpusetCpus": "0-3",
        "CpusetMems": "0",
        "CgroupParent": "x.slice",
        "Runtime": "nvidia",
        "DeviceRequests": [
            {"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]},
            {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]},
        ],
        "Devices": [{"PathOnHost": "/dev/nvidia0"}],
    },
    "Mounts": [{"Type": "bind", "Source": "/models", "Destination": "/models"}],
}


def test_a_container_is_cut_to_the_contract_without_secrets(root: Path, tools: Path, tmp_path: Path) -> None:
    tree(root, {"/run/docker.sock": ""})
    (tmp_path / "inspect").write_text(json.dumps([INSPECT]))
    commands(tools, docker=f'case "$1" in ps) echo {"ab" * 32};; inspect) cat {tmp_path}/inspect;; esac')
    (one,) = containers.containers(Context(root)).data
    assert one["runtime"] == "docker" and one["name"] == "sglang" and one["pid"] == 77 and one["shm_size_bytes"] == 67108864
    assert one["env"] == {"NCCL_DEBUG": "INFO"}
    assert one["command"] == ["python3", "-m", "sglang.launch_server", "--api-key", "<redacted>"]
    assert one["device_requests"][0] == "driver= count=-1 ids= capabilities=gpu"
    assert one["cdi_devices"] == ["nvidia.com/gpu=0"] and one["devices"] == ["/dev/nvidia0"]
    assert one["mounts"] == [{"source": "/models", "destination": "/models", "type": "bind"}]
    assert "canary" not in json.dumps(one)


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("exec sleep 60", SourceStatus.TIMEOUT, "docker ps -q --no-trunc: no answer in 0.3 s"),
        ("echo 'permission denied while trying to connect' >&2; exit 1", SourceStatus.DENIED, "docker ps: exit code 1"),
        ("echo 'daemon is sick' >&2; exit 1", SourceStatus.ERROR, "daemon is sick"),
        ('[ "$1" = ps ] && echo a || echo "not json"', SourceStatus.ERROR, "docker inspect"),
    ],
)
def test_a_runtime_that_fails_is_a_reason(
    script: str, status: SourceStatus, reason: str, root: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_LIMIT_S", 0.3 if status is SourceStatus.TIMEOUT else 8)
    tree(root, {"/run/docker.sock": ""})
    commands(tools, docker=script)
    source = containers.containers(Context(root))
    assert source.status is status and reason in str(source.reason)


def test_one_runtime_s_fault_leaves_the_other_s_containers(root: Path, tools: Path, tmp_path: Path) -> None:
    tree(root, {"/run/docker.sock": "", "/run/containers/storage": "<folder>"})
    (tmp_path / "inspect").write_text(json.dumps([INSPECT]))
    commands(tools, docker="exit 1", podman=f'case "$1" in ps) echo {"ab" * 32};; inspect) cat {tmp_path}/inspect;; esac')
    source = containers.containers(Context(root))
    assert [one["runtime"] for one in source.data] == ["podman"] and "docker ps: exit code 1" in str(source.reason)


def test_runtimes_that_never_ran_are_not_asked(root: Path, tools: Path) -> None:
    commands(tools, docker="echo asked >&2; exit 9", podman="echo asked >&2; exit 9")
    assert containers.containers(Context(root)).status is SourceStatus.ABSENT
    assert containers.docker_info(Context(root)).status is SourceStatus.ABSENT


def test_podman_of_a_user_is_asked_only_where_that_users_own_state_of_this_boot_is(
    root: Path, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    commands(tools, podman=f"touch {asked}")
    monkeypatch.setattr(containers.os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/jane")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    tree(root, {"/home/jane/.local/share/containers/storage/x": ""})
    assert containers.containers(Context(root)).status is SourceStatus.ABSENT and not asked.exists()
    tree(root, {"/run/libpod/x": ""})
    source = containers.containers(Context(root))
    assert source.status is SourceStatus.DENIED and "root's containers" in str(source.reason) and not asked.exists()
    tree(root, {"/run/user/1000/libpod/tmp/alive": ""})
    containers.containers(Context(root))
    assert asked.exists()


def test_docker_info_is_cut_and_a_dead_daemon_is_an_error(root: Path, tools: Path) -> None:
    tree(root, {"/run/docker.sock": ""})
    info = {"ServerVersion": "28.3", "Runtimes": {"runc": {}, "nvidia": {}}, "CDISpecDirs": ["/etc/cdi"], "Name": "canary"}
    commands(tools, docker=f"echo '{json.dumps(info)}'")
    data = containers.docker_info(Context(root)).data
    assert data["Runtimes"] == ["nvidia", "runc"] and data["CDISpecDirs"] == ["/etc/cdi"] and "canary" not in str(data)
    commands(tools, docker="""echo '{"ServerErrors": ["Cannot connect to the Docker daemon"]}'; exit 1""")
    source = containers.docker_info(Context(root))
    assert source.status is SourceStatus.ERROR and "Cannot connect" in str(source.reason)


SHOW = """Id=docker.service
LoadState=loaded
ActiveState=active
SubState=running
MainPID=12
NUMAPolicy=bind
NUMAMask=0-1
AllowedMemoryNodes=0
ExecStart={ path=/usr/bin/dockerd ; argv[]=/usr/bin/dockerd ; }
ControlGroup=/system.slice/docker.service

Id=ssh.service
LoadState=loaded
ActiveState=active
ExecStart={ path=/usr/sbin/sshd ; argv[]=/usr/sbin/sshd -D ; }

Id=llm.service
LoadState=loaded
ActiveState=active
ExecStart={ path=/usr/bin/env ; argv[]=/usr/bin/env API_KEY=canary vllm serve --api-key canary --port 1 ; }

Id=vllm-old.service
LoadState=not-found
"""


def test_units_that_matter_are_kept_and_their_secrets_are_not(root: Path, tools: Path, tmp_path: Path) -> None:
    tree(root, {"/run/systemd/system": "<folder>"})
    (tmp_path / "show").write_text(SHOW)
    commands(tools, systemctl=f'[ "$1" = show ] && cat {tmp_path}/show || echo "docker.service loaded active running x"')
    first, second = units.units(Context(root)).data
    assert (first["id"], first["main_pid"], first["numa_policy"], first["allowed_memory_nodes"]) == (
        "docker.service",
        12,
        "bind",
        "0",
    )
    assert second["id"] == "llm.service" and second["main_pid"] == 0
    assert "--port 1" in second["exec_start"] and "canary" not in json.dumps([first, second])


def test_timers_are_told_and_no_systemd_is_absent(root: Path, tools: Path) -> None:
    commands(tools, systemctl="printf 'Id=apt-daily.timer\\nActiveState=active\\nUnitFileState=enabled\\nLoadState=loaded\\n'")
    assert units.timers(Context(root)).status is SourceStatus.ABSENT
    tree(root, {"/run/systemd/system": "<folder>"})
    assert units.timers(Context(root)).data == [{"id": "apt-daily.timer", "active": "active", "enabled": "enabled"}]


LABELS = {
    "com.docker.compose.project": "llm",
    "com.docker.compose.service": "glm",
    "com.docker.compose.project.config_files": "/srv/llm/compose.yaml,/srv/llm/override.yaml",
    "com.docker.compose.project.working_dir": "/srv/llm",
    "com.docker.compose.depends_on": "db:service_started:false",
    "com.docker.compose.config-hash": "canary",
}


def test_stopped_containers_are_told_apart_from_running_ones(root: Path, tools: Path, tmp_path: Path) -> None:
    tree(root, {"/run/docker.sock": ""})
    whole = {**INSPECT, "State": {"Status": "exited"}, "Config": {**INSPECT["Config"], "Labels": LABELS}}
    (tmp_path / "inspect").write_text(json.dumps([whole]))
    asked = f'case "$1" in ps) echo "$@" >> {tmp_path}/asked; echo {"ab" * 32};; inspect) cat {tmp_path}/inspect;; esac'
    commands(tools, docker=asked)
    (one,) = defined.stopped(Context(root)).data
    assert "--all --filter=status=created --filter=status=exited --filter=status=dead" in (tmp_path / "asked").read_text()
    assert "dead" not in defined._AT_REST["podman"], "podman 4.3 refuses the whole question for that word"
    assert (one["state"], one["compose"]["com.docker.compose.depends_on"]) == ("exited", "db:service_started:false")
    assert set(one) == set(defined._KEPT)
    assert "canary" not in json.dumps(one)


def test_a_runtime_that_does_not_tell_its_stopped_containers_is_a_reason(root: Path, tools: Path) -> None:
    assert defined.stopped(Context(root)).status is SourceStatus.ABSENT
    tree(root, {"/run/docker.sock": ""})
    commands(tools, docker="echo 'daemon is sick' >&2; exit 1")
    source = defined.stopped(Context(root))
    assert source.status is SourceStatus.ERROR and "daemon is sick" in str(source.reason)


def test_compose_files_that_labels_name_are_read_through_links_and_only_regular_ones(root: Path, tmp_path: Path) -> None:
    real = "services:\n  a:\n    environment:\n      KEY: canary\n"
    tree(root, {"/srv/llm/real.yaml": real, "/srv/pod/compose.yml": "services: {}\n"})
    (root / "srv/llm/compose.yaml").symlink_to("real.yaml")
    os.mkfifo(root / "srv/llm/override.yaml")
    (root / "srv/big").mkdir()
    (root / "srv/big/c.yaml").write_text("x" * (256 << 10) + "x")
    named = f"{PREFIX}project.config_files"
    other = {named: "compose.yml,../gone.yaml,-", f"{PREFIX}project.working_dir": "/srv/pod"}
    running, stopped = [{"compose": LABELS}, {"compose": other}], [{"compose": {named: "/srv/big/c.yaml"}}]
    results = {"containers": files.ok(running), "containers.stopped": files.ok(stopped)}
    data = defined.compose(Context(root, results)).data
    assert data["/srv/llm/compose.yaml"] == "services:\n  a:\n    environment:\n      KEY:\n"
    assert data["/srv/pod/compose.yml"] == "services: {}\n"
    assert data["/srv/llm/override.yaml"].startswith("<unread: ")
    assert data["/srv/gone.yaml"] == "<unread: No such file or directory>"
    assert data["/srv/big/c.yaml"] == "<unread: larger than 256 KiB>"
    assert defined.compose(Context(root)).status is SourceStatus.ABSENT


AT_REST = """Id=glm.service
ActiveState=inactive
UnitFileState=enabled
Restart=always
ExecStart={ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --name glm lmsysorg/sglang:v1 --api-key canary ; }
FragmentPath=/etc/systemd/system/glm.service

Id=runs.service
ActiveState=active
ExecStart={ argv[]=vllm serve m ; }

Id=other.service
ActiveState=inactive
ExecStart={ argv[]=/bin/true ; }
"""


def test_units_at_rest_with_an_engine_are_told_loaded_or_not(root: Path, tools: Path, tmp_path: Path) -> None:
    assert defined.units_at_rest(Context(root)).status is SourceStatus.ABSENT
    tree(root, {"/run/systemd/system": "<folder>"})
    (tmp_path / "show").write_text(AT_REST)
    listed = "glm.service enabled enabled\\nruns.service enabled enabled\\nt@.service static -\\nalias.service alias -\\n"
    commands(tools, systemctl=f'[ "$1" = show ] && {{ echo "$@" > {tmp_path}/asked; cat {tmp_path}/show; }} || printf "{listed}"')
    (one,) = defined.units_at_rest(Context(root)).data
    assert (one["id"], one["active"], one["enabled"], one["restart"]) == ("glm.service", "inactive", "enabled", "always")
    assert one["fragment"] == "/etc/systemd/system/glm.service"
    assert "canary" not in json.dumps(one)
    assert (tmp_path / "asked").read_text().endswith("-- glm.service runs.service\n")

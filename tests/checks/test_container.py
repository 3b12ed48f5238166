"""container.gpus-visible and host.daemon-reload-risk: what running containers have, and what a reload would take."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.host import Container, Host
from nearsocket.model.verdicts import reloadrisk
from tests import build
from tests.checks.judging import host_with, one, status

VISIBLE, RELOAD = "container.gpus-visible", "host.daemon-reload-risk"
NODES: list[dict[str, Any]] = [
    {"path": "/dev/nvidia0", "major": 195, "minor": 0},
    {"path": "/dev/nvidia1", "major": 195, "minor": 1},
]
LINKS: list[dict[str, Any]] = [{"link": f"/dev/char/195:{n}", "target": f"../nvidia{n}"} for n in (0, 1)]
SPEC = 'cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n- name: "0"\n  containerEdits: {}\n- name: all\n'


def box(driver: str | None = "systemd", chars: list[dict[str, Any]] | None = None, **changes: Any) -> Host:
    info = build.source(status="denied") if driver is None else build.source(data={"CgroupDriver": driver})
    sources = {"docker.info": info, "dev.char": build.source(data=[*NODES, *LINKS] if chars is None else chars)}
    return host_with(sources, containers=(build.container(**changes),))


def test_a_container_whose_processes_hold_gpus_has_them() -> None:
    assert status(VISIBLE, box()) == "pass"


def test_a_container_without_a_process_on_a_gpu_is_unknown_with_the_way_to_look() -> None:
    finding = one(VISIBLE, host_with({}, processes=()))
    assert finding.status.value == "unknown"
    assert finding.remedy == "docker exec sglang nvidia-smi -L"


def test_a_name_of_a_container_is_quoted_in_the_remedy() -> None:
    odd = build.container(name="a; reboot")
    assert "exec 'a; reboot' nvidia-smi" in (one(VISIBLE, host_with({}, processes=(), containers=(odd,))).remedy or "")


def test_a_device_or_uuid_that_is_not_there_fails() -> None:
    assert status(VISIBLE, box(devices=("/dev/nvidia7",))) == "fail"
    assert status(VISIBLE, box(gpu_requests=("GPU-deadbeef",))) == "fail"
    assert status(VISIBLE, box(gpu_requests=("GPU-00000000",))) == "pass"


@pytest.mark.parametrize(
    ("cdi", "wanted"), [("nvidia.com/gpu=0", "pass"), ("nvidia.com/gpu=all", "pass"), ("nvidia.com/gpu=5", "warn")]
)
def test_a_cdi_name_that_no_file_defines_warns(cdi: str, wanted: str) -> None:
    sources = {"cdi": build.source(data={"/etc/cdi/nvidia.yaml": SPEC})}
    assert status(VISIBLE, host_with(sources, containers=(build.container(gpu_requests=(), cdi_devices=(cdi,)),))) == wanted


@pytest.mark.parametrize("id", [VISIBLE, RELOAD])
def test_no_container_asked_for_a_gpu(id: str) -> None:
    read = {"containers": build.source(data=[])}
    assert status(id, host_with(read, containers=(build.container(gpu_requests=()),), processes=())) == "not-applicable"
    assert status(id, host_with(read, containers=(), processes=())) == "not-applicable"
    none = {"containers": build.source(status="absent", reason="no docker")}
    assert status(id, host_with(none, containers=(), processes=())) == "not-applicable"
    assert status(id, host_with({"containers": build.source(status="denied")}, containers=())) == "unknown"


@pytest.mark.parametrize("id", [VISIBLE, RELOAD])
def test_a_gpu_in_a_container_that_neither_runtime_knows_is_unknown(id: str) -> None:
    pod = "e4d1" * 16
    processes = tuple(dataclasses.replace(p, container=pod) for p in build.host().processes)
    silent = {"containers": build.source(status="absent", reason="neither docker nor podman is there")}
    for others in ((), (build.container(id="f" * 64, gpu_requests=()),)):
        found = one(id, host_with(silent, containers=others, processes=processes))
        assert found.status.value == "unknown"
        assert pod[:12] in found.summary
    plain = tuple(dataclasses.replace(p, container=None) for p in processes)
    assert status(id, host_with(silent, containers=(), processes=plain)) == "not-applicable"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, "warn"),  # injected by a hook
        ({"driver": "cgroupfs"}, "pass"),
        ({"driver": None}, "unknown"),
        ({"privileged": True}, "pass"),
        ({"cdi_devices": ("nvidia.com/gpu=all",)}, "pass"),
        ({"devices": ("/dev/nvidia0",)}, "pass"),
        ({"devices": ("/dev/nvidia0",), "chars": NODES}, "warn"),
        ({"devices": ("/dev/nvidia0",), "chars": []}, "unknown"),
        ({"devices": ("/dev/nvidia-uvm",)}, "warn"),
        ({"runtime": "podman", "driver": None}, "warn"),
        ({"runtime": "podman", "driver": None, "cdi_devices": ("nvidia.com/gpu=all",)}, "pass"),
    ],
)
def test_what_a_reload_takes(changes: dict[str, Any], wanted: str) -> None:
    assert status(RELOAD, box(**changes)) == wanted


def test_each_container_is_judged_by_itself() -> None:
    boxes: tuple[Container, ...] = (build.container(), build.container(id="ffff", name="other", privileged=True))
    assert status(RELOAD, host_with({"docker.info": build.source(data={"CgroupDriver": "systemd"})}, containers=boxes)) == "warn"


def by_runtime(toolkit: dict[str, str], chars: list[dict[str, Any]] | None = None, runtime: str = "nvidia") -> Host:
    """A container of the nvidia runtime, as `--runtime nvidia` makes it: no request, GPUs asked for by a variable."""
    made = build.container(gpu_requests=(), environ={"NVIDIA_VISIBLE_DEVICES": "all"})
    read = {
        "containers": build.source(data=[{"id": made.id, "runtime_name": runtime}]),
        "container.toolkit": build.source(data=toolkit),
        "docker.info": build.source(data={"CgroupDriver": "systemd", "ServerVersion": "28.5.1"}),
        "dev.char": build.source(data=[*NODES, *LINKS] if chars is None else chars),
    }
    return host_with(read, containers=(made,))


@pytest.mark.parametrize(
    ("toolkit", "wanted"),
    [
        ({"version": "1.18.0", "config": ""}, "pass"),
        ({"version": "1.17.8", "config": '[nvidia-container-runtime]\nmode = "auto"\n'}, "warn"),
        ({"version": "1.17.8", "config": '[nvidia-container-runtime]\nmode = "cdi"\n'}, "pass"),
        ({"version": "1.18.0", "config": '[nvidia-container-runtime]\nmode = "legacy"\n'}, "warn"),
        ({}, "warn"),
    ],
)
def test_the_nvidia_runtimes_mode_decides_whether_devices_are_listed(toolkit: dict[str, str], wanted: str) -> None:
    assert status(RELOAD, by_runtime(toolkit)) == wanted
    assert status(VISIBLE, by_runtime(toolkit)) == "pass"


def test_another_runtime_with_the_variable_asks_for_nothing() -> None:
    silent = dataclasses.replace(by_runtime({}, runtime="runc"), processes=())
    assert status(RELOAD, silent) == "not-applicable"


def test_docker_29_with_cdi_devices_may_have_done_either() -> None:
    info = {"CgroupDriver": "systemd", "ServerVersion": "29.1.0", "DiscoveredDevices": ["cdi: nvidia.com/gpu=all"]}
    finding = one(RELOAD, host_with({"docker.info": build.source(data=info)}))
    assert finding.status.value == "unknown"
    assert "printenv NVIDIA_VISIBLE_DEVICES" in (finding.remedy or "")
    older = {**info, "ServerVersion": "28.5.1"}
    assert status(RELOAD, host_with({"docker.info": build.source(data=older)})) == "warn"


ID = "abcdef012345" + "0" * 52
UVM = {"path": "/dev/nvidia-uvm", "major": 509, "minor": 0}
CTL = {"path": "/dev/nvidiactl", "major": 195, "minor": 255}
WHOLE: list[dict[str, Any]] = [
    *NODES,
    CTL,
    UVM,
    *({"link": f"{e['major']}:{e['minor']}", "target": f"..{e['path'][4:]}"} for e in (*NODES, CTL, UVM)),
]
#: What runc tells systemd of every container (seen in nvidia-container-toolkit #1744).
ALWAYS = ["/dev/char/10:200 rwm", "char-136 rwm", "/dev/char/1:3 rwm", "char-* m", "block-* m"]
LISTED = ["/dev/char/509:0 rwm", "/dev/char/195:255 rwm", "/dev/char/195:0 rwm", "/dev/char/195:1 rwm"]


def ruled(
    allow: list[str], chars: list[dict[str, Any]] = WHOLE, policy: str = "strict", docker: str = "29.1.0", systemd: str = "257.13"
) -> Host:
    """A container of `--gpus all` with the scope that systemd has of it."""
    made = build.container(id=ID)
    info = {"CgroupDriver": "systemd", "ServerVersion": docker, "DiscoveredDevices": ["cdi: nvidia.com/gpu=all"]}
    scope = {"unit": f"docker-{ID}.scope", "id": ID, "policy": policy, "allow": allow, "systemd": systemd}
    read = {
        "docker.info": build.source(data=info),
        "containers.scopes": build.source(data=[scope]),
        "dev.char": build.source(data=chars),
    }
    processes = tuple(dataclasses.replace(p, container=ID) for p in build.host().processes)
    return host_with(read, containers=(made,), processes=processes)


@pytest.mark.parametrize(
    ("allow", "chars", "wanted"),
    [
        ([*ALWAYS, *LISTED], WHOLE, "pass"),
        (ALWAYS, WHOLE, "warn"),
        ([*ALWAYS, *LISTED[1:]], WHOLE, "warn"),  # without nvidia-uvm no CUDA program starts
        ([*ALWAYS, *LISTED[:3]], WHOLE, "warn"),  # one of the two GPUs that it holds
        ([*ALWAYS, *LISTED], [*NODES, CTL, UVM], "pass"),  # told, by numbers that need no link
        ([*ALWAYS, "char-195 rw", "char-nvidia-uvm rw"], [*NODES, CTL, UVM], "pass"),  # a group needs no link
        ([*ALWAYS, "/dev/nvidia0 rw", "/dev/nvidia1 rw", "/dev/nvidiactl rw", "/dev/nvidia-uvm rw"], [*NODES, CTL, UVM], "pass"),
        ([*ALWAYS, *(line.replace("rwm", "r") for line in LISTED)], WHOLE, "warn"),
    ],
)
def test_the_rules_that_systemd_holds_decide_whatever_was_asked_for(
    allow: list[str], chars: list[dict[str, Any]], wanted: str
) -> None:
    assert status(RELOAD, ruled(allow, chars)) == wanted
    assert status(RELOAD, ruled(allow, chars, docker="27.0.0")) == wanted


@pytest.mark.parametrize(("systemd", "wanted"), [("239 (239-82.el8)", "warn"), ("240", "pass"), ("", "pass")])
def test_a_systemd_before_240_finds_a_listed_device_by_its_link_alone(systemd: str, wanted: str) -> None:
    assert status(RELOAD, ruled([*ALWAYS, *LISTED], [*NODES, CTL, UVM], systemd=systemd)) == wanted
    assert status(RELOAD, ruled([*ALWAYS, *LISTED], systemd=systemd)) == "pass"


def test_a_container_that_asked_for_nothing_and_holds_a_gpu_is_judged_too() -> None:
    host = ruled(ALWAYS)
    silent = dataclasses.replace(host.containers[0], gpu_requests=(), cdi_devices=(), devices=(), environ={})
    assert status(RELOAD, dataclasses.replace(host, containers=(silent,))) == "warn"


def test_a_scope_without_any_rules_allows_everything() -> None:
    assert status(RELOAD, ruled([], policy="auto")) == "pass"
    assert status(RELOAD, ruled([], policy="strict")) == "warn"


def test_a_stranger_to_docker_and_podman_is_judged_by_its_scope_too() -> None:
    for allow, wanted in (([*ALWAYS, *LISTED], "pass"), (ALWAYS, "warn")):
        host = dataclasses.replace(ruled(allow), containers=())
        assert status(RELOAD, host) == wanted
        assert (reloadrisk.risk(host) is None) == (wanted == "pass")


def test_the_risk_names_the_container_and_the_remedy_in_one_line_each() -> None:
    found = reloadrisk.risk(ruled(ALWAYS))
    assert found is not None
    assert found.reason.startswith("container sglang: systemd does not know")
    assert "docker run --device nvidia.com/gpu=all" in found.remedy
    assert "\n" not in found.reason + found.remedy
    unlinked = reloadrisk.risk(ruled(ALWAYS, [*NODES, CTL, UVM]))
    assert unlinked is not None
    assert "create-dev-char-symlinks" in unlinked.remedy


def test_containers_that_cannot_be_read_are_a_risk_and_a_host_without_gpus_has_none() -> None:
    denied = {"containers": build.source(status="denied", reason="docker.sock")}
    host = host_with(denied, containers=(), processes=())
    assert "docker.sock" in (reloadrisk.risk(host) or reloadrisk.Risk("", "")).reason
    assert reloadrisk.risk(dataclasses.replace(host, gpus=())) is None

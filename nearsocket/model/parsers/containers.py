"""The `containers` source: running containers as their runtime describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearsocket.model.host import Container
from nearsocket.model.parsers import take


def containers(data: Any) -> tuple[Container, ...]:
    """The containers that have an id; values of a wrong type count as missing."""
    return tuple(_container(entry) for entry in take.maps(data) if take.text(entry.get("id")))


def _container(entry: Mapping[str, Any]) -> Container:
    mounts = tuple(
        (take.word(item.get("source")), take.word(item.get("destination")), take.word(item.get("type")))
        for item in take.maps(entry.get("mounts"))
    )
    return Container(
        runtime=take.word(entry.get("runtime")),
        id=take.word(entry.get("id")),
        name=take.word(entry.get("name")).lstrip("/"),
        image=take.word(entry.get("image")),
        pid=take.number(entry.get("pid")) or 0,
        privileged=take.flag(entry.get("privileged")) or False,
        cap_add=tuple(name.upper().removeprefix("CAP_") for name in take.texts(entry.get("cap_add"))),
        security_opt=take.texts(entry.get("security_opt")),
        ipc_mode=take.word(entry.get("ipc_mode")),
        shm_size_bytes=take.number(entry.get("shm_size_bytes")),
        cpuset_cpus=take.word(entry.get("cpuset_cpus")),
        cpuset_mems=take.word(entry.get("cpuset_mems")),
        cgroup_parent=take.word(entry.get("cgroup_parent")),
        gpu_requests=take.texts(entry.get("device_requests")),
        devices=take.texts(entry.get("devices")),
        cdi_devices=take.texts(entry.get("cdi_devices")),
        mounts=mounts,
        environ=take.text_map(entry.get("env")),
        command=take.texts(entry.get("command")),
    )

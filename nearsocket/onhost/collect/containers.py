"""Docker and podman: what they are set up for, and the containers that run now."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Optional

from nearsocket.model.parsers.compose import PREFIX
from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import command, redact
from nearsocket.onhost.collect.files import Context, absent, ok, read_files

_INFO = ("ServerVersion", "DefaultRuntime", "CgroupDriver", "CgroupVersion", "CDISpecDirs", "SecurityOptions", "ExperimentalBuild")
_LIMIT_S = 8
#: Where a container of docker compose comes from.
_COMPOSE = frozenset(
    f"{PREFIX}{name}" for name in ("project", "service", "project.config_files", "project.working_dir", "depends_on")
)
#: Where podman as root keeps the state of this boot.
_PODMAN_OF_ROOT = ("/run/containers/storage", "/run/libpod")


def runs(context: Context, runtime: str) -> bool:
    """Whether asking that runtime can find anything, and writes nothing.

    podman makes its folders and, for a user who is not root, a process that stays, where it has not run since the last boot. So it
    is asked only where its state of this boot is there; without that no container of it runs.
    """
    if runtime == "docker":
        return any(context.path(place).exists() for place in ("/run/docker.sock", "/var/run/docker.sock"))
    uid = os.geteuid()
    if uid == 0:
        return any(context.path(place).exists() for place in _PODMAN_OF_ROOT)
    home = os.environ.get("HOME", "")
    runtime_folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    states = (f"{runtime_folder}/libpod/tmp", f"/tmp/podman-run-{uid}/libpod/tmp", f"/tmp/storage-run-{uid}/libpod/tmp")  # noqa: S108
    storage = context.path(f"{home}/.local/share/containers/storage")
    return bool(home) and storage.is_dir() and any(context.path(state).is_dir() for state in states)


def docker_info(context: Context) -> Source:
    """The parts of `docker info` that GPUs and cgroups depend on."""
    if not runs(context, "docker"):
        return absent("no Docker daemon (no /run/docker.sock)")
    output = command.run(["docker", "info", "--format", "{{json .}}"], _LIMIT_S)
    whole = _json(output.text)
    if not isinstance(whole, dict) or not whole.get("ServerVersion"):
        said = "; ".join(whole.get("ServerErrors") or []) if isinstance(whole, dict) else ""
        return _refused("docker info", output.code, said or output.error)
    data = {name: whole.get(name) for name in _INFO}
    data["Runtimes"] = sorted(whole.get("Runtimes") or {})
    devices = whole.get("DiscoveredDevices") or []
    data["DiscoveredDevices"] = [str(one.get("ID") if isinstance(one, dict) else one) for one in devices]
    return ok(data)


def containers(context: Context) -> Source:
    """Running containers of both runtimes. A runtime that fails is named in the reason; the other's are kept."""
    found: list[dict[str, Any]] = []
    faults: list[Source] = []
    asked = False
    for runtime in ("docker", "podman"):
        if not runs(context, runtime):
            continue
        asked = True
        try:
            part = inspect(runtime)
        except FileNotFoundError as error:
            part = absent(str(error))
        except command.CommandTimeout as error:
            part = Source(SourceStatus.TIMEOUT, reason=str(error))
        if part.ok:
            found.extend(part.data)
        else:
            faults.append(part)
    if os.geteuid() != 0 and any(context.path(place).exists() for place in _PODMAN_OF_ROOT):
        faults.append(Source(SourceStatus.DENIED, reason="podman: root's containers are not shown to this user"))
        asked = True
    if not asked:
        return absent("neither Docker nor podman runs here")
    if faults and not found:
        return faults[0]
    return ok(found, "; ".join(fault.reason or "" for fault in faults) or None)


def inspect(runtime: str, which: Sequence[str] = (), most: Optional[int] = None) -> Source:
    """Containers as `describe` tells them: the running ones, or those that the options of `ps` choose, `most` of them at most."""
    listed = command.run([runtime, "ps", "-q", "--no-trunc", *which], _LIMIT_S)
    if listed.code:
        return _refused(f"{runtime} ps", listed.code, listed.error)
    ids = listed.text.split()[:most]
    if not ids:
        return ok([])
    output = command.run([runtime, "inspect", "--type", "container", *ids], _LIMIT_S)
    whole = _json(output.text)
    # A container that ended in between makes inspect fail, but the others' answers are there all the same.
    if not isinstance(whole, list) or (output.code and not whole):
        return _refused(f"{runtime} inspect", output.code, output.error)
    return ok([describe(runtime, one) for one in whole if isinstance(one, dict)])


def _refused(what: str, code: int, said: str) -> Source:
    denied = "permission denied" in said.lower()
    return Source(
        SourceStatus.DENIED if denied else SourceStatus.ERROR, reason=f"{what}: exit code {code}: {redact.text(said)}"[:300]
    )


def describe(runtime: str, whole: dict[str, Any]) -> dict[str, Any]:
    """The contract's subset of one container's inspection, secrets taken out."""
    config, host, state = (whole.get(name) or {} for name in ("Config", "HostConfig", "State"))
    restart = host.get("RestartPolicy") or {}
    devices = [str(one.get("PathOnHost")) for one in host.get("Devices") or []]
    requests = host.get("DeviceRequests") or []
    names = [name for one in requests if one.get("Driver") == "cdi" for name in one.get("DeviceIDs") or []]
    return {
        "runtime": runtime,
        "id": str(whole.get("Id") or ""),
        "name": str(whole.get("Name") or "").lstrip("/"),
        "image": str(config.get("Image") or whole.get("ImageName") or ""),
        "image_id": str(whole.get("Image") or ""),
        "pid": int(state.get("Pid") or 0),
        "state": str(state.get("Status") or ""),
        "restart": str(restart.get("Name") or ""),
        "privileged": bool(host.get("Privileged")),
        "cap_add": [str(one) for one in host.get("CapAdd") or []],
        "security_opt": [redact.text(str(one)) for one in host.get("SecurityOpt") or []],
        "ipc_mode": str(host.get("IpcMode") or ""),
        "shm_size_bytes": _integer(host.get("ShmSize")),
        "cpuset_cpus": str(host.get("CpusetCpus") or ""),
        "cpuset_mems": str(host.get("CpusetMems") or ""),
        "cgroup_parent": str(host.get("CgroupParent") or ""),
        "device_requests": [_request(one) for one in requests],
        "devices": devices,
        "cdi_devices": [*names, *(path for path in devices if "=" in path)],
        "runtime_name": str(host.get("Runtime") or whole.get("OCIRuntime") or ""),
        "mounts": [
            {
                "source": redact.text(str(one.get("Source") or "")),
                "destination": str(one.get("Destination") or ""),
                "type": str(one.get("Type") or ""),
            }
            for one in whole.get("Mounts") or []
        ],
        "env": redact.environ_words([str(word) for word in config.get("Env") or []]),
        "command": redact.argv(_command(whole, config)),
        **_made(whole, config, host),
    }


def _command(whole: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The words that the container runs. podman (seen: 4.3) joins the words of an entry point into one text."""
    if whole.get("Path"):
        return [str(whole["Path"]), *map(str, whole.get("Args") or [])]
    return [*map(str, _words(config.get("Entrypoint"))), *map(str, _words(config.get("Cmd")))]


def _made(whole: dict[str, Any], config: dict[str, Any], host: dict[str, Any]) -> dict[str, Any]:
    """What is needed to make the container anew, and what of it can not be: names of variables alone, labels of compose alone."""
    labels = config.get("Labels") or {}
    return {
        "env_names": sorted({str(word).partition("=")[0] for word in config.get("Env") or []}),
        "read_only": [str(one.get("Destination")) for one in whole.get("Mounts") or [] if one.get("RW") is False],
        "network": str(host.get("NetworkMode") or ""),
        "ports": [
            {"container": str(name), "address": str(one.get("HostIp") or ""), "host": str(one.get("HostPort") or "")}
            for name, given in (host.get("PortBindings") or {}).items()
            for one in given or []
        ],
        "user": str(config.get("User") or ""),
        "workdir": str(config.get("WorkingDir") or ""),
        "pid_mode": str(host.get("PidMode") or ""),
        "ulimits": [f"{one.get('Name')}={one.get('Soft')}:{one.get('Hard')}" for one in host.get("Ulimits") or []],
        "compose": {name: redact.text(str(value)) for name, value in labels.items() if name in _COMPOSE},
        "image_digest": str(whole.get("ImageDigest") or ""),
    }


def images(context: Context) -> Source:
    """The images of the running containers: by which digests they can be pulled, and what they bring by themselves."""
    wanted: dict[str, set[str]] = {}
    for one in context.result("containers").data or []:
        wanted.setdefault(one["runtime"], set()).add(one["image_id"])
    found = [entry for runtime, ids in sorted(wanted.items()) for entry in _images(runtime, sorted(ids - {""}))]
    return ok(found) if wanted else absent("no container runs")


def _images(runtime: str, ids: list[str]) -> list[dict[str, Any]]:
    output = command.run([runtime, "image", "inspect", *ids], _LIMIT_S) if ids else None
    whole = _json(output.text) if output else []
    return [_image(runtime, one) for one in whole if isinstance(one, dict)] if isinstance(whole, list) else []


def _image(runtime: str, whole: dict[str, Any]) -> dict[str, Any]:
    config = whole.get("Config") or {}
    words = [str(word) for word in config.get("Env") or []]
    return {
        "runtime": runtime,
        "id": str(whole.get("Id") or ""),
        "digests": [str(one) for one in whole.get("RepoDigests") or []],
        "env": redact.environ_words(words),
        "env_names": sorted({word.partition("=")[0] for word in words}),
        "user": str(config.get("User") or ""),
        "workdir": str(config.get("WorkingDir") or ""),
    }


def _words(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _request(one: dict[str, Any]) -> str:
    ids = ",".join(map(str, one.get("DeviceIDs") or []))
    kinds = ",".join("+".join(map(str, kind)) for kind in one.get("Capabilities") or [])
    return f"driver={one.get('Driver') or ''} count={one.get('Count') or 0} ids={ids} capabilities={kinds}"


def _integer(value: Any) -> Optional[int]:
    return value if isinstance(value, int) else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def cdi(context: Context) -> Source:
    """CDI's specifications, by absolute path."""
    texts: dict[str, str] = {}
    for base in ("/etc/cdi", "/var/run/cdi"):
        for name, text in (read_files(context.path(base), ("*.yaml", "*.json"), 1 << 18).data or {}).items():
            texts[f"{base}/{name}"] = redact.text(text)
    return ok(texts) if texts else absent("no specification in /etc/cdi or /var/run/cdi")

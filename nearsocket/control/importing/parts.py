"""The parts of a container: image, mounts, environment, network, and options that a replica has no word for."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from nearsocket.control.importing.values import Left
from nearsocket.model.host import Container, Host
from nearsocket.model.parsers import take
from nearsocket.model.verdicts.reading import entries
from nearsocket.onhost.collect.redact import is_secret

_DIGEST = re.compile(r"[a-z0-9][A-Za-z0-9._/:-]*@sha256:[0-9a-f]{64}\Z")
#: Where an operator writes the values that no fleet file holds.
SECRETS = "/etc/secrets"
#: Variables that the plan sets, or that mean nothing once a container is given just its GPUs.
DECIDED = frozenset(
    {
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        *("NCCL_CUMEM_ENABLE", "SGLANG_AUTO_NUMA_BIND"),
    }
)
#: Variables that runtimes set by themselves.
_RUNTIMES_OWN = frozenset({"PATH", "TERM", "container", "HOSTNAME", "HOME"})


def raw(host: Host, box: Container) -> Mapping[str, Any]:
    """The snapshot's entry of that container."""
    return next((entry for entry in entries(host, "containers") if entry.get("id") == box.id), {})


def compose(host: Host, box: Container) -> Mapping[str, str]:
    """Compose's labels of that container; empty where it is none of compose's."""
    return take.text_map(raw(host, box).get("compose"))


def image_of(host: Host, box: Container) -> Mapping[str, Any]:
    """The snapshot's entry of the container's image."""
    wanted = take.word(raw(host, box).get("image_id")).rpartition(":")[2]
    found = (e for e in entries(host, "images") if e.get("runtime") == box.runtime)
    return next((e for e in found if take.word(e.get("id")).rpartition(":")[2] == wanted and wanted), {})


def reference(host: Host, box: Container) -> str | None:
    """The image by a digest that it can be pulled by; None where it has none (built or loaded on the host)."""
    if _DIGEST.match(box.image):
        return box.image
    name = _repository(box.image)
    digest = take.word(raw(host, box).get("image_digest"))
    known = take.texts(image_of(host, box).get("digests"))
    same = [one for one in known if one.partition("@")[0] == name]
    made = [f"{name}@{digest}"] if digest and not known else []
    return next((one for one in (*same, *known, *made) if _DIGEST.match(one)), None)


def _repository(image: str) -> str:
    """`registry:5000/name` of `registry:5000/name:tag`."""
    path = image.partition("@")[0]
    before, colon, tag = path.rpartition(":")
    return before if colon and "/" not in tag else path


def environment(host: Host, box: Container, name: str) -> tuple[dict[str, str], dict[str, str], list[Left]]:
    """Variables that the image does not bring, secrets as files, and those whose value a snapshot does not hold."""
    own, brought = raw(host, box), image_of(host, box)
    from_image = take.text_map(brought.get("env"))
    plain = {key: value for key, value in box.environ.items() if from_image.get(key) != value and key not in DECIDED}
    left = [
        Left(name, f"variable {key}", "the plan decides it") for key in sorted(DECIDED & box.environ.keys() - from_image.keys())
    ]
    names = set(take.texts(own.get("env_names"))) - set(take.texts(brought.get("env_names"))) - _RUNTIMES_OWN
    secrets: dict[str, str] = {}
    for key in sorted(names - box.environ.keys()):
        if is_secret(key):
            secrets[key] = f"{SECRETS}/{name}/{key}"
            left.append(Left(name, f"the value of {key}", f"a secret: write it to {secrets[key]} on the host, for root alone"))
        else:
            left.append(Left(name, f"variable {key}", "snapshots hold values of known names alone: add it to `environment`"))
    if not own.get("env_names"):
        left.append(Left(name, "further variables", "the snapshot is of an older nearsocket, which did not name them"))
    return plain, secrets, left


def mounts(host: Host, box: Container, name: str) -> tuple[dict[str, str], list[str], list[Left]]:
    """Where each folder of the container lies on the host, the mounts as a fleet file has them, and those that it cannot have."""
    read_only = set(take.texts(raw(host, box).get("read_only")))
    places: dict[str, str] = {}
    made: list[str] = []
    left: list[Left] = []
    for source, target, kind in box.mounts:
        if target == "/dev/shm":  # noqa: S108 - a container's
            left.append(Left(name, f"mount {source}:{target}", "the plan gives each replica a /dev/shm of its own"))
        elif kind not in ("bind", "volume") or not (_plain(source) and _plain(target)):
            left.append(Left(name, f"mount {kind} {source}:{target}", "a fleet file mounts folders of the host by absolute paths"))
        else:
            places[target] = source
            made.append(f"{source}:{target}" + (":ro" if target in read_only else ""))
            if kind == "volume":
                left.append(Left(name, f"volume at {target}", f"carried as the folder {source}: the runtime must keep the volume"))
    return places, made, left


def _plain(path: str) -> bool:
    return path.startswith("/") and posixpath.normpath(path) == path and path.isprintable() and not set(',":') & set(path)


def on_host(path: str, places: Mapping[str, str]) -> str | None:
    """The folder on the host behind a path in the container; None where no mount covers it."""
    for target in sorted(places, key=len, reverse=True):
        if path == target:
            return places[target]
        if path.startswith(target.rstrip("/") + "/"):
            return posixpath.normpath(f"{places[target]}/{path[len(target) :].lstrip('/')}")
    return None


def published(host: Host, box: Container, inside: int) -> tuple[int, str] | None:
    """Port and address by which the host reaches a port of the container, where that is published."""
    for entry in take.maps(raw(host, box).get("ports")):
        port, _, kind = take.word(entry.get("container")).partition("/")
        given = take.word(entry.get("host"))
        if port == str(inside) and kind in ("", "tcp") and given.isdigit() and 0 < int(given) < 65536:
            return int(given), take.word(entry.get("address")) or "0.0.0.0"  # noqa: S104 - what the container has
    return None


def options(host: Host, box: Container, name: str) -> list[Left]:
    """What the container has and a replica has no word for."""
    own, brought = raw(host, box), image_of(host, box)
    network = take.word(own.get("network"))
    user, folder = take.word(own.get("user")), take.word(own.get("workdir"))
    others = [path for path in box.devices if not re.match(r"/dev/nvidia", path) and "nvidia.com/" not in path]
    caps = [word for word in box.cap_add if word != "SYS_NICE"]
    extra = [word for word in take.texts(own.get("ulimits")) if not _memlock(word) and box.runtime == "docker"]
    bound = " and ".join(text for text in (box.cpuset_cpus, box.cpuset_mems) if text)
    said: Sequence[tuple[bool, str, str]] = (
        (box.privileged, "privileged", "a replica gets its GPUs and SYS_NICE where the plan needs it, nothing else"),
        (bool(caps), f"capabilities {', '.join(caps)}", "only SYS_NICE is given, where the plan needs it"),
        (bool(box.security_opt), f"security options {', '.join(box.security_opt)}", "the runtime's own profile is used"),
        (bool(others), f"devices {', '.join(others)}", "only GPUs are given"),
        (bool(user) and user != take.word(brought.get("user")), f"user {user}", "the image's user is taken"),
        (bool(folder) and folder != (take.word(brought.get("workdir")) or "/"), f"working folder {folder}", "the image's is taken"),
        (network != "host", f"network {network or 'not known'}", "it is in the host's, where names of another mean nothing"),
        (own.get("pid_mode") == "host", "the host's process numbers", "a replica has its own"),
        (box.ipc_mode == "host", "the host's /dev/shm", "the plan gives each replica a /dev/shm of its own"),
        (bool(extra), f"limits {', '.join(extra)}", "only memlock has a word"),
        (bool(bound), f"CPUs and nodes {bound}", "the plan binds"),
        (bool(box.cgroup_parent), f"cgroup parent {box.cgroup_parent}", "a replica has a slice of its own"),
        (take.word(own.get("restart")) not in ("", "no"), f"restart policy {own.get('restart')}", "its unit restarts it: `limits`"),
    )  # fmt: skip
    return [Left(name, what, why) for there, what, why in said if there]


def memlock(host: Host, box: Container) -> int | None:
    """A limit of pinned memory that was set, in bytes; None where there is none (as the plan's own)."""
    words = [word for word in take.texts(raw(host, box).get("ulimits")) if _memlock(word)]
    value = words[0].rpartition(":")[2] if words else "-1"
    return int(value) if value.isdigit() and int(value) > 0 else None


def _memlock(word: str) -> bool:
    return word.lower().startswith(("memlock=", "rlimit_memlock="))

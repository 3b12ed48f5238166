"""Versions and parameters: what is another one, new or gone. None of it is a regression by itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Optional, TypeVar

from nearsocket.model.compare.values import Change, Section, differing, mappings
from nearsocket.model.host import Container, Host, Replica
from nearsocket.model.verdicts.reading import files, mapping, text

Named = TypeVar("Named")
#: Follows from the kernel's version, which is told by itself; or is the host's name.
_FOLLOWS = frozenset({"BOOT_IMAGE", "initrd", "kernel.osrelease", "kernel.hostname", "kernel/osrelease", "kernel/hostname"})
#: The folder of one start (`20260131T120000Z-4242`): another one at every start.
_START = re.compile(r"\d{8}T\d{6}Z-\d+")
_SAID = ("command", "privileged", "capabilities", "security options", "IPC", "shm bytes", "CPUs", "memory nodes", "cgroup parent")
_PARAMETER = re.compile(r"^(\w+):\s*(.*?)\s*$", re.MULTILINE)
_PRETTY = re.compile(r'^PRETTY_NAME="?(.*?)"?$', re.MULTILINE)


def versions(before: Host, after: Host) -> Iterator[Change]:
    """Kernel, driver, toolkit, runtime, images and packages."""
    old, new = before.driver, after.driver
    told = (
        ("kernel", before.kernel, after.kernel),
        ("distribution", _distribution(before), _distribution(after)),
        ("driver's module in memory", old.module_loaded, new.module_loaded),
        ("driver's module, kind", old.module_kind, new.module_kind),
        ("driver's library", old.library, new.library),
        ("NVML", old.nvml, new.nvml),
        ("CUDA of the driver", old.cuda, new.cuda),
        ("container toolkit", _of(before, "container.toolkit", "version"), _of(after, "container.toolkit", "version")),
        ("fabric manager", _of(before, "fabricmanager", "version"), _of(after, "fabricmanager", "version")),
        ("Docker", _of(before, "docker.info", "ServerVersion"), _of(after, "docker.info", "ServerVersion")),
        ("kernel of the next boot", _of(before, "kernel.images", "default"), _of(after, "kernel.images", "default")),
    )
    yield from differing(Section.VERSIONS, "host", told)
    for name, one, other in _shared(_containers(before), _containers(after)):
        yield from differing(Section.VERSIONS, f"container {name}", (("image", one.image, other.image),))
    if before.source("packages").ok and after.source("packages").ok:
        yield from mappings(Section.VERSIONS, "package", _packages(before), _packages(after))


def parameters(before: Host, after: Host) -> Iterator[Change]:
    """The kernel's, the modules', apt's and dnf's, and those of engines that both sides show under one name."""
    for subject, old, new in (
        ("sysctl", _quiet(before.sysctl), _quiet(after.sysctl)),
        ("kernel command line", _quiet(before.cmdline), _quiet(after.cmdline)),
    ):
        if old and new:
            yield from mappings(Section.PARAMETERS, subject, old, new)
    for source in ("kernel.mm", "modprobe", "packages.upgrades", "nccl.conf", "tuned"):
        if before.source(source).ok and after.source(source).ok:
            yield from mappings(Section.PARAMETERS, source, files(before, source), files(after, source))
    if before.source("packages.holds").ok and after.source("packages.holds").ok:
        yield from mappings(Section.PARAMETERS, "hold", dict.fromkeys(before.holds, "held"), dict.fromkeys(after.holds, "held"))
    old, new = _driver(before), _driver(after)
    if old and new:
        yield from mappings(Section.PARAMETERS, "module nvidia", old, new)
    yield from _engines(before, after)


def _engines(before: Host, after: Host) -> Iterator[Change]:
    for name, one, other in _shared(_containers(before), _containers(after)):
        subject = f"container {name}"
        yield from differing(Section.PARAMETERS, subject, zip(_SAID, _said(one), _said(other)))
        yield from mappings(Section.PARAMETERS, subject, _environ(one.environ), _environ(other.environ))
    for name, old, new in _shared(_alone(before), _alone(after)):
        yield from differing(Section.PARAMETERS, f"replica {name}", (("command", _rank(before, old), _rank(after, new)),))
        was, now = _rank_environ(before, old), _rank_environ(after, new)
        if was is not None and now is not None:
            yield from mappings(Section.PARAMETERS, f"replica {name}", was, now)


def _said(container: Container) -> tuple[object, ...]:
    """What a container was started with, in the order of `_SAID`."""
    return (
        _words(container.command),
        container.privileged,
        " ".join(sorted(container.cap_add)),
        " ".join(sorted(container.security_opt)),
        container.ipc_mode,
        container.shm_size_bytes,
        container.cpuset_cpus,
        container.cpuset_mems,
        container.cgroup_parent,
    )


def _alone(host: Host) -> dict[str, Replica]:
    """Replicas of no container: a container's words are told with it."""
    return {replica.name: replica for replica in host.replicas if replica.container is None}


def _rank(host: Host, replica: Replica) -> Optional[str]:
    first = host.process(replica.ranks[0]) if replica.ranks else None
    return _words(first.command) if first else None


def _rank_environ(host: Host, replica: Replica) -> Optional[dict[str, str]]:
    first = host.process(replica.ranks[0]) if replica.ranks else None
    return None if first is None or first.environ is None else _environ(first.environ)


def _shared(before: Mapping[str, Named], after: Mapping[str, Named]) -> Iterator[tuple[str, Named, Named]]:
    for name in sorted(before.keys() & after.keys()):
        yield name, before[name], after[name]


def _containers(host: Host) -> dict[str, Container]:
    return {container.name: container for container in host.containers}


def _words(command: tuple[str, ...]) -> str:
    return _START.sub("<start>", " ".join(command))


def _environ(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: _START.sub("<start>", value) for name, value in environ.items()}


def _packages(host: Host) -> dict[str, str]:
    return {package.name: package.version for package in host.packages if package.status[1:2] == "i"}


def _quiet(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in _FOLLOWS}


def _driver(host: Host) -> dict[str, str]:
    return dict(_PARAMETER.findall(files(host, "driver.files").get("params", "")))


def _distribution(host: Host) -> Optional[str]:
    found = _PRETTY.search(text(host, "os.release"))
    return found[1] if found else host.os_id


def _of(host: Host, source: str, key: str) -> Optional[str]:
    value = mapping(host, source).get(key)
    return value if isinstance(value, str) else None

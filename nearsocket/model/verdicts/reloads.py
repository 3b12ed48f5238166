"""Judges running containers that asked for GPUs: whether they have them, and whether a daemon-reload would take them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from nearsocket.model.containment import same_container
from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import Container, Host, Process
from nearsocket.model.text import brief
from nearsocket.model.verdicts import devicerules
from nearsocket.model.verdicts.groups import quoted
from nearsocket.model.verdicts.reading import because, entries, files, listed, mapping, refused, told, why

_GPU_DEVICE = re.compile(r"/dev/nvidia\d+\Z")
LINKS = "sudo nvidia-ctk system create-dev-char-symlinks --create-all"
LISTED = (
    "# start it anew with its GPUs listed, by CDI (Docker 28.3 and newer; older ones need features.cdi):\n"
    "# then start the containers with: docker run --device nvidia.com/gpu=all ..."
)


def with_gpus(host: Host) -> tuple[Container, ...]:
    """The running containers that asked for GPUs (by request, by the nvidia runtime, by CDI or by device node) or hold one."""
    holding = [p.container for p in host.processes if p.container is not None and (p.gpus or p.gpu_bytes)]
    return tuple(
        c
        for c in host.containers
        if c.gpu_requests or _lists(c) or _by_runtime(host, c) or any(same_container(id, c.id) for id in holding)
    )


def nothing_to_lose(host: Host) -> Optional[Finding]:
    """The finding to give where no running container asked for a GPU: unknown where that could not be read. None where one did.

    Only Docker and podman are asked. A process with a GPU in a container that neither of them knows (containerd's, CRI-O's,
    another user's podman) makes it unknown too.
    """
    if with_gpus(host):
        return None
    strange = strangers(host)
    if strange:
        return _strange(host.name, strange)
    if not host.containers and refused(host, "containers"):
        summary = f"the running containers are not known: {why(host, 'containers')}"
        return unknown(host.name, summary, because(host, "containers"), "sudo docker ps; sudo podman ps")
    seen = f"{len(host.containers)} running containers read, none asked for a GPU"
    shown = (Evidence("containers", seen),) if host.source("containers").ok or host.containers else because(host, "containers")
    return not_applicable(host.name, f"no running container asked for a GPU ({shown[0].text})", shown)


def _strange(subject: str, processes: list[Process]) -> Finding:
    cgroups = tuple(
        told(f"/proc/{p.pid}/cgroup", f"{brief(p.title, 60)} holds {listed(p.gpus)}, {brief(p.cgroup)}") for p in processes
    )
    ids = listed(dict.fromkeys((p.container or "")[:12] for p in processes))
    summary = f"container {ids} has a GPU, and neither Docker nor podman knows it: how it got it is not known"
    return unknown(subject, summary, cgroups, "sudo crictl ps; sudo ctr -n k8s.io containers ls")


def strangers(host: Host) -> list[Process]:
    """The processes that hold a GPU in a container that no runtime which was asked explained."""
    inside = [p for p in host.processes if p.container is not None and (p.gpus or p.gpu_bytes)]
    return [p for p in inside if not any(same_container(p.container, box.id) for box in host.containers)]


def judge_visible(host: Host, container: Container) -> Finding:
    """Whether a container's GPUs are there: devices that exist, CDI names that are defined, processes that hold one."""
    subject = subject_of(container)
    evidence = [_asked(container)]
    look = f"{_inside_command(container)} nvidia-smi -L"
    again = f"{container.runtime} restart {quoted(container.name or container.id)}; {look}"
    nodes = {str(entry.get("path")) for entry in entries(host, "dev.char") if entry.get("path")}
    gone = [device for device in container.devices if _GPU_DEVICE.match(device) and nodes and device not in nodes]
    uuids = {gpu.uuid for gpu in host.gpus if gpu.uuid}
    gone += [
        word for request in container.gpu_requests for word in re.findall(r"GPU-[0-9a-f-]+", request) if uuids and word not in uuids
    ]
    if gone:
        return failed(subject, f"asked for {listed(gone)}, which this host does not have", [*evidence, *_present(host)], again)
    specs = "\n".join(files(host, "cdi").values())
    undefined = [name for name in container.cdi_devices if specs and not _defined(name, specs)]
    if undefined:
        summary = f"no CDI file defines {listed(undefined)} any more: the container cannot be made anew"
        remedy = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; nvidia-ctk cdi list"
        return warned(subject, summary, [*evidence, told("cdi", listed(sorted(files(host, "cdi"))))], remedy)
    users = [p for p in host.processes if p.gpus and same_container(p.container, container.id)]
    if users:
        evidence += [told(f"/proc/{p.pid}", f"{brief(p.title, 60)} holds {listed(p.gpus)}") for p in users]
        return passed(
            subject, f"{listed(sorted({pci for p in users for pci in p.gpus}))} held by {len(users)} processes of it", evidence
        )
    reason = why(host, "processes") if not host.source("processes").ok else "no process of it holds a GPU now"
    return unknown(subject, f"asked for GPUs, and whether it still has them does not show: {reason}", evidence, look)


def judge_reloads(host: Host) -> Iterator[Finding]:
    """What the next daemon-reload leaves each container that has or asked for a GPU, those included that no runtime explains."""
    for container in with_gpus(host):
        yield judge_reload(host, container)
    strange = strangers(host)
    for id in dict.fromkeys(process.container or "" for process in strange):
        subject, mine = f"container {brief(id[:12])}", [p for p in strange if p.container == id]
        held = [told(f"/proc/{p.pid}/cgroup", f"{brief(p.title, 60)} holds {listed(p.gpus)}") for p in mine]
        yield judge_rules(host, id, subject, held) or _strange(subject, mine)


def judge_reload(host: Host, container: Container) -> Finding:
    """Whether the next daemon-reload leaves a container its GPUs (rules seen in nvidia-container-toolkit #48, #251, #1227)."""
    subject = subject_of(container)
    evidence = [_asked(container)]
    if container.privileged:
        return passed(
            subject, "privileged: every device is allowed, a reload takes none", [*evidence, Evidence("containers", "privileged")]
        )
    if container.runtime == "docker":
        driver = mapping(host, "docker.info").get("CgroupDriver")
        if not isinstance(driver, str):
            summary = f"Docker's cgroup driver is not known: {why(host, 'docker.info')}"
            return unknown(subject, summary, [*evidence, *because(host, "docker.info")], "sudo docker info | grep -i cgroup")
        evidence.append(told("docker.info CgroupDriver", driver))
        if driver != "systemd":
            return passed(subject, f"cgroup driver {driver}: systemd does not write its device rules", evidence)
    rules = devicerules.of(host, container.id)
    judged = judge_rules(host, container.id, subject, evidence) if rules else None
    if judged is not None:
        return judged
    known = _known_to_systemd(host, container)
    if known is None:
        evidence += [
            told("docker.info DiscoveredDevices", listed(_discovered(host))),
            told("docker.info ServerVersion", _version(host)),
        ]
        summary = "Docker 29 may have listed its GPUs by CDI or injected them by a hook, which a daemon-reload undoes"
        return unknown(
            subject, summary, evidence, f"{_inside_command(container)} printenv NVIDIA_VISIBLE_DEVICES  # void: listed by CDI"
        )
    if not known:
        summary = "systemd does not know its GPUs, injected by a hook: a daemon-reload or an update of it takes them away"
        return warned(subject, summary, evidence, LISTED)
    unlinked = _unlinked(host)
    if unlinked is None:
        shown = [*evidence, *because(host, "dev.char")]
        return unknown(
            subject,
            f"its devices are listed; their links are not known: {why(host, 'dev.char')}",
            shown,
            "ls -l /dev/char | grep nvidia",
        )
    if unlinked:
        summary = f"its devices are listed, but {listed(unlinked)} has no link in /dev/char: runc 1.1.3 to 1.1.6 leaves it out"
        return warned(subject, summary, [*evidence, *_present(host)], LINKS)
    return passed(subject, "its devices are listed and linked in /dev/char", [*evidence, *_present(host)])


def judge_rules(host: Host, container: str, subject: str, evidence: list[Evidence]) -> Optional[Finding]:
    """The verdict by the device rules that systemd itself holds for that container: what was asked for does not matter then.

    None where it has no scope, or the device files of the host were not read.
    """
    rules = devicerules.of(host, container)
    lost = devicerules.lost(host, container, rules) if rules else None
    if rules is None or lost is None:
        return None
    shown = [*evidence, told(f"containers.scopes {rules.unit}", rules)]
    if lost.untold:
        summary = f"systemd does not know that it uses {listed(lost.untold)}: a daemon-reload or an update of it takes that away"
        return warned(subject, summary, shown, _told_remedy(host, lost.untold))
    if lost.unlinked:
        summary = f"systemd finds {listed(lost.unlinked)} by a link in /dev/char that is not there: a daemon-reload takes it away"
        return warned(subject, summary, [*shown, *_present(host)], LINKS)
    return passed(subject, "systemd knows its devices and finds each of them", [*shown, *_present(host)])


def _told_remedy(host: Host, untold: tuple[str, ...]) -> str:
    """Listed ones that lack a link were left out by an old runc: the links first then."""
    unlinked = _unlinked(host)
    return f"{LINKS}\n{LISTED}" if unlinked and set(unlinked) & set(untold) else LISTED


def subject_of(container: Container) -> str:
    """A container as a subject, `container sglang`."""
    return f"container {brief(container.name or container.id[:12], 80)}"


def _asked(container: Container) -> Evidence:
    words = (*container.gpu_requests, *container.cdi_devices, *(d for d in container.devices if "nvidia" in d))
    return told(f"containers {container.id[:12]}", f"asked for {listed(words)}")


def _lists(container: Container) -> bool:
    """Whether the container's own description lists GPUs, so that systemd was told of them."""
    return bool(container.cdi_devices) or any(_GPU_DEVICE.match(device) for device in container.devices)


def _known_to_systemd(host: Host, container: Container) -> Optional[bool]:
    """Whether systemd was told of the container's GPUs; None where Docker chose by itself and does not say what.

    The nvidia runtime lists devices in its CDI modes; "auto" is one from toolkit 1.18 on. Docker 29 hands `--gpus` to CDI where
    it finds NVIDIA's CDI devices (moby 50228), later versions may prefer the hook again.
    """
    if _lists(container):
        return True
    if not container.gpu_requests and _by_runtime(host, container):
        toolkit = mapping(host, "container.toolkit")
        found = re.search(r'^\s*mode\s*=\s*"([a-z-]+)"', str(toolkit.get("config") or ""), re.MULTILINE)
        mode = found[1] if found else "auto"
        return mode in ("cdi", "jit-cdi") or (mode == "auto" and _numbers(str(toolkit.get("version"))) >= (1, 18))
    if (
        container.runtime == "docker"
        and _numbers(_version(host)) >= (29,)
        and any("nvidia.com/" in name for name in _discovered(host))
    ):
        return None
    return False


def _by_runtime(host: Host, container: Container) -> bool:
    """Whether the nvidia runtime gave the container GPUs: it runs under it, and asks for some or has a process that holds one."""
    entry = next((e for e in entries(host, "containers") if e.get("id") == container.id), {})
    if "nvidia" not in str(entry.get("runtime_name")):
        return False
    asked = container.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    return asked not in ("", "void", "none") or any(p.gpus and same_container(p.container, container.id) for p in host.processes)


def _discovered(host: Host) -> list[str]:
    found = mapping(host, "docker.info").get("DiscoveredDevices")
    return [str(name) for name in found] if isinstance(found, list) else []


def _version(host: Host) -> str:
    return str(mapping(host, "docker.info").get("ServerVersion") or "?")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _inside_command(container: Container) -> str:
    return f"{container.runtime} exec {quoted(container.name or container.id)}"


def _present(host: Host) -> list[Evidence]:
    read = entries(host, "dev.char")
    links = [f"{e.get('link')} -> {e.get('target')}" for e in read if e.get("link")]
    nodes = [f"{e.get('path')} {e.get('major')}:{e.get('minor')}" for e in read if e.get("path")]
    shown = [told("dev.char", "\n".join([*links, *nodes]))] if read else []
    return shown + [told(f"nvml {gpu.pci}", gpu.uuid) for gpu in host.gpus if gpu.uuid]


def _unlinked(host: Host) -> Optional[list[str]]:
    """The GPU device nodes without a link in /dev/char; None where that was not read."""
    read = entries(host, "dev.char")
    nodes = [str(entry["path"]) for entry in read if _GPU_DEVICE.match(str(entry.get("path")))]
    if not nodes:
        return None
    targets = {str(entry.get("target", "")).rpartition("/")[2] for entry in read if entry.get("link")}
    return [path for path in nodes if path.rpartition("/")[2] not in targets]


def _defined(name: str, specs: str) -> bool:
    """Whether `nvidia.com/gpu=0` stands in CDI files (YAML or JSON): its kind, and a device of its name."""
    kind, _, device = name.partition("=")
    named = re.search(rf"[\"']?name[\"']?:\s*[\"']?{re.escape(device)}[\"']?\s*(,|$|\n|}})", specs)
    return kind in specs and (named is not None or "<cut>" in specs)

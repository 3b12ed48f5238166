"""systemd's services and timers that matter here, as `systemctl show` tells them."""

from __future__ import annotations

import re
from typing import Any

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import command, redact
from nearsocket.onhost.collect.files import Context, absent, ok

_WANTED = re.compile(r"sglang|vllm|docker|podman|containerd|nvidia|nearsocket", re.IGNORECASE)
_TIMERS = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "unattended-upgrades.service",
    "dnf-automatic.timer",
    "dnf-automatic-install.timer",
    "dnf5-automatic.timer",
)
#: systemctl's property for each key of the contract.
_PROPERTIES = {
    "id": "Id",
    "active": "ActiveState",
    "sub": "SubState",
    "main_pid": "MainPID",
    "numa_policy": "NUMAPolicy",
    "numa_mask": "NUMAMask",
    "allowed_memory_nodes": "AllowedMemoryNodes",
    "allowed_cpus": "AllowedCPUs",
    "exec_start": "ExecStart",
    "cgroup": "ControlGroup",
    "fragment": "FragmentPath",
}
CAP_CHARACTERS = 8192
_LIMIT_S = 8


def blocks(text: str) -> list[dict[str, str]]:
    """`systemctl show`'s units: blocks of NAME=VALUE lines parted by empty lines; repeated names are joined."""
    result: list[dict[str, str]] = []
    for block in re.split(r"\n\s*\n", text):
        facts: dict[str, str] = {}
        for line in block.splitlines():
            name, equals, value = line.partition("=")
            if equals and re.match(r"[A-Za-z]+\Z", name):
                facts[name] = f"{facts[name]}\n{value}" if name in facts else value
        if facts:
            result.append(facts)
    return result


def show(names: list[str], properties: list[str]) -> list[dict[str, str]]:
    """What systemd says of these units, those that it has not loaded included. Raises OSError, CommandTimeout."""
    output = command.run(["systemctl", "show", "--no-pager", "-p", ",".join(properties), "--", *names], _LIMIT_S)
    if output.code and not output.text.strip():
        raise OSError(f"systemctl show: exit code {output.code}: {output.error}")
    return blocks(output.text)


def units(context: Context) -> Source:
    """Loaded services with an engine, a container runtime, NVIDIA or nearsocket in their name or command."""
    if not context.path("/run/systemd/system").is_dir():
        return absent("systemd does not run here")
    listed = command.run(
        ["systemctl", "list-units", "--type=service", "--all", "--plain", "--no-legend", "--no-pager", "--full"], _LIMIT_S
    )
    if listed.code:
        return Source(SourceStatus.ERROR, reason=f"systemctl list-units: exit code {listed.code}: {listed.error}"[:300])
    names = [words[0] for words in map(str.split, listed.text.splitlines()) if words and words[0].endswith(".service")]
    found: list[dict[str, Any]] = []
    for facts in show(names, [*_PROPERTIES.values(), "LoadState"]) if names else []:
        if facts.get("LoadState") == "not-found" or not _WANTED.search(facts.get("Id", "") + " " + facts.get("ExecStart", "")):
            continue
        entry: dict[str, Any] = {key: facts.get(name, "") for key, name in _PROPERTIES.items()}
        entry["main_pid"] = int(entry["main_pid"]) if str(entry["main_pid"]).isdigit() else 0
        entry["exec_start"] = redact.text(entry["exec_start"])[:CAP_CHARACTERS]
        found.append(entry)
    return ok(found)


def timers(context: Context) -> Source:
    """What may upgrade packages by itself."""
    if not context.path("/run/systemd/system").is_dir():
        return absent("systemd does not run here")
    shown = show(list(_TIMERS), ["Id", "ActiveState", "UnitFileState", "LoadState"])
    return ok(
        [
            {"id": facts.get("Id", ""), "active": facts.get("ActiveState", ""), "enabled": facts.get("UnitFileState", "")}
            for facts in shown
            if facts.get("LoadState") != "not-found"
        ]
    )

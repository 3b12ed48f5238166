"""Which devices systemd believes that each running container may use: what it writes anew at every daemon-reload."""

from __future__ import annotations

import re
from typing import Any

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import command
from nearsocket.onhost.collect.files import Context, absent, ok
from nearsocket.onhost.collect.units import blocks

#: The scope that a runtime with systemd as its cgroup driver asks for: Docker, podman, containerd and CRI-O for Kubernetes.
_SCOPE = re.compile(r"(?:docker|libpod|cri-containerd|crio|nerdctl)-([0-9a-f]{64})\.scope\Z")
_LIMIT_S = 8


def scopes(context: Context) -> Source:
    """The scopes of running containers with their device rules. A container of another cgroup driver has none."""
    if not context.path("/run/systemd/system").is_dir():
        return absent("systemd does not run here")
    listed = command.run(["systemctl", "list-units", "--type=scope", "--plain", "--no-legend", "--no-pager", "--full"], _LIMIT_S)
    if listed.code:
        return Source(SourceStatus.ERROR, reason=f"systemctl list-units: exit code {listed.code}: {listed.error}"[:300])
    words = (line.split() for line in listed.text.splitlines())
    names = [word[0] for word in words if word and _SCOPE.match(word[0])]
    if not names:
        return ok([])
    shown = command.run(["systemctl", "show", "--no-pager", "-p", "Id,DevicePolicy,DeviceAllow", "--", *names], _LIMIT_S)
    if shown.code:
        return Source(SourceStatus.ERROR, reason=f"systemctl show: exit code {shown.code}: {shown.error}"[:300])
    version = command.run(["systemctl", "show", "--property=Version", "--value"], _LIMIT_S).text.strip()
    return ok([entry for facts in blocks(shown.text) for entry in [_entry(facts, version)] if entry["id"]])


def _entry(facts: dict[str, str], version: str) -> dict[str, Any]:
    unit = facts.get("Id", "")
    found = _SCOPE.match(unit)
    return {
        "unit": unit,
        "systemd": version,
        "id": found[1] if found else "",
        "policy": facts.get("DevicePolicy", ""),
        "allow": [line for line in facts.get("DeviceAllow", "").splitlines() if line],
    }

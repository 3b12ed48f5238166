"""Engines that are defined and need not run: stopped containers, compose files that containers came from, units at rest."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nearsocket.model.parsers import compose as labels
from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import command, composefile, containers, redact, units
from nearsocket.onhost.collect.files import Context, absent, ok, read_bytes

#: Of a stopped container: what tells an engine and where it comes from.
_KEPT = ("runtime", "id", "name", "image", "state", "restart", "device_requests", "cdi_devices", "devices", "command", "compose")
_MOST_CONTAINERS, _MOST_FILES, _FILE_BYTES = 100, 32, 256 << 10
_LIMIT_S = 8
_ENGINE = re.compile(r"sglang|vllm", re.IGNORECASE)
#: What each runtime calls containers that do not run. For a word that it does not know podman tells nothing (4.3: dead).
_AT_REST = {"docker": ("created", "exited", "dead"), "podman": ("created", "exited", "stopped")}
_UNIT = ["Id", "ActiveState", "UnitFileState", "ExecStart", "FragmentPath", "Restart"]


def stopped(context: Context) -> Source:
    """Containers that exist and do not run, of the runtimes whose running ones were read."""
    found: list[dict[str, Any]] = []
    faults: list[str] = []
    asked = [runtime for runtime in ("docker", "podman") if containers.runs(context, runtime)]
    for runtime in asked:
        try:
            which = ("--all", *(f"--filter=status={state}" for state in _AT_REST[runtime]))
            part = containers.inspect(runtime, which, _MOST_CONTAINERS)
        except (FileNotFoundError, command.CommandTimeout) as error:
            part = Source(SourceStatus.ERROR, reason=str(error))
        if part.ok:
            found += [{key: one[key] for key in _KEPT} for one in part.data]
        if part.reason:
            faults.append(part.reason)
    if not asked:
        return absent("neither Docker nor podman runs here")
    if faults and not found:
        return Source(SourceStatus.ERROR, reason="; ".join(faults))
    return ok(found, "; ".join(faults) or None)


def compose(context: Context) -> Source:
    """The compose files that containers' labels name, without secrets and without values of variables, by absolute path.

    Links are followed: people link these files. Only regular files, up to 256 KiB.
    """
    texts: dict[str, str] = {}
    for path in _files([*(context.result("containers").data or []), *(context.result("containers.stopped").data or [])]):
        try:
            data = read_bytes(context.path(path), _FILE_BYTES)
        except OSError as error:
            texts[path] = f"{labels.UNREAD}{error.strerror or 'no regular file'}>"
            continue
        cut = len(data) > _FILE_BYTES
        texts[path] = (
            f"{labels.UNREAD}larger than 256 KiB>" if cut else composefile.without_secrets(data.decode("utf-8", "replace"))
        )
    return ok(texts) if texts else absent("no container names a compose file")


def _files(found: Iterable[dict[str, Any]]) -> list[str]:
    """The paths that the containers' labels name, each once."""
    named = dict.fromkeys(path for one in found for path in labels.paths(one.get("compose") or {}))
    return list(named)[:_MOST_FILES]


def units_at_rest(context: Context) -> Source:
    """Services whose command has an engine in it and that are not active, those that systemd has not loaded included."""
    if not context.path("/run/systemd/system").is_dir():
        return absent("systemd does not run here")
    asked = ["systemctl", "list-unit-files", "--type=service", "--plain", "--no-legend", "--no-pager", "--full"]
    listed = command.run(asked, _LIMIT_S)
    if listed.code:
        return Source(SourceStatus.ERROR, reason=f"systemctl list-unit-files: exit code {listed.code}: {listed.error}"[:300])
    words = [line.split() for line in listed.text.splitlines()]
    # A template runs nothing itself, an alias is another unit.
    names = [word[0] for word in words if len(word) > 1 and word[0].endswith(".service") and word[1] not in ("alias", "masked")]
    names = [name for name in names if "@." not in name]
    found = []
    for facts in units.show(names, _UNIT) if names else []:
        exec_start = facts.get("ExecStart", "")
        if facts.get("ActiveState") in ("inactive", "failed") and _ENGINE.search(exec_start):
            found.append(
                {
                    "id": facts.get("Id", ""),
                    "active": facts.get("ActiveState", ""),
                    "enabled": facts.get("UnitFileState", ""),
                    "restart": facts.get("Restart", ""),
                    "exec_start": redact.text(exec_start)[: units.CAP_CHARACTERS],
                    "fragment": facts.get("FragmentPath", ""),
                }
            )
    return ok(found)

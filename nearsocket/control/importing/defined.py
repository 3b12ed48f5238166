"""Engines that are defined and do not run, and compose files that changed since a start: told, never imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nearsocket.control.importing import parts, services
from nearsocket.control.importing.services import Service
from nearsocket.control.importing.values import Left
from nearsocket.model import holders
from nearsocket.model.host import Container, Host
from nearsocket.model.parsers import compose, take
from nearsocket.model.parsers.containers import containers
from nearsocket.model.read import titles
from nearsocket.model.verdicts.reading import entries, refused, why

_NEVER = "what does not run is not imported: start it and import again, or leave it"
#: Sources of what does not run, as people call them. A snapshot of an older nearsocket has none of them.
_SOURCES = {"containers.stopped": "stopped containers", "compose": "compose files", "units.at-rest": "units at rest"}
_Key = tuple[str, str]


def at_rest(host: Host) -> list[Left]:
    """Everything of that kind on the host, each once."""
    known, unread = services.read(host)
    left = [
        Left(host.name, said, why(host, name)) for name, said in _SOURCES.items() if name in host.sources and refused(host, name)
    ]
    left += [Left(host.name, f"compose file {path}", f"not read: {reason}") for path, reason in unread.items()]
    told: set[_Key] = set()
    for entry in entries(host, "containers.stopped"):
        for box in containers([dict(entry)]):
            key = _key(take.text_map(entry.get("compose")))
            service = known.get(key)
            if not ours(box.name) and (_is_engine(host, box) or (service is not None and service.serves)):
                left.append(_stopped(box, entry, service))
                told.add(key)
    for box in host.containers:
        key = _key(parts.compose(host, box))
        told.add(key)
        left += _against_file(host, box, known.get(key), bool(unread))
    left += [_never_made(service) for key, service in known.items() if key not in told and service.serves]
    return [*left, *(_unit(unit) for unit in entries(host, "units.at-rest") if not ours(take.word(unit.get("id"))))]


def ours(name: str) -> bool:
    """Whether a container or a unit of that name is Nearsocket's own."""
    return name.startswith("nearsocket-")


def depends(host: Host, box: Container, name: str) -> list[Left]:
    """What a running service of compose waits for when it starts."""
    others = compose.waits_for(parts.compose(host, box))
    return [Left(name, f"depends_on {', '.join(others)}", "a replica's unit waits for no other container")] if others else []


def _key(labels: Mapping[str, str]) -> _Key:
    return compose.label(labels, "project"), compose.label(labels, "service")


def _is_engine(host: Host, box: Container) -> bool:
    return titles.engine(box.command) is not None or (services.engines_image(box.image) and bool(holders.given(host, box)))


def _named(box: Container) -> str:
    return box.name or box.id[:12]


def _stopped(box: Container, entry: Mapping[str, Any], service: Service | None) -> Left:
    behind = f", {service.words}" if service else ""
    others = compose.waits_for(take.text_map(entry.get("compose")))
    state = take.word(entry.get("state")) or "not running"
    reason = f"it does not run ({state}; {_policy(take.word(entry.get('restart')), others)}); {_NEVER}"
    return Left(_named(box), f"the engine in {box.runtime} container {_named(box)}{behind}", reason)


def _never_made(service: Service) -> Left:
    policy = _policy(take.word(service.told.get("restart")), service.waits_for)
    return Left(service.name, service.words, f"no container of it is there ({policy}); {_NEVER}")


def _against_file(host: Host, box: Container, service: Service | None, blind: bool) -> list[Left]:
    """What a running engine's compose files say otherwise by now. `blind`: some file was not read."""
    if service is not None and (service.serves or _is_engine(host, box)):
        reason = services.changed(box, service)
        return [Left(_named(box), service.words, f"{reason}; what runs was read")] if reason else []
    labels = parts.compose(host, box)
    paths = compose.paths(labels)
    if service is None and paths and _is_engine(host, box) and "compose" in host.sources and not blind:
        words = f"service {compose.label(labels, 'service')}"
        return [Left(_named(box), words, f"{', '.join(paths)} has no such service any more; what runs was read")]
    return []


def _policy(restart: str, others: Sequence[str]) -> str:
    waits = f", depends on {', '.join(others)}" if others else ""
    return (f"restart policy {restart}" if restart else "no restart policy") + waits


def _unit(unit: Mapping[str, Any]) -> Left:
    name, state = take.word(unit.get("id")), take.word(unit.get("active")) or "not active"
    boot = "it starts at boot" if unit.get("enabled") == "enabled" else "it does not start at boot"
    reason = f"its command runs an engine, and it does not run ({state}; {boot}, Restart={unit.get('restart') or 'no'}); {_NEVER}"
    return Left(name, f"unit {take.word(unit.get('fragment')) or name}", reason)

"""Merges what defaults, groups, host and replica say about serving into the settings that the planner takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nearsocket.control.serve_schema import ReplicaEntry, ServingKeys, said
from nearsocket.model.errors import UsageError
from nearsocket.model.host import Engine
from nearsocket.model.probe.order import Backend
from nearsocket.model.settings import (
    Adopt,
    BeforeStart,
    GpuChoice,
    Hooks,
    Image,
    Layer,
    Limits,
    OnChange,
    OnFar,
    PathSettings,
    Relief,
    ReplicaSettings,
    Runtime,
    Settings,
    TuneSettings,
    Verify,
)

#: What has no default.
_NEEDED = ("engine", "image", "model")


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The nearer level wins; mappings are merged key by key, lists and plain values replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def settings(levels: Sequence[ServingKeys], where: str) -> Settings | None:
    """The settings of one host from its levels, the farthest first; None where none of them says anything.

    Raises UsageError where a replica lacks what it needs. `where` names the host in messages.
    """
    serve: dict[str, Any] = {}
    tune: dict[str, Any] = {}
    replicas: tuple[ReplicaEntry, ...] = ()
    reserved: int | None = None
    for level in levels:
        serve, tune = merge(serve, said(level.serve)), merge(tune, said(level.tune))
        replicas = replicas if level.replicas is None else level.replicas
        reserved = reserved if level.reserved_cores is None else level.reserved_cores
    if all(not level.model_fields_set & set(ServingKeys.model_fields) for level in levels):
        return None
    names = [replica.name for replica in replicas]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{where}: expected each replica once, found {twice!r} twice")
    made = tuple(_replica(merge(serve, said(replica)), f"{where}: replica {replica.name}") for replica in replicas)
    return Settings(made, TuneSettings(**tune), reserved)


def _replica(said_: Mapping[str, Any], where: str) -> ReplicaSettings:
    missing = next((key for key in _NEEDED if not said_.get(key)), None)
    image = said_.get("image") or {}
    if missing is None and not image.get("reference"):
        missing = "image.reference"
    if missing is not None:
        raise UsageError(
            f"{where}: expected {missing!r} in its settings, found none", "say it there, or in `serve` of host, group or defaults"
        )
    wanted, count = said_.get("gpus") or (), said_.get("gpu_count")
    if not wanted and count is None:
        raise UsageError(f"{where}: expected `gpus`, or `gpu_count` with `gpus: auto`, found neither")
    if wanted and count is not None and count != len(wanted):
        raise UsageError(f"{where}: expected {count} GPUs as gpu_count says, found {len(wanted)} in `gpus`")
    plain: dict[str, Any] = {key: said_[key] for key in ("port", "listen", "health") if said_.get(key) is not None}
    lists: dict[str, Any] = {key: tuple(said_[key]) for key in ("command", "arguments", "mounts") if said_.get(key) is not None}
    maps: dict[str, Any] = {key: dict(said_[key]) for key in ("environment", "nccl") if said_.get(key) is not None}
    binding = said_.get("binding")
    return ReplicaSettings(
        name=said_["name"],
        engine=Engine(said_["engine"]),
        image=Image(**{key: value for key, value in image.items() if value is not None}),
        gpus=GpuChoice(tuple(wanted), count or 0) if not wanted else GpuChoice(tuple(wanted)),
        model=said_["model"],
        runtime=Runtime(said_.get("runtime") or "docker"),
        secrets={name: entry["file"] for name, entry in (said_.get("secrets") or {}).items()},
        binding=None if binding is None else frozenset(Layer(word) for word in binding),
        relief=Relief(said_.get("page_cache") or "auto"),
        on_change=OnChange(said_.get("changed_nodes") or "unbound"),
        host_memory_bytes=said_.get("host_memory"),
        limits=_limits(said_.get("limits") or {}),
        adopt=Adopt(said_["adopt"]) if said_.get("adopt") else None,
        hooks=Hooks(**{key: tuple(words) for key, words in (said_.get("hooks") or {}).items() if words}),
        verify=_verify(said_.get("verify") or {}, said_.get("secrets") or {}, where),
        probe=_probe(said_.get("probe") or {}),
        **plain,
        **lists,
        **maps,
    )


#: Keys of `limits` to fields of Limits.
_LIMITS = {
    "start": "start_s",
    "stop": "stop_s",
    "restarts": "restarts",
    "restart_delay": "restart_delay_s",
    "memlock": "memlock_bytes",
    "shm": "shm_bytes",
    "cpus": "cpus",
}


def _limits(said_: Mapping[str, Any]) -> Limits:
    return Limits(**{field: said_[key] for key, field in _LIMITS.items() if said_.get(key) is not None})


def _probe(said_: Mapping[str, Any]) -> PathSettings:
    given: dict[str, Any] = {"limit_s": said_.get("limit")}
    given["before_start"] = BeforeStart(said_["before_start"]) if said_.get("before_start") else None
    given["backend"] = Backend(said_["backend"]) if said_.get("backend") else None
    return PathSettings(**{name: value for name, value in given.items() if value is not None})


def _verify(said_: Mapping[str, Any], secrets: Mapping[str, Any], where: str) -> Verify:
    """How the start is proven. Raises UsageError where the key is none of the replica's secrets: it is never in the fleet file."""
    key = said_.get("api_key")
    if key is not None and key not in secrets:
        raise UsageError(
            f"{where}: expected verify.api_key to name one of its secrets, found {key!r}", f"secrets: {{{key}: {{file: /PATH}}}}"
        )
    given: dict[str, Any] = {"timeout_s": said_.get("timeout"), "policy": OnFar(said_["policy"]) if said_.get("policy") else None}
    given.update({name: said_.get(name) for name in ("request", "api_key", "metrics")})
    return Verify(**{name: value for name, value in given.items() if value is not None})

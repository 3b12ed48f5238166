"""A generation: every file that nearsocket manages on a host, as one manifest; and what changes from one to the next. Pure.

On the server: `/etc/nearsocket/generations/N/` holds the files at their `path` and the manifest as `manifest.json`;
`/etc/nearsocket/current` links to one generation; each `Link` is a managed path that points through `current`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.generation/1"
#: The manifest's own name inside a generation; no file may have it.
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class File:
    """One file: `path` relative to the generation, `mode` as an octal text such as `0644`, hash and size of its content."""

    path: str
    sha256: str
    size_bytes: int
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class Link:
    """A managed path and what it points to, both absolute. `unit`: systemd reads it, so a change needs a daemon-reload."""

    path: str
    target: str
    unit: bool = True


@dataclass(frozen=True)
class UnitEntry:
    """A unit: `depends` are the files (by path) whose change needs its restart; `start`: it is started and enabled by a link."""

    name: str
    depends: tuple[str, ...]
    start: bool


@dataclass(frozen=True)
class ReplicaEntry:
    """What has to be known to check, roll back or take out a replica when its settings are gone."""

    name: str
    engine: str
    runtime: str
    unit: str
    slice: str
    mount: Optional[str]
    mount_point: Optional[str]
    container: str
    image: str
    model: str
    port: int
    gpus: tuple[str, ...]
    drain: tuple[str, ...]
    stop_s: int


@dataclass(frozen=True)
class Record:
    """Who made the generation, when, with which version, from which commit of the inventory. It is not part of the digest."""

    made_by: str
    made_at: str
    version: str
    commit: Optional[str] = None
    committed_at: Optional[str] = None
    dirty: bool = False


@dataclass(frozen=True)
class Manifest:
    """Everything about a generation but its files' contents. `sysctl`: key to value, whose old values the apply records.

    `reapply`: paths of files that the apply feeds to sysctl or systemd-tmpfiles when they change.
    """

    host: str
    fingerprint: str
    files: tuple[File, ...]
    links: tuple[Link, ...]
    units: tuple[UnitEntry, ...]
    replicas: tuple[ReplicaEntry, ...]
    sysctl: Mapping[str, str]
    reapply: tuple[str, ...]
    record: Record

    @property
    def digest(self) -> str:
        """`sha256:...` over all but the record: two manifests of one digest are the same generation."""
        value = self.value()
        del value["record"], value["digest"]
        return "sha256:" + hashlib.sha256(_dump(value).encode()).hexdigest()

    def value(self) -> dict[str, Any]:
        """JSON's own values, schema included, digest left empty."""
        return {"schema": SCHEMA, "digest": "", **dataclasses.asdict(self), "sysctl": dict(self.sysctl)}

    def to_json(self) -> str:
        """Deterministic JSON text, one line feed at its end."""
        return _dump({**self.value(), "digest": self.digest})


@dataclass(frozen=True)
class Generation:
    """A manifest and the contents of its files, by path."""

    manifest: Manifest
    contents: Mapping[str, bytes]


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def file(path: str, content: bytes, mode: str = "0644") -> File:
    """The entry for that content. Raises NearsocketError for a path that leaves the generation."""
    parts = path.split("/")
    if path.startswith("/") or not all(parts) or {".", ".."} & set(parts) or path == MANIFEST or "\0" in path:
        raise NearsocketError(f"expected a path inside the generation, found {one_line(path, 80)!r}")
    return File(path, hashlib.sha256(content).hexdigest(), len(content), mode)


def from_json(text: str) -> Manifest:
    """The manifest that `to_json` wrote. Raises NearsocketError, one line, for another schema or shape or a wrong digest."""
    try:
        value: dict[str, Any] = json.loads(text)
        schema, digest = value.pop("schema"), value.pop("digest")
        if schema != SCHEMA:
            raise NearsocketError(f"expected {SCHEMA}, found {one_line(str(schema), 60)}", "use the nearsocket that wrote it")
        manifest = Manifest(
            files=tuple(File(**entry) for entry in value.pop("files")),
            links=tuple(Link(**entry) for entry in value.pop("links")),
            units=tuple(UnitEntry(**{**entry, "depends": tuple(entry["depends"])}) for entry in value.pop("units")),
            replicas=tuple(
                ReplicaEntry(**{**entry, "gpus": tuple(entry["gpus"]), "drain": tuple(entry["drain"])})
                for entry in value.pop("replicas")
            ),
            reapply=tuple(value.pop("reapply")),
            record=Record(**value.pop("record")),
            **value,
        )
        for entry in manifest.files:
            file(entry.path, b"")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected a manifest, found: {one_line(str(error), 100)}") from None
    if manifest.digest != digest:
        wanted = one_line(str(digest), 80)
        raise NearsocketError(f"expected a manifest of digest {wanted}, found {manifest.digest}: it was changed by hand")
    return manifest

"""A timer's look at every running replica: is each as it was when it was last judged? Only a change costs a judgement.

It never acts: pinned pages do not move, so a policy has its say at the start. Few imports, no command, no lock on an engine's
memory that grows with it: the common case takes a small multiple of an interpreter's start (tests/onhost/verify).
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Optional

from nearsocket.model import places
from nearsocket.onhost.apply import disk
from nearsocket.onhost.tell import NOTICE, WARNING, tell
from nearsocket.onhost.verify import basis, cgroups, publish

#: A start that was not judged after this time beyond its own limits has lost its proof: then the watch gives one.
_PATIENCE_S = 300
#: One full look, when something changed.
_LOOK_S = 60.0


def main(place: str = "/") -> int:
    """The whole program: 0, also where a replica is not well; the report says that. `place` is `/` outside tests."""
    root = Path(place)
    try:
        manifest: Any = json.loads(disk.read(root / places.CURRENT.lstrip("/") / "manifest.json"))
        replicas = [(str(entry["name"]), str(entry["slice"]), str(entry["unit"])) for entry in manifest["replicas"]]
    except FileNotFoundError:
        tell("nothing is managed here")
        return 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        tell(f"expected the manifest of the generation in force, found: {error}", WARNING)
        return 0
    for name, slice_name, unit in replicas:
        try:
            _one(root, name, slice_name, unit)
        except OSError as error:
            tell(f"{name}: not watched: {error.strerror or error}", WARNING)
    return 0


def _one(root: Path, name: str, slice_name: str, unit: str) -> None:
    last = _last(root, name)
    pids = cgroups.pids(root, slice_name, unit)
    if not pids:
        if last is not None:
            publish.remove_metrics(root, str(last.get("metrics") or ""), name)
        return
    folder = _folder(root, name)
    start = folder.rpartition("/")[2] if folder else ""
    if last is None or last.get("start") != start:
        if _starting(root, name, start):
            return
        _judge(root, name, "it was not judged at its start")
        return
    changed = basis.same(last.get("basis") or {}, pids, str(root / folder.lstrip("/")) if folder else "")
    if changed is not None:
        _judge(root, name, changed)
        return
    last["confirmed_at"] = publish.now()
    publish.write(root, name, json.dumps(last, indent=1, ensure_ascii=True) + "\n")
    _metrics(root, name, last)


def _metrics(root: Path, name: str, value: dict[str, Any]) -> None:
    try:
        publish.write_metrics(root, value)
    except (OSError, KeyError, TypeError, ValueError) as error:
        tell(f"{name}: no metrics: {error}", WARNING)


def _last(root: Path, name: str) -> Optional[dict[str, Any]]:
    """The last verdict's value; None where there is none that can be read."""
    try:
        value = json.loads(disk.read(root / places.verdict_file(name).lstrip("/")))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and value.get("schema") == places.SCHEMA else None


def _folder(root: Path, name: str) -> Optional[str]:
    try:
        text = disk.read(root / places.start_env(name).lstrip("/"), 1 << 16).decode("utf-8", "replace")
    except OSError:
        return None
    return places.start_folder(text, name) or None


def _starting(root: Path, name: str, start: str) -> bool:
    """Whether the unit's own proof may still come."""
    try:
        record: Any = json.loads(disk.read(root / places.CURRENT.lstrip("/") / "replicas" / f"{name}.json"))
        limit_s = int(record["start_s"]) + int(record["verify"]["timeout_s"]) + _PATIENCE_S
    except (OSError, ValueError, KeyError, TypeError):
        return False
    stamp = start[:16]
    moment = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[9:11]}:{stamp[11:13]}:{stamp[13:15]}"
    return time.time() < publish.seconds(moment) + limit_s


def _judge(root: Path, name: str, why: str) -> None:
    """A full judgement, in a child, by the modules that a start uses: loaded only now."""
    from nearsocket.onhost.verify import again, supervise

    tell(f"{name}: judged again: {why}", NOTICE)
    supervise.within(_LOOK_S + 15, lambda voice: again.judge(root, name, _LOOK_S, voice), f"the judgement of {name}")

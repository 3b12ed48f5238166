"""A timer's look at every running replica: is each as it was when it was last judged? Only a change costs a judgement.

It never acts: pinned pages do not move, so a policy has its say at the start. Few imports, no command, no lock on an engine's
memory that grows with it: the common case takes a small multiple of an interpreter's start (tests/onhost/verify).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

from nearsocket.model import places
from nearsocket.onhost.apply import disk
from nearsocket.onhost.tell import NOTICE, WARNING, tell
from nearsocket.onhost.verify import basis, cgroups, guarded, publish, supervise
from nearsocket.onhost.verify.supervise import Voice

#: A start that was not judged after this time beyond its own limits has lost its proof: then the watch gives one.
_PATIENCE_S = 300
#: One full look, when something changed; what a replica's child may take beyond it. Together under the unit's time for each
#: replica (control/start_record.py).
LOOK_S, SPARE_S = 60.0, 15.0
#: The timer's pace.
_EVERY_S = 900

Replica = tuple[str, str, str]


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
    for name, slice_name, unit in _turned(replicas):
        look = partial(_one, root, name, slice_name, unit)
        try:
            supervise.within(LOOK_S + SPARE_S, look, f"the look at {name}")
        except OSError as error:
            tell(f"{name}: not watched: {error.strerror or error}", WARNING)
    return 0


def _turned(replicas: Sequence[Replica]) -> Sequence[Replica]:
    """Each time another one is the first, so that one that takes all the time does so to each of the others in turn."""
    first = int(time.time() // _EVERY_S) % len(replicas) if replicas else 0
    return [*replicas[first:], *replicas[:first]]


def _one(root: Path, name: str, slice_name: str, unit: str, voice: Voice) -> None:
    """In a child of its own: a process that hangs in /proc keeps nobody else from being looked at."""
    try:
        _look(root, name, slice_name, unit, voice)
    except OSError as error:
        voice.tell(f"{name}: not watched: {error.strerror or error}", WARNING)


def _look(root: Path, name: str, slice_name: str, unit: str, voice: Voice) -> None:
    last = publish.last(root, name)
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
        _judge(root, name, "it was not judged at its start", voice)
        return
    changed = basis.same(last.get("basis") or {}, pids, str(root / folder.lstrip("/")) if folder else "")
    if changed is None and last.get("word") == "unknown":
        changed = "where its buffers lie was not known"  # what kept it from being known may be over
    if changed is not None:
        _judge(root, name, changed, voice)
        return
    _confirm(root, name, last, voice)


def _confirm(root: Path, name: str, last: dict[str, Any], voice: Voice) -> None:
    """The verdict holds, unless a start's proof has made another one meanwhile."""
    with guarded.verdicts(root) as held:
        if not held or publish.last(root, name) != last:
            return
        last["confirmed_at"] = publish.now()
        publish.write(root, name, json.dumps(last, indent=1, ensure_ascii=True) + "\n")
        try:
            publish.write_metrics(root, last)
        except (OSError, KeyError, TypeError, ValueError) as error:
            voice.tell(f"{name}: no metrics: {error}", WARNING)


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


def _judge(root: Path, name: str, why: str, voice: Voice) -> None:
    """A full judgement, by the modules that a start uses: loaded only now."""
    from nearsocket.onhost.verify import again

    voice.tell(f"{name}: judged again: {why}", NOTICE)
    again.judge(root, name, LOOK_S, voice)

"""What a far start leads to on this host: the other replicas are asked, what was done before is remembered, one at a time."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

from nearsocket.model import consequence, places, verdict
from nearsocket.model.consequence import History
from nearsocket.model.errors import NearsocketError
from nearsocket.model.settings import OnFar
from nearsocket.model.start import Start
from nearsocket.model.verdict import Action, Verdict, with_action
from nearsocket.onhost.apply import disk, freeze
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.startfile import load_start
from nearsocket.onhost.verify import guarded
from nearsocket.onhost.verify.gather import start_folder
from nearsocket.onhost.waithealth import answer

_ASK_S = 5.0


def decided(
    tree: Tree,
    start: Start,
    found: Verdict,
    publish: Callable[[Verdict], None],
    now: Optional[float] = None,
    ask: Callable[[str, float], str] = answer,
) -> Verdict:
    """The verdict with what its policy does, which `publish` has written by then.

    Under a lock, verdict included: two far starts at one boot must not each take the other for the one that serves. Where the
    lock is not had in time, or the memory cannot be written, nothing is done to the engine.
    """
    with guarded.verdicts(tree.root) as held:
        made = found
        if held:
            try:
                made = _decide(tree, start, found, time.time() if now is None else now, ask)
            except OSError as error:
                made = with_action(found, Action.NONE, f"kept: its restarts could not be remembered ({error.strerror or error})")
        elif found.word is verdict.Word.FAR:
            made = with_action(found, Action.NONE, "kept: another proof is being decided on")
        publish(made)
        return made


def _decide(tree: Tree, start: Start, found: Verdict, now: float, ask: Callable[[str, float], str]) -> Verdict:
    frozen = freeze.in_force(tree) if found.word is verdict.Word.FAR and start.verify.policy is not OnFar.WARN else None
    if frozen:
        return with_action(found, Action.NONE, f"kept: {frozen}")
    path = tree.at(places.history_file(start.replica))
    before = _history(path)
    asks = found.word is verdict.Word.FAR and start.verify.policy.value == "restart"
    serve = asks and any(serves(tree, name, ask) for name in others(tree, start.replica))
    action, reason, after = consequence.decide(
        start.verify.policy, found.word, before, rendered(tree, start), serve, now, start.window_s
    )
    if after != before:
        disk.make_folders(path.parent)
        disk.replace(path, after.to_json().encode("ascii"), 0o644)
    return with_action(found, action, reason)


def _history(path: Path) -> History:
    try:
        return consequence.from_json(disk.read(path, 1 << 16).decode("ascii", "replace"))
    except FileNotFoundError:
        return History()


def rendered(tree: Tree, start: Start) -> str:
    """A name for the files that this replica is started by: other files, another try."""
    parts = [f"systemd/{start.unit}", f"env/{start.replica}.env", f"replicas/{start.replica}.json"]
    whole = hashlib.sha256()
    for part in parts:
        try:
            whole.update(disk.read(tree.current / part))
        except OSError:
            whole.update(b"absent")
    return whole.hexdigest()[:16]


def others(tree: Tree, replica: str) -> list[str]:
    """The other replicas of the generation in force."""
    try:
        value: Any = json.loads(disk.read(tree.current / "manifest.json"))
        return sorted(str(entry["name"]) for entry in value["replicas"] if entry["name"] != replica)
    except (OSError, ValueError, KeyError, TypeError):
        return []


def serves(tree: Tree, replica: str, ask: Callable[[str, float], str]) -> bool:
    """Whether that replica serves: its present start was judged and left alone, and its health address answers."""
    try:
        start = load_start(tree, replica)
        last = verdict.from_json(disk.read(tree.at(places.verdict_file(replica))).decode("ascii", "replace"))
    except (OSError, NearsocketError):
        return False
    folder = start_folder(tree, replica)
    judged = folder is not None and Path(folder).name == last.start
    return judged and last.action is Action.NONE and ask(start.health, _ASK_S) == "200"

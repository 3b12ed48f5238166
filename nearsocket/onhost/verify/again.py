"""A replica judged anew while it runs: what the watch does when something changed. It says and writes, and acts never."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from nearsocket.model import verdict
from nearsocket.model.errors import NearsocketError
from nearsocket.model.places import verdict_file
from nearsocket.model.verdict import Trigger, Word
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.fingerprint import load_start
from nearsocket.onhost.tell import ERROR, NOTICE, WARNING
from nearsocket.onhost.verify import gather, publish
from nearsocket.onhost.verify.supervise import Voice


def judge(root: Path, name: str, limit_s: float, voice: Voice) -> int:
    """Judge, publish, and say what is different from the last verdict."""
    tree = Tree(root)
    found = gather.look(tree, load_start(tree, name), Trigger.WATCH, limit_s)
    level = ERROR if found.word is Word.FAR or found.ranks_found < found.ranks_planned else NOTICE
    was = _before(tree, name)
    changed = "" if was is None else f" (was: {was.line})" if was.line != found.line else " (as before)"
    voice.tell(f"{name}: {found.line}{changed}", WARNING if found.word is Word.UNKNOWN else level)
    publish.write(root, name, found.to_json())
    publish.write_metrics(root, found.value())
    return 0


def _before(tree: Tree, name: str) -> Optional[verdict.Verdict]:
    try:
        return verdict.from_json(disk.read(tree.at(verdict_file(name))).decode("ascii", "replace"))
    except (OSError, NearsocketError):
        return None

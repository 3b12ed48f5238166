"""A replica judged anew while it runs: what the watch does when something changed. It says and writes, and acts never."""

from __future__ import annotations

from pathlib import Path

from nearsocket.model import verdict
from nearsocket.model.verdict import Trigger, Word, with_action
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.startfile import load_start
from nearsocket.onhost.tell import ERROR, NOTICE, WARNING
from nearsocket.onhost.verify import gather, guarded, publish
from nearsocket.onhost.verify.supervise import Voice


def judge(root: Path, name: str, limit_s: float, voice: Voice) -> None:
    """Judge, publish, and say what is different from the last verdict. Raises OSError, NearsocketError."""
    tree = Tree(root)
    seen = publish.last(root, name)
    found = gather.look(tree, load_start(tree, name), Trigger.WATCH, limit_s)
    with guarded.verdicts(root) as held:
        # The look took its time: a start since then, or its proof, has the word.
        if not held or Path(gather.start_folder(tree, name) or "").name != found.start or publish.last(root, name) != seen:
            voice.tell(f"{name}: a start or its proof came in between; the look is not written", NOTICE)
            return
        was = verdict.readable(seen)
        if was is not None and was.start == found.start:
            found = with_action(found, was.action, was.reason)  # what its policy did about this start stays done
        level = ERROR if found.word is Word.FAR or found.ranks_found < found.ranks_planned else NOTICE
        changed = "" if was is None else f" (was: {was.line})" if was.line != found.line else " (as before)"
        voice.tell(f"{name}: {found.line}{changed}", WARNING if found.word is Word.UNKNOWN else level)
        publish.write(root, name, found.to_json())
        publish.write_metrics(root, found.value())

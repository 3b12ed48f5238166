"""How far a rollout is on this host, on its disk: written by its apply, and by a short exec once the proof is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout import progress
from nearsocket.model.rollout.progress import LARGEST_BYTES, Phase, Progress
from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.model.text import in_words, one_line
from nearsocket.onhost import options
from nearsocket.onhost.apply import disk, lock
from nearsocket.onhost.apply.tree import Tree

if TYPE_CHECKING:  # a client's sign of life is written every 30 s, and needs none of what an order brings
    from nearsocket.model.order import Order
    from nearsocket.model.outcome import Outcome


def write(tree: Tree, at: Optional[Progress]) -> None:
    """It is on the disk when this returns; nothing for None. Raises OSError."""
    if at is not None:
        disk.make_folders(tree.rollout.parent)
        disk.replace(tree.rollout, at.to_json().encode("ascii"), 0o600)


def read(tree: Tree) -> Optional[Progress]:
    """What the last rollout left; None where there was none. Raises OSError, NearsocketError for a file that is none."""
    try:
        return progress.from_json(disk.read(tree.rollout, LARGEST_BYTES).decode("utf-8", "replace"))
    except FileNotFoundError:
        return None


def source(tree: Tree) -> Source:
    """The same for a survey."""
    try:
        found = read(tree)
    except (OSError, NearsocketError) as error:
        return Source(SourceStatus.ERROR, reason=one_line(f"{progress.FILE}: {in_words(error)}", 300))
    return Source(SourceStatus.OK, data=found.value()) if found else Source(SourceStatus.ABSENT, reason="no rollout was here")


def refuse_taken(tree: Tree, order: Order) -> None:
    """Raises NearsocketError where another rollout, or another client of this one, has the host by now; OSError."""
    if order.rollout is not None:
        order.rollout.refuse_taken(read(tree))


def done(order: Order) -> Phase:
    """How far the host is once that order is carried out: a way back is at its end then, else the proof is still to come."""
    return Phase.APPLIED if order.generation is not None else Phase.ROLLED_BACK


def conclude(tree: Tree, order: Order, outcome: Outcome) -> Outcome:
    """Write down what the apply came to. Where that fails it is told, for the next client would do it again."""
    if order.rollout is None:
        return outcome
    reached = (
        order.rollout.at(Phase.FAILED, outcome.error) if outcome.error else order.rollout.at(done(order), order.rollout.reason)
    )
    try:
        write(tree, reached)
    except OSError as error:
        note = f"expected to write {progress.FILE}, found: {in_words(error)}"
        return dataclasses.replace(outcome, notes=(*outcome.notes, one_line(note, 300)))
    return outcome


def main(words: Sequence[str], given: bytes) -> None:
    """The action `rollout-mark`: write the progress on standard input, once no apply is at work.

    It is written over its own client's record and over the one that this client saw before it began. Raises NearsocketError where
    the host is another's, where the text is none, and where an apply goes on too long; OSError.
    """
    said = options.parse(words, ("lock-wait", "root"))
    tree = Tree(Path(said.get("root", "/")))
    if len(given) > LARGEST_BYTES:
        raise NearsocketError(f"expected at most {LARGEST_BYTES} bytes of {progress.SCHEMA}, found more")
    at = progress.from_json(given.decode("utf-8", "replace"))
    wait_s = options.seconds(said.get("lock-wait", "60"), 0, 86400)
    with lock.exclusive(tree, f"rollout {one_line(at.id, 40)} by {one_line(at.by, 80)}", wait_s):
        at.refuse_taken(read(tree))
        write(tree, at)

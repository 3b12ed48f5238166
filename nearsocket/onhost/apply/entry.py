"""The apply as the program runs it: its own bytes are what gets installed."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from nearsocket.model import order
from nearsocket.model.errors import NearsocketError
from nearsocket.model.host import Host
from nearsocket.model.outcome import Outcome
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from nearsocket.model.text import in_words, one_line
from nearsocket.onhost import relief
from nearsocket.onhost.apply import guard, lock, progress
from nearsocket.onhost.apply.pathprobe import Ways
from nearsocket.onhost.apply.run import apply, installed
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.probe import entry as probe_entry
from nearsocket.onhost.probe import own

#: The sources that a survey adds to a snapshot.
INSTALLED, ROLLOUT = "installed", "rollout"


def own_program() -> bytes:
    """The zip that runs. Raises OSError."""
    with Path(sys.argv[0]).open("rb") as stream:
        return stream.read()


def apply_order(text: bytes, holder: str, root: str) -> Outcome:
    """Carry out the order in that text. Raises NearsocketError for a text that is none."""
    given = order.from_json(text.decode("utf-8", "replace"))
    tree = Tree(Path(root))

    def look() -> Host:
        return guard.look(root)

    return apply(given, own_program(), tree, Systemctl(), one_line(holder, 120), look, ways(tree, look))


def ways(tree: Tree, look: guard.Look) -> Ways:
    """How this program proves a path. It goes on to its end although whoever asked is gone, as an apply does."""
    return Ways(
        look,
        lambda replica: relief.main([f"--replica={replica}"], tree),
        lambda start: probe_entry.once(start, own.program(), True, lambda: False),
    )


def idle(root: str, wait_s: float) -> None:
    """Returns once no apply is at work on this host. Raises NearsocketError, which names who is, where `wait_s` is over."""
    with lock.shared(Tree(Path(root)), wait_s):
        pass


def with_installed(snapshot: Snapshot, root: str) -> Snapshot:
    """The snapshot with the source `installed`: what is in force, and whether the apply of the same would find nothing to do.

    And with `rollout`: how far the last rollout is here; absent where there was none.
    """
    tree = Tree(Path(root))
    try:
        found = installed(own_program(), tree, Systemctl())
        source = Source(SourceStatus.OK, data=dataclasses.asdict(found))
    except (OSError, CommandTimeout, NearsocketError) as error:
        source = Source(SourceStatus.ERROR, reason=one_line(in_words(error), 300))
    return dataclasses.replace(snapshot, sources={**snapshot.sources, INSTALLED: source, ROLLOUT: progress.source(tree)})

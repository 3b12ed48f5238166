"""A replica's own drain and undrain: `hook --replica NAME --hook drain|undrain --timeout SECONDS -- PROGRAM ARGUMENT...`.

A hook's fault never ends an engine or a stop, so its unit goes on; the fault is kept beside the replica's start, where the apply
that asked for the start sees it. It has a limit of its own: systemd's is for a whole start, and what follows a stop's command that
ran into it is skipped.

Exit 0: the hook ended with 0; 1: it did not, and why is in the journal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Optional

from nearsocket.model import places
from nearsocket.model.errors import EXIT_WARNINGS, UsageError
from nearsocket.model.generation import ReplicaEntry
from nearsocket.model.text import one_line
from nearsocket.onhost import options
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect import command
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.tell import WARNING, tell

#: What a hook is asked for.
HOOKS = ("drain", "undrain")
_LARGEST_BYTES = 64 << 10


def main(words: Sequence[str], tree: Tree = Tree()) -> int:  # noqa: B008 - a frozen value
    """The whole program; its exit code."""
    at = words.index("--") if "--" in words else len(words)
    given, argv = options.parse(words[:at], ("replica", "hook", "timeout")), words[at + 1 :]
    replica, hook = given.get("replica"), given.get("hook")
    if not replica or hook not in HOOKS or not argv:
        raise UsageError("expected --replica NAME --hook drain|undrain --timeout SECONDS -- PROGRAM ARGUMENT...")
    problem = _run(argv, options.seconds(given.get("timeout", "60"), 1, 86400))
    file = tree.at(places.hook_failed(replica, hook))
    try:
        if problem is None:
            disk.remove(file)
        else:
            disk.make_folders(file.parent)
            disk.replace(file, problem.encode("utf-8", "replace"), 0o644)
    except OSError as error:
        tell(f"the {hook} hook's end could not be kept: {error}", WARNING)
    if problem is None:
        return 0
    tell(f"expected the {hook} hook to do its work, found: {problem}", WARNING)
    return EXIT_WARNINGS


def _run(argv: Sequence[str], limit_s: float) -> Optional[str]:
    """What is wrong with the hook's end; None where all is well."""
    try:
        output = command.run(argv, limit_s)
    except (OSError, CommandTimeout) as error:
        return one_line(str(error), 300)
    sys.stderr.write(output.text)
    return one_line(f"exit code {output.code}" + (f": {output.error}" if output.error else ""), 300) if output.code else None


def forget(tree: Tree, replicas: Iterable[ReplicaEntry]) -> None:
    """From here on what is kept is of the hooks that run now. Raises OSError."""
    for replica in replicas:
        for hook in HOOKS:
            disk.remove(tree.at(places.hook_failed(replica.name, hook)))


def failed(tree: Tree, replica: str) -> Optional[str]:
    """Which hook of that replica failed and why; None where none did."""
    for hook in HOOKS:
        try:
            said = disk.read(tree.at(places.hook_failed(replica, hook)), _LARGEST_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            said = str(error)
        return f"replica {replica}: its {hook} hook failed: {one_line(said, 300)}"
    return None

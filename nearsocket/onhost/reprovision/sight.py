"""Whether replicas' containers get their GPUs behind the new driver: asked of a short container for each, in the probes' slice.

It holds nothing on a GPU, has no network, ends in its time, and is removed whatever happens. A boot goes on behind sshd
(nvidia-cdi-refresh, fabric manager), so what is missing is looked for again for a while.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import start as starts
from nearsocket.model.driver import sight
from nearsocket.model.driver.sight import Sight
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import ReplicaEntry
from nearsocket.model.host import Host
from nearsocket.model.settings import Runtime
from nearsocket.model.start import Start
from nearsocket.model.text import complaint, in_words, one_line
from nearsocket.onhost import startfile
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.reprovision import facts
from nearsocket.onhost.reprovision.apt import JOINED

_RUN_S, _REMOVE_S = 120.0, 60.0
_NO_ANSWER = f"no answer in {_RUN_S:g} s"
#: What all replicas may take together.
_ALL_S = 600.0


@dataclass(frozen=True)
class Seen:
    """One replica: that its container sees its GPUs (`good`), that it sees fewer or is refused them (`fault`, with what to do in
    `hint`), or why that could not be asked (`unknown`). `slow`: a container with its GPUs did not end in its time."""

    replica: str
    good: Optional[Sight] = None
    fault: Optional[str] = None
    hint: Optional[str] = None
    unknown: Optional[str] = None
    slow: bool = False


@dataclass(frozen=True)
class Eyes:
    """The host's commands, and time."""

    tree: Tree
    systemctl: Systemctl
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def look(self, host: Host, replicas: Sequence[ReplicaEntry]) -> tuple[Seen, ...]:
        """Every one of them, in order. `host`: GPUs as NVML names them now; asked of NVML anew where a look is taken again."""
        began = self.clock()
        found = []
        for replica in replicas:
            if self.clock() - began > _ALL_S:
                found.append(Seen(replica.name, unknown=f"looking at the others took {_ALL_S:g} s"))
                continue
            found.append(self._settled(host, replica, began + facts.SETTLE_S))
        return tuple(found)

    def _settled(self, host: Host, replica: ReplicaEntry, end: float) -> Seen:
        """The first container behind a boot may be slow (a cold image): it has one more try, whatever the time."""
        seen = self._one(host, replica)
        again = seen.slow
        while seen.fault is not None and (again or self.clock() + facts.PAUSE_S < end):
            self.pause(facts.PAUSE_S)
            seen, again = self._one(facts.host_now(self.tree, facts.GPUS), replica), False
        return seen

    def _one(self, host: Host, replica: ReplicaEntry) -> Seen:
        try:
            entry = startfile.load_start(self.tree, replica.name)
        except NearsocketError as error:
            return Seen(replica.name, unknown=f"its start record: {error.message}")
        except OSError as error:
            return Seen(replica.name, unknown=f"its start record: {in_words(error)}")
        try:
            names = starts.named(entry, starts.called(entry, host.gpus))
        except NearsocketError as error:
            return Seen(replica.name, fault=error.message, hint=error.hint)
        if entry.runtime is Runtime.DOCKER:  # a boot that is still going on may not have come to it; the unit requires it too
            with contextlib.suppress(OSError, CommandTimeout):
                self.systemctl.start(["docker.service"], _RUN_S)
        try:
            answer, why = self._asked(entry, names)
        except CommandTimeout:
            return dataclasses.replace(self._refused(entry, _NO_ANSWER), slow=True)
        if answer is None:
            return self._refused(entry, why)
        if answer.seen < len(entry.gpus):
            text = f"expected the container of replica {entry.replica} to see {len(entry.gpus)} GPUs, found {answer}"
            return Seen(entry.replica, fault=text, hint=sight.remedy(entry))
        return Seen(entry.replica, good=answer)

    def _refused(self, entry: Start, why: str) -> Seen:
        """Whether it is the request for GPUs that fails: the same container without it tells."""
        try:
            plain, other = self._asked(entry, ())
        except CommandTimeout:
            plain, other = None, _NO_ANSWER
        if plain is None:
            return Seen(entry.replica, unknown=other)
        text = f"expected the container of replica {entry.replica} to start with its {len(entry.gpus)} GPUs, found: {why}"
        return Seen(entry.replica, fault=text, hint=sight.remedy(entry))

    def _asked(self, entry: Start, names: Sequence[str]) -> tuple[Optional[Sight], str]:
        """One container from its start to its end; what it sees, or None and why it did not tell. Raises CommandTimeout."""
        words = sight.argv(entry, names, str(self.tree.current / "env" / f"{entry.replica}.env"))
        self._remove(entry)
        try:
            output = self.systemctl.run([*JOINED, *words], _RUN_S)
        except OSError as error:
            return None, in_words(error)
        finally:
            self._remove(entry)
        return sight.parse(output.text), complaint(output.text, output.code)

    def _remove(self, entry: Start) -> None:
        words = [f"/usr/bin/{entry.runtime.value}", "rm", "--force", "--volumes", sight.container(entry.replica)]
        with contextlib.suppress(OSError, CommandTimeout):
            self.systemctl.run(words, _REMOVE_S)


def told(found: Sequence[Seen], strict: Sequence[str]) -> tuple[str, ...]:
    """Notes. Raises NearsocketError where a replica of `strict` is known not to get its GPUs; for others that is a note."""
    for one in found:
        if one.fault is not None and one.replica in strict:
            raise NearsocketError(one.fault, one.hint)
    good = [f"{one.replica} {one.good}" for one in found if one.good is not None]
    notes = [one_line(f"containers see their GPUs: {', '.join(good)}", 400)] if good else []
    notes += [one_line(f"replica {one.replica}: {one.fault} ({one.hint})", 400) for one in found if one.fault is not None]
    notes += [
        one_line(f"replica {one.replica}: whether its container sees its GPUs is not known: {one.unknown}", 300)
        for one in found
        if one.unknown is not None
    ]
    return tuple(notes)

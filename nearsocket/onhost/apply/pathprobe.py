"""The probe before a start: with the replica's unit down and its near nodes relieved, its GPUs add up once in its own image.

Proven bad (a wrong sum, a rank that dies or hangs, far buffers) keeps the unit down. Whatever only stands in the way of knowing is
a note, and the start goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.host import Host
from nearsocket.model.probe import baseline, guard, pathjudge
from nearsocket.model.probe.baseline import Baseline
from nearsocket.model.probe.path import DueProbe, PathProbe, Probed, Result
from nearsocket.model.probe.starts import Started, StartOrder
from nearsocket.model.text import fault
from nearsocket.onhost.apply import proven
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.apply.work import Work
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.probe import baselines

_HOLD_S = 120.0


@dataclass(frozen=True)
class Ways:
    """How a probe reaches the host: `look` reads it, `relieve` takes page cache off a replica's near nodes, `run` starts ranks."""

    look: Callable[[], Host]
    relieve: Callable[[str], object]
    run: Callable[[StartOrder], Started]


@dataclass
class Prober:
    """One apply's probes, and what they came to so far."""

    tree: Tree
    systemctl: Systemctl
    ways: Ways
    found: list[Probed] = field(default_factory=list)

    def refusal(self, due: Optional[DueProbe]) -> Optional[str]:
        """Prove that replica's path (None: nothing is due), its unit being down; why it must not start, or None. Raises OSError."""
        if due is None:
            return None
        proven.sweep(self.tree, self.systemctl, due.replica.name)
        proven.begin(self.tree, due)
        try:
            made = self._prove(due)
        finally:
            self._release(due)
        self.found.append(made)
        if made.result is Result.PROVEN:
            proven.keep(self.tree, due.probe)
        if made.result is not Result.BROKEN:
            return None
        return f"the probe before the start of replica {made.replica} failed: {made.summary}"

    def _prove(self, due: DueProbe) -> Probed:
        probe, name = due.probe, due.replica.name
        try:
            problem = self._hold(due)
            if problem is not None:
                return Probed(name, Result.UNKNOWN, f"it could not run: {problem}")
            self.ways.relieve(name)
            held = guard.holder(self.ways.look(), probe.gpus)
            if held is not None:
                return Probed(name, Result.UNKNOWN, f"it did not run: {held}")
            started = self.ways.run(probe.start)
            return pathjudge.judge(probe, started, self._known(probe, started))
        except Exception as error:  # whatever is wrong with the probe itself must not keep an engine down
            return Probed(name, Result.UNKNOWN, f"it could not run: {_said(error)}")

    def _hold(self, due: DueProbe) -> Optional[str]:
        """Have the replica's /dev/shm mounted: its own unit, which is down, would."""
        mount = due.replica.mount
        if not mount:
            return None
        needs = [f"--property=Requires={mount}", f"--property=After={mount}", "--property=RemainAfterExit=yes"]
        words = ["systemd-run", f"--unit={proven.holder(due.replica.name)}", "--collect", "--service-type=oneshot", *needs]
        output = self.systemctl.run([*words, "--", "/bin/true"], _HOLD_S)
        return f"{mount}: {output.error or f'exit code {output.code}'}" if output.code else None

    def _release(self, due: DueProbe) -> None:
        proven.sweep(self.tree, self.systemctl, due.replica.name)
        if due.replica.mount:
            self.systemctl.stop([due.replica.mount])

    def _known(self, probe: PathProbe, started: Started) -> Optional[Baseline]:
        key = pathjudge.key(probe, started)
        text = baselines.load(self.tree, key.digest) if key else None
        return baseline.from_json(text.decode("utf-8", "replace")) if text else None


def _said(error: Exception) -> str:
    if isinstance(error, NearsocketError):
        return error.message
    return str(error) if isinstance(error, (OSError, CommandTimeout)) else fault(error)


def of(todo: Work, unit: str) -> Optional[DueProbe]:
    """What has to be proven before that unit starts."""
    return next((one for one in todo.probes if one.replica.unit == unit), None)


def notes(found: list[Probed]) -> tuple[str, ...]:
    """What to look at although the replicas start."""
    told = [f"replica {one.replica}: the probe before its start: {one.summary}" for one in found if one.result is Result.UNKNOWN]
    return (*told, *(f"replica {one.replica}: {note}" for one in found for note in one.notes))

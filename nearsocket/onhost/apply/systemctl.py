"""systemd, by its command: what units do, reload, start, stop. `enable` and `disable` are not used: links do that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.text import one_line
from nearsocket.onhost.collect import command
from nearsocket.onhost.collect.command import CommandTimeout, Output

_PROPERTIES = "Id,LoadState,ActiveState,SubState,Result,InvocationID,FragmentPath,DropInPaths,NeedDaemonReload"
_ASK_S = 60.0
_RELOAD_S = 90.0
#: A unit's own limits end its start and stop long before; this only ends a systemd that does not answer.
_JOB_S = 6 * 3600.0

Runner = Callable[[Sequence[str], float], Output]


@dataclass(frozen=True)
class UnitState:
    """A unit as systemd has it. `load`: `loaded`, `not-found`, `masked`, ...; `active`: `active`, `activating`, `failed`, ..."""

    name: str
    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    result: str = ""
    invocation: str = ""
    fragment: str = ""
    drop_ins: tuple[str, ...] = ()
    stale: bool = False

    def __str__(self) -> str:
        """`active (running)`."""
        return f"{self.active} ({self.sub})"


@dataclass(frozen=True)
class Systemctl:
    """The calls. `run` is the runner of commands; tests give another."""

    run: Runner = command.run

    def show(self, names: Sequence[str]) -> Mapping[str, UnitState]:
        """Each unit's state. Raises OSError, CommandTimeout where systemd does not answer."""
        if not names:
            return {}
        output = self.run(["systemctl", "show", f"--property={_PROPERTIES}", "--", *names], _ASK_S)
        if output.code:
            raise OSError(f"systemctl show: exit code {output.code}: {output.error}")
        states = {}
        for name, block in zip(names, output.text.strip("\n").split("\n\n")):
            said = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
            states[name] = UnitState(
                name,
                said.get("LoadState", "not-found"),
                said.get("ActiveState", "inactive"),
                said.get("SubState", "dead"),
                said.get("Result", ""),
                said.get("InvocationID", ""),
                said.get("FragmentPath", ""),
                tuple(said.get("DropInPaths", "").split()),
                said.get("NeedDaemonReload") == "yes",
            )
        return states

    def reload(self) -> None:
        """systemd reads its units anew. Raises OSError, CommandTimeout."""
        problem = self._call(["daemon-reload"], _RELOAD_S)
        if problem:
            raise OSError(problem)

    def start(self, names: Sequence[str], limit_s: float = _JOB_S) -> Optional[str]:
        """Start them side by side and wait, `limit_s` seconds; what systemd said where one did not start by then."""
        return self._call(["start", "--", *names], limit_s) if names else None

    def restart(self, name: str) -> Optional[str]:
        """Restart it and wait; as `start`."""
        return self._call(["restart", "--", name], _JOB_S)

    def ask(self, verb: str, name: str) -> Optional[str]:
        """Have it stopped or restarted (`verb`) and do not wait; what systemd said where it did not take the job."""
        try:
            return self._call([verb, "--no-block", "--", name], _ASK_S)
        except OSError as error:
            return one_line(str(error), 300)

    def stop(self, names: Sequence[str]) -> Optional[str]:
        """Stop them and wait; a unit that systemd does not know is stopped. As `start`."""
        known = [name for name, state in self.show(names).items() if state.active not in ("inactive", "failed")]
        return self._call(["stop", "--", *known], _JOB_S) if known else None

    def reset_failed(self, names: Sequence[str]) -> None:
        """Forget failures, so that a start limit that was reached does not refuse the next start."""
        if names:
            self._call(["reset-failed", "--", *names], _ASK_S)

    def _call(self, words: Sequence[str], limit_s: float) -> Optional[str]:
        try:
            output = self.run(["systemctl", *words], limit_s)
        except CommandTimeout as error:
            return str(error)
        return None if output.code == 0 else one_line(f"systemctl {words[0]}: {output.error or f'exit code {output.code}'}", 300)

"""How one host's upgrade ends where not all of it went well: who is taken back, who stays, and what to do then."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from nearsocket.control.reprovision.steps import Started
from nearsocket.control.rollout.job import Done, Ready
from nearsocket.model import places
from nearsocket.model.errors import NearsocketError

_BACK = "back to the driver before: --driver VERSION-BEFORE --anew"
_MEND = (
    f"mend what keeps it down, then --resume; to serve it in another way: rm {places.HOLD_STARTS}/REPLICA there, deploys/site.py, "
    f"--resume; {_BACK}"
)


def up(ready: Ready[Any], now: str | None, to: str, started: Started, notes: Sequence[str], forward: bool) -> Done:
    """Starts that failed behind the proven driver `to` fail the host, and a hook does; on the way back a hook is a note."""
    done = Done(now, ready.changes, tuple(notes), started.did, started.took)
    if started.wrong:
        problem = "; ".join((stays("; ".join(started.wrong), to), *started.hooked))
        return dataclasses.replace(done, error=problem, hint=_MEND, stays=True)
    if started.hooked and forward:
        problem = f"{'; '.join(started.hooked)}; every replica is up behind the driver {to}, so it stays"
        return dataclasses.replace(done, error=problem, hint="mend what the hook calls, then --resume", stays=True)
    return dataclasses.replace(done, notes=(*notes, *started.hooked))


def serves(ready: Ready[Any], now: str | None, to: str, wrong: NearsocketError, notes: Sequence[str]) -> Done:
    """Replicas were started behind the driver `to` once it was proven: what fails since is looked at by a person."""
    problem = f"{wrong.message}; the driver {to} was proven before and replicas were started behind it, so it stays"
    mend = wrong.hint or "mend that"
    hint = f"{mend if '--resume' in mend else f'{mend}; then --resume'}; {_BACK}"
    return Done(now, ready.changes, tuple(notes), error=problem, hint=hint, touched=True, stays=True)


def stays(problem: str, to: str) -> str:
    """The problem, and why it takes the driver `to` nowhere."""
    return f"{problem}; the driver {to} is proven (versions, GPUs, all-reduces of that replica), so it stays"

"""What a far start leads to under its policy, and the memory that keeps restarts from becoming a loop. Pure.

systemd does it: the proof asks it to stop or restart the unit (onhost/verify/act.py). Restarts that are asked for count in
StartLimitBurst as those after a crash do, so the unit allows three more under `restart` (control/start_record.py), and what is
decided here never asks for more than these in one window: a far engine that serves is not refused its start for far starts alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from nearsocket.model.settings import OnFar
from nearsocket.model.verdict import Action, Word

DAY_S = 86400
#: Restarts for a far start within one window.
MOST_RESTARTS = 3
#: What a memory that cannot be read holds for: whatever the files are.
_ANY = "*"


@dataclass(frozen=True)
class History:
    """When this replica was restarted for a far start (Unix time, ascending). `spent`: it used up a window once.

    `rendered` names the unit's files that this holds for: a person who changes them begins anew.
    """

    restarts: tuple[float, ...] = ()
    spent: bool = False
    rendered: str = ""

    def to_json(self) -> str:
        """JSON text, one line feed at its end."""
        return json.dumps({"restarts": list(self.restarts), "spent": self.spent, "rendered": self.rendered}) + "\n"


def from_json(text: str) -> History:
    """The history that `to_json` wrote; for anything else one that allows nothing before a day is over (`spent`, and now)."""
    try:
        value: Any = json.loads(text)
        return History(tuple(sorted(float(moment) for moment in value["restarts"])), bool(value["spent"]), str(value["rendered"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return History((float("inf"),), True, _ANY)


def decide(
    policy: OnFar, word: Word, history: History, rendered: str, others_serve: bool, now: float, window_s: float
) -> tuple[Action, str, History]:
    """What is done about this start, why, and the history after it.

    Only a proven far acts. `others_serve`: another replica of this host serves, so that this one is not the last. At most three
    restarts within `window_s`; once they are used up, one a day, or one a window where that is longer. A clock that went back
    allows nothing that it would not have allowed before: moments in the future count as now.
    """
    if history.rendered not in (rendered, _ANY):
        history = History(rendered=rendered)
    if word is not Word.FAR or policy is OnFar.WARN:
        return Action.NONE, "", history
    if policy is OnFar.FAIL:
        return Action.FAIL, "stopped by its policy (fail)", history
    if not others_serve:
        return Action.NONE, "kept: no other replica of this host serves, and the last one is never restarted", history
    pause_s = max(window_s, DAY_S)
    past = tuple(min(moment, now) for moment in history.restarts if moment > now - pause_s)
    recent = [moment for moment in past if moment > now - window_s]
    spent = history.spent or len(recent) >= MOST_RESTARTS
    if spent and past:
        kept = History(past, True, rendered)
        often = "a day" if pause_s == DAY_S else f"in {pause_s / DAY_S:.1f} days"
        return Action.NONE, f"kept: restarted {len(past)} times already, and now at most once {often}", kept
    count = "the one of today" if spent else f"{len(recent) + 1} of {MOST_RESTARTS}"
    after = History((*past, now), spent or len(recent) + 1 >= MOST_RESTARTS, rendered)
    return Action.RESTART, f"restarted by its policy ({count})", after

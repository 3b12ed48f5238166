"""Who else is at work on these hosts: asked before a rollout of theirs is resumed or begun anew.

A client that is at work shows itself (`beating`); one that is lost does not any more, and is waited out. Nothing here makes a host
anybody's: whoever writes its record last has it (`model/rollout/progress`), as without all this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from nearsocket.control import workers
from nearsocket.control.rollout import beating, thisrun
from nearsocket.control.rollout.job import Place
from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout.beat import GONE_S, Seen
from nearsocket.model.text import one_line

#: Between two looks at a sign that may be somebody's last.
_PAUSE_S = 5.0


@dataclass(frozen=True)
class Beside:
    """The hosts to ask, `parallel` at a time, and whom to tell that there is a wait."""

    places: Sequence[Place]
    parallel: int
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def at_work(self, before: Mapping[str, Seen] | None = None) -> dict[str, Seen]:
        """Host to the sign there that still counts. `before`: only these, and what they said stands where they give no answer."""
        asked = [place for place in self.places if before is None or place.target.name in before]
        found: dict[str, Seen] = {}

        def act(at: int) -> Seen | None:
            try:
                return beating.seen(asked[at])
            except NearsocketError:  # the look at the host says why
                return (before or {}).get(asked[at].target.name)

        with closing(workers.each(len(asked), act, self.parallel)) as answers:
            for at, seen in answers:
                if seen is not None and seen.lasts_s > 0 and not thisrun.is_gone(seen.beat.run):
                    found[asked[at].target.name] = seen
        return {place.target.name: found[place.target.name] for place in asked if place.target.name in found}

    def wait(self) -> None:
        """Return once nobody is at work here any more: at once where nobody shows itself, else as soon as the last signs run out.

        Raises NearsocketError where a client that is alive shows itself meanwhile.
        """
        young = self.at_work()
        if not young:
            return
        left_s = max(seen.lasts_s for seen in young.values())
        name, seen = next(iter(young.items()))
        self.say(
            f"waiting {left_s:.0f} s at most: {_told(name, seen)}; without a further sign of life for {GONE_S:.0f} s it counts "
            "as lost, and this goes on"
        )
        end = self.clock() + left_s
        while young and self.clock() < end:
            self.pause(min(_PAUSE_S, end - self.clock()))
            now = self.at_work(young)
            for name, seen in now.items():
                if seen.beat != young[name].beat:
                    raise _at_work(name, seen)
            young = now


def _at_work(name: str, seen: Seen) -> NearsocketError:
    return NearsocketError(
        f"expected nobody at work on these hosts, found {_told(name, seen)}",
        f"wait for its end (a client that is lost is given up {GONE_S:.0f} s behind its last sign of life), or --take-over",
    )


def taken_over(seen: Seen) -> str:
    """The note in the report on a host that was taken from a client that may be at work."""
    return f"taken over from {seen.beat}, last seen here {_ago(seen)}"


def _told(name: str, seen: Seen) -> str:
    return f"{seen.beat} at work on {one_line(name, 80)}, last seen {_ago(seen)}"


def _ago(seen: Seen) -> str:
    return f"{seen.age_s:.0f} s ago"

"""An upgrade's steps on one host, asked for one by one; its replicas started one after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nearsocket.control.reprovision import ask
from nearsocket.control.rollout.job import Place
from nearsocket.model.driver.orders import Action, Answer, Order
from nearsocket.model.errors import NearsocketError


class Failed(NearsocketError):
    """The host says why a step failed. `touched`: something was changed there by then."""

    def __init__(self, message: str, hint: str | None, touched: bool) -> None:
        super().__init__(message, hint)
        self.touched = touched


@dataclass(frozen=True)
class Started:
    """What was done and how long it took, by replica; `wrong`: what is not up although the driver is proven; `hooked`: hooks that
    failed of replicas that are."""

    did: Mapping[str, str]
    took: Mapping[str, float]
    wrong: tuple[str, ...] = ()
    hooked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Steps:
    """`order`: what all steps of this upgrade share."""

    place: Place
    order: Order

    def take(self, action: Action, **more: Any) -> Answer:
        """One step. Raises Failed where the host says why not, Busy, TransportError."""
        answer = ask.step(self.place, dataclasses.replace(self.order, action=action, lock_wait_s=ask.WAIT_S, **more))
        if answer.error is not None:
            raise Failed(answer.error, answer.hint, answer.touched)
        return answer

    def start(self, replicas: Sequence[str], forward: bool, measured: tuple[str, ...], accept_unknown: bool) -> Started:
        """One after another.

        The first that is not proven stops those behind it, unless its all-reduces were good (`measured`): then the driver is not
        what keeps it down, and every other is to come up. On the way back every one is to come up too. Raises Failed.
        """
        did: dict[str, str] = {}
        took: dict[str, float] = {}
        wrong: list[Failed] = []
        hooked: list[str] = []
        for replica in replicas:
            try:
                answer = self.take(Action.START, replica=replica, accept_unknown=accept_unknown, measured=measured)
            except Failed as failed:
                if forward and replica not in measured:
                    raise
                wrong.append(failed)
                continue
            if not answer.notes:
                did[replica], took[replica] = "restarted", answer.took_s
            hooked += [answer.hooked] if answer.hooked else []
        if wrong and not forward:
            raise wrong[0]
        return Started(did, took, tuple(failed.message for failed in wrong), tuple(hooked))

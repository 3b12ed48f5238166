"""`reprovision`: one step from order to answer, under the host's lock; every fault of the outside world is in the answer."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Optional

from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import Action, Answer, Order, State
from nearsocket.model.driver.transaction import TARGET
from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import in_words, one_line
from nearsocket.onhost.apply import lock
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.reprovision import kept
from nearsocket.onhost.reprovision.apt import Apt
from nearsocket.onhost.reprovision.steps import STEPS
from nearsocket.onhost.reprovision.work import Work

#: Steps that read alone, beside whatever else reads.
_READ = (Action.STATUS, Action.PREFLIGHT)


def run(text: bytes, root: str) -> Answer:
    """Carry out the order in that text. Raises NearsocketError for a text that is none."""
    order = orders.order_from_json(text.decode("utf-8", "replace"))
    if not TARGET.match(order.to):
        raise NearsocketError(f"expected a driver's version such as 580.105.08, found {one_line(order.to, 60)!r}")
    began = time.monotonic()
    tree = Tree(Path(root))
    answer = _locked(order, tree, Systemctl(), Apt(str(tree.at(kept.NEXT))))
    return dataclasses.replace(answer, took_s=round(time.monotonic() - began, 2))


def _locked(order: Order, tree: Tree, systemctl: Systemctl, apt: Apt) -> Answer:
    holder = one_line(f"driver upgrade {order.id}, {order.action.value}, by {order.by}", 200)
    held = lock.shared(tree, order.lock_wait_s) if order.action in _READ else lock.exclusive(tree, holder, order.lock_wait_s)
    try:
        with held:
            state, notes = _state(order, tree)
            if order.action not in _READ:  # nobody else is at work: a leave to start is a killed step's
                kept.end_leaves(tree)
            try:
                answer = STEPS[order.action](Work(order, tree, apt, systemctl, state))
                return dataclasses.replace(answer, notes=(*notes, *answer.notes))
            except NearsocketError as error:
                return _failed(order, tree, error.message, error.hint)
            except (OSError, CommandTimeout) as error:
                return _failed(order, tree, in_words(error), "look at that, then --resume")
    except (NearsocketError, OSError) as error:
        message = error.message if isinstance(error, NearsocketError) else in_words(error)
        busy = isinstance(error, lock.Busy)
        return Answer(order.action, error=one_line(message, 400), hint=getattr(error, "hint", None), busy=busy)


def _state(order: Order, tree: Tree) -> tuple[Optional[State], tuple[str, ...]]:
    """How far the host is, and notes. One that cannot be read is none for whoever begins anew: kept aside before the first change.

    Raises NearsocketError, OSError.
    """
    try:
        return kept.read(tree), ()
    except NearsocketError as error:
        if not order.forward:
            raise
        held = ", ".join(kept.held(tree)) or "none"
        told = f"the record of an earlier upgrade cannot be read ({error.message}); replicas that it holds: {held}"
        if order.action is not Action.PREPARE:
            return None, (one_line(told, 400),)
        told = f"{told}; it is kept as {kept.set_aside(tree)}, and what was held or served before is judged by what is there now"
        return None, (one_line(told, 500),)


def _failed(order: Order, tree: Tree, message: str, hint: str | None) -> Answer:
    """With the state as it is on the disk: who reads it knows what was changed."""
    try:
        state = kept.read(tree)
    except (OSError, NearsocketError):
        state = None
    touched = state is not None and state.unfinished
    return Answer(order.action, state, error=one_line(message, 400), hint=hint, touched=touched)

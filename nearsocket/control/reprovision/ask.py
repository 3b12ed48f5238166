"""One step of an upgrade on a host, by one exec; and the reboot, waited for by fresh connects until the boot is another one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from nearsocket.control import audit, program
from nearsocket.control.record import who
from nearsocket.control.rollout.job import Place
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import Action, Answer, Order
from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import one_line

#: Seconds that a step may take: the host's own limits end it before.
_LIMITS_S = {
    Action.STATUS: 120.0,
    Action.PREFLIGHT: 3600.0,
    Action.REHEARSE: 4 * 3600.0,
    Action.PREPARE: 6 * 3600.0,
    Action.UPGRADE: 4 * 3600.0,
    Action.REBOOT: 120.0,
    Action.AFTER: 1800.0,
    Action.START: 6 * 3600.0,
    Action.FINISH: 300.0,
    Action.BACK: 10 * 3600.0,
}
_BEGINNING = b'{"schema": "nearsocket.reprovision/'
_PAUSE_S = 2.0
#: A host that answers for so long in the old boot, behind an order whose answer was cut, never got it.
_AGAIN_S = 60.0
#: Seconds to wait for who works on the host.
WAIT_S = 60.0
#: How an exec ends that a shutdown takes along.
_CUT = (Trouble.ANSWER, Trouble.UNREACHABLE, Trouble.TIMEOUT, Trouble.SSH, Trouble.KILLED)


class Busy(NearsocketError):
    """Somebody else is at work on the host: the step was not begun, and nothing is known to be wrong."""


class HostLost(NearsocketError):
    """The host did not come back in its time: nobody here knows how far it is."""


def step(place: Place, order: Order) -> Answer:
    """Carry the step out; what it came to, errors of the host's included. Raises Busy, TransportError where there is no answer."""
    sent = audit.password_line(place.target.sudo) + program.payload(["reprovision"], order.to_json().encode())
    limit_s = _LIMITS_S[order.action] + order.lock_wait_s
    answer = place.way.run(audit.command(place.target), sent, limit_s, place.children)
    start = max(0, answer.stdout.rfind(_BEGINNING))
    try:
        told = orders.answer_from_json(answer.stdout[start:].decode("utf-8", "replace"))
    except NearsocketError as error:
        hint = "the answer was cut; the step there ends by itself: --resume goes on with what it came to"
        raise TransportError(Trouble.ANSWER, error.message, hint, answer.stderr) from None
    if told.busy:
        raise Busy(told.error or "another is at work there", told.hint)
    return told


def by() -> str:
    """Who asks."""
    return who(os.environ)


def reboot(
    place: Place,
    order: Order,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> str | None:
    """Let the host reboot and wait for the next boot; a note. `order`: any step's of this upgrade.

    A connection to the old sshd proves nothing (a shutdown takes its time), so each look is a fresh connection, and only another
    boot id counts. Raises HostLost where there is none in `limit_s` seconds, Busy, NearsocketError, TransportError.
    """
    look = _as(order, Action.STATUS)
    first = step(place, _as(order, Action.STATUS, WAIT_S))
    before = first.boot_id
    if before is None:
        raise NearsocketError(f"expected the host to tell which boot it is in, found: {first.error or 'no boot id'}", first.hint)
    cut = False
    try:
        told = step(place, _as(order, Action.REBOOT, WAIT_S))
    except TransportError as error:
        if error.trouble not in _CUT:
            raise
        told, cut = Answer(Action.REBOOT), True  # the shutdown took the connection with it, or the order never came there
    if told.error:
        raise NearsocketError(told.error, told.hint)
    if told.notes or (told.state and told.boot_id and told.state.boot_id != told.boot_id):
        return told.notes[0] if told.notes else None
    end, last = clock() + limit_s, "it never went down"
    again = clock() + _AGAIN_S
    while clock() < end:
        if place.children.closed:
            raise HostLost("given up by an interrupt; the host reboots by itself", "--resume goes on")
        pause(min(_PAUSE_S, max(0.0, end - clock())))
        _let_go(place)
        try:
            now = step(place, look).boot_id
        except (Busy, TransportError) as error:
            last = error.message
            continue
        if now is not None and now != before:
            return None
        last = "it is still in the boot that was to end"
        if cut and clock() >= again:
            again = clock() + _AGAIN_S
            with contextlib.suppress(Busy, TransportError):
                step(place, _as(order, Action.REBOOT, WAIT_S))
    raise HostLost(
        f"expected the host to come back from its reboot within {limit_s:g} s, found: {one_line(last, 200)}",
        "look at its console; once it is back, --resume goes on",
    )


def _let_go(place: Place) -> None:
    """Close the connection, so that the next question makes a fresh one."""
    close = getattr(place.way, "close", None)
    if close is not None:
        close()


def _as(order: Order, action: Action, wait_s: float = 0.0) -> Order:
    return Order(action, order.id, order.by, order.to, lock_wait_s=wait_s)

"""A client shows itself on the host of its turn every so often, so that a colleague knows it from one that is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator

from nearsocket.control import audit, program
from nearsocket.control.rollout.job import Place
from nearsocket.model.rollout import beat
from nearsocket.model.rollout.beat import Beat, Seen

#: Seconds for one sign or question; a host that takes longer is not at hand.
_SIGN_S = 20.0


@contextlib.contextmanager
def shown(place: Place, first: Beat, every_s: float = beat.EVERY_S) -> Iterator[None]:
    """While the block runs, the client shows itself on that host: at once, then every `every_s` seconds.

    At the block's end it says that it goes; where it is cut off (an interrupt, a kill) its last sign stays. Best effort: what
    cannot be told holds nothing up, and decides nothing about whose the host is.
    """
    over = threading.Event()
    thread = threading.Thread(target=_beat, args=(place, first, over, every_s), name=f"beat-{place.target.name}", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # a limit on threads
        yield
        return
    try:
        yield
    finally:
        over.set()
    thread.join(_SIGN_S)
    if not thread.is_alive() and not place.children.closed:
        with contextlib.suppress(Exception):
            _tell(place, first, "--bye", "yes")


def _beat(place: Place, first: Beat, over: threading.Event, every_s: float) -> None:
    count = first.count
    while not over.is_set() and not place.children.closed:
        with contextlib.suppress(Exception):  # whoever waits for the host hears of it; the next sign may come through
            _tell(place, dataclasses.replace(first, count=count))
        count += 1
        over.wait(every_s)


def _tell(place: Place, sign: Beat, *words: str) -> None:
    sent = program.payload(["rollout-beat", *words], sign.to_json().encode())
    place.way.run(audit.command(place.target), audit.password_line(place.target.sudo) + sent, _SIGN_S, place.children)


def seen(place: Place) -> Seen | None:
    """Which client showed itself there last; None where none did. Raises NearsocketError where the host gives no answer."""
    sent = audit.password_line(place.target.sudo) + program.payload(["rollout-seen"])
    answer = place.way.run(audit.command(place.target), sent, _SIGN_S, place.children)
    start = max(0, answer.stdout.find(b'{"schema"'))
    return beat.seen_from(answer.stdout[start:].decode("utf-8", "replace"))

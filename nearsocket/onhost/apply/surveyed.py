"""Whether a host is still as an order's survey saw it: a deploy in between is not to be built upon unseen."""

from __future__ import annotations

from nearsocket.model.errors import NearsocketError
from nearsocket.model.order import Order
from nearsocket.model.rollout.inforce import InForce
from nearsocket.onhost.apply import state
from nearsocket.onhost.apply.tree import Tree


class Moved(NearsocketError):
    """Another generation is in force than the order was made for."""


def refuse_moved(tree: Tree, order: Order) -> None:
    """Raises Moved where the order says what it was made for and that is not in force any more. Sure under the lock alone."""
    if order.surveyed is None:
        return
    found = _in_force(tree)
    if found != order.surveyed:
        raise Moved(
            f"expected {order.surveyed} in force, as it was read before, found {found}: somebody deployed here in between",
            "look at what that was (nearsocket audit), then run it again",
        )


def _in_force(tree: Tree) -> InForce:
    """The same as a survey says of it."""
    number = tree.number()
    if number is None:
        return InForce()
    try:
        return InForce(number, state.manifest_of(tree, number).digest)
    except (OSError, NearsocketError):
        return InForce(number)

"""One step on one host: the order, the ways to reach the host, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from nearsocket.model.driver.orders import Order, State
from nearsocket.model.errors import NearsocketError
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.reprovision.apt import Apt
from nearsocket.onhost.reprovision.sight import Eyes


@dataclass(frozen=True)
class Work:
    """One step on one host."""

    order: Order
    tree: Tree
    apt: Apt
    systemctl: Systemctl
    state: Optional[State]

    @property
    def eyes(self) -> Eyes:
        """How containers are asked what they see."""
        return Eyes(self.tree, self.systemctl)

    def known(self) -> State:
        """The state that a step behind the first needs. Raises NearsocketError where there is none, or it is another one's."""
        if self.state is None or not self.state.unfinished:
            raise NearsocketError("expected an upgrade that was begun here, found none", "begin with the preflight")
        if self.state.id != self.order.id:
            raise NearsocketError(
                f"expected upgrade {self.order.id}, found {self.state.id} to {self.state.to} by {self.state.by}",
                "--resume goes on with that one",
            )
        return self.state

"""The last look before an apply writes: who holds a new replica's GPU, and whether a daemon-reload may be done now.

The survey asked the same before; in between, somebody may have started something.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Optional

from nearsocket.model import holders, read
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest
from nearsocket.model.host import Host
from nearsocket.model.order import Order
from nearsocket.model.verdicts import reloadrisk
from nearsocket.model.verdicts.reloadrisk import Risk
from nearsocket.onhost.apply.state import State
from nearsocket.onhost.collect.whole import collect

#: What the two questions rest on.
_SOURCES = frozenset(
    {
        *("nvml", "processes", "pci", "driver.files", "units", "generation"),
        *("containers", "containers.scopes", "docker.info", "dev.char", "container.toolkit", "cdi"),
    }
)
_LOOK_S = 45.0

Look = Callable[[], Host]


def look(root: str) -> Host:
    """The host as it is now, as far as the guard needs it."""
    return read.host(collect(_LOOK_S, root=Path(root), only=_SOURCES))


def refuse(order: Order, reload: bool, wanted: Manifest, found: State, look: Optional[Look]) -> None:
    """Raises NearsocketError where a GPU is somebody else's, or a reload that is to come could take GPUs from a container.

    `look` None: the survey's word counts. Nobody looks where neither question arises.
    """
    here = found.manifest
    ours = {gpu for replica in here.replicas for gpu in replica.gpus} if here else set()
    handed = {one.replica for one in order.handovers}
    new = [replica for replica in wanted.replicas if replica.name not in handed]
    takes = not found.damage and any(gpu not in ours for replica in new for gpu in replica.gpus)
    asks = reload and not order.accept_reload_risk
    seen = look() if look is not None and (takes or asks) else None
    if seen is not None and takes:
        holders.refuse_held(seen, new, here)
    if asks:
        _refuse_reload(order, seen)


def _refuse_reload(order: Order, seen: Optional[Host]) -> None:
    found = reloadrisk.risk(seen) if seen is not None else None
    if seen is None and order.reload_risk:
        found = Risk(order.reload_risk, "docs/checks/host.daemon-reload-risk.md")
    if found:
        raise NearsocketError(
            f"expected that a daemon-reload takes no GPU from a running container, found: {found.reason}",
            f"{found.remedy}; or say --data accept_reload_risk=true",
        )

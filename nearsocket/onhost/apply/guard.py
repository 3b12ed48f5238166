"""The last look before an apply writes: who holds a new replica's GPU, and whether a daemon-reload may be done now.

The survey asked the same before; in between, somebody may have started something.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Optional

from nearsocket.model import holders, read
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest
from nearsocket.model.host import Host
from nearsocket.model.order import Order
from nearsocket.model.snapshot import SourceStatus
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
#: The second look's: each part has four times as long (collect.runner.USUAL_WHOLE_S), for a Docker that is slow on a busy host.
_PATIENT_S = 240.0
#: How the names of a replica's slice, unit and container begin (control/container.py).
_OWN = "nearsocket-"

Look = Callable[[], Host]


def look(root: str) -> Host:
    """The host as it is now, as far as the guard needs it. Asked once more, with more time, where something was too slow: no answer
    refuses."""
    seen = collect(_LOOK_S, root=Path(root), only=_SOURCES)
    if any(source.status is SourceStatus.TIMEOUT for source in seen.sources.values()):
        seen = collect(_PATIENT_S, root=Path(root), only=_SOURCES)
    return read.host(seen)


def refuse(order: Order, reload: bool, wanted: Manifest, found: State, look: Optional[Look]) -> None:
    """Raises NearsocketError where a GPU is somebody else's, or a reload that is to come could take GPUs from a container.

    A GPU is ours while a replica that has it runs: whoever took an idle one's has it. `look` None: the survey's word counts.
    Nobody looks where neither question arises.
    """
    here = found.manifest
    known = here.replicas if here else wanted.replicas if found.damage else ()
    idle = frozenset(replica.name for replica in known if _idle(found, replica.unit))
    ours = {gpu for replica in known if replica.name not in idle for gpu in replica.gpus}
    handed = {one.replica for one in order.handovers}
    new = [replica for replica in wanted.replicas if replica.name not in handed and replica.unit not in found.awaiting]
    takes = any(gpu not in ours for replica in new for gpu in replica.gpus)
    asks = reload and not order.accept_reload_risk
    seen = look() if look is not None and (takes or asks) else None
    if seen is not None and takes:
        holders.refuse_held(_strangers(seen) if found.damage else seen, [r for r in new if not set(r.gpus) <= ours], here, idle)
    if asks:
        _refuse_reload(order, seen)


def _idle(found: State, unit: str) -> bool:
    now = found.units.get(unit)
    return now is None or now.active in ("inactive", "failed")


def _strangers(seen: Host) -> Host:
    """The host without what runs under our own names: with a generation that cannot be read, nothing else says whose it is."""
    boxes = tuple(box for box in seen.containers if not (box.name or "").startswith(_OWN))
    gone = {box.id for box in seen.containers} - {box.id for box in boxes}
    others = tuple(
        process
        for process in seen.processes
        if process.container not in gone and not any(part.startswith(_OWN) for part in (process.cgroup or "").split("/"))
    )
    return dataclasses.replace(seen, containers=boxes, processes=others)


def _refuse_reload(order: Order, seen: Optional[Host]) -> None:
    found = reloadrisk.risk(seen) if seen is not None else None
    if seen is None and order.reload_risk:
        found = Risk(order.reload_risk, "docs/checks/host.daemon-reload-risk.md")
    if found:
        raise NearsocketError(
            f"expected that a daemon-reload takes no GPU from a running container, found: {found.reason}",
            f"{found.remedy}; or say --data accept_reload_risk=true",
        )

"""Judges NVIDIA's fabric manager: needed where NVSwitches join the GPUs, and of the driver's own version.

Without it on such a host no CUDA program starts (NVIDIA's Fabric Manager User Guide: it must match the driver's version
and refuses to start where it does not). NVSwitches that are no PCI devices (fifth-generation NVLink) are not seen here.
"""

from __future__ import annotations

import re
from typing import Optional

from nearsocket.model.driver import names
from nearsocket.model.finding import Finding, failed, passed, unknown
from nearsocket.model.host import Host
from nearsocket.model.verdicts.reading import mapping, told, why

#: The kernel's name of its process is cut to 15 characters.
_COMM = "nv-fabricmanager"[:15]
_LOOK = "systemctl status nvidia-fabricmanager; journalctl -u nvidia-fabricmanager -b"


def judge(host: Host, loaded: str) -> Optional[Finding]:
    """How fabric manager stands beside the loaded module of that version; None where no NVSwitch was seen.

    A pass names what runs; `fail` where it does not run or is another version; `unknown` where it could run unseen.
    """
    data = mapping(host, "fabricmanager")
    switches, unit, version = data.get("nvswitches"), str(data.get("unit")), data.get("version")
    if not isinstance(switches, int) or switches < 1:
        return None
    process = next((found.pid for found in host.processes if found.comm.startswith(_COMM)), None)
    state = f"{switches} NVSwitches; unit {unit}, version {version or 'not told'}, process {process or 'none'}"
    evidence = [told("fabricmanager", state)]
    found = re.search(r"\d{3,}(?:\.\d+)+", version) if isinstance(version, str) else None
    if found and found[0] != loaded:
        summary = f"{switches} NVSwitches, but fabric manager is {found[0]} and the module {loaded}: no CUDA program starts"
        mine = next((found.name for found in host.packages if names.is_fabric_manager(found.name)), None)
        return failed(host.name, summary, evidence, f"{names.install_fabric_manager(mine, loaded)}; {_LOOK}")
    if unit == "active" or process is not None:
        return passed(host.name, "fabric manager runs", evidence)
    hidden = host.source("processes").reason
    if unit == "absent" and (hidden or not host.source("processes").ok):
        unseen = "not every process could be seen" if hidden else why(host, "processes")
        summary = f"{switches} NVSwitches, and whether fabric manager runs (in a container) is not known: {unseen}"
        return unknown(host.name, summary, evidence, _LOOK)
    summary = f"{switches} NVSwitches, but fabric manager does not run ({unit}): no CUDA program starts"
    return failed(host.name, summary, evidence, f"sudo systemctl enable --now nvidia-fabricmanager; {_LOOK}")

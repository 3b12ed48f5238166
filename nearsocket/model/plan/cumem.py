"""The gate of cuMem before anything runs: what the host and the settings say for or against pinning it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.finding import Status
from nearsocket.model.host import Engine, Host
from nearsocket.model.settings import ReplicaSettings
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.cumem import version_obstacle
from nearsocket.model.verdicts.engine_env import CUMEM, CUMEM_HOST, SGLANG_HONOURS
from nearsocket.model.verdicts.preconditions import host_items

_RELEASE = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:\.?(post|rc)(\d+))?\Z", re.ASCII)


@dataclass(frozen=True)
class CumemGate:
    """Whether cuMem may be pinned, and the first reason against it or all that was found in favour."""

    open: bool
    reason: str


def release_order(text: Optional[str]) -> Optional[tuple[int, int, int, int]]:
    """An engine's release such as `0.5.4.post2` as numbers that order; None where it is none."""
    match = _RELEASE.match((text or "").strip())
    if not match:
        return None
    step = int(match[5] or 0) if match[4] != "rc" else int(match[5]) - 1000
    return int(match[1]), int(match[2]), int(match[3]), step


def given(replica: ReplicaSettings, name: str) -> Optional[str]:
    """The value that the settings give a variable, NCCL's own settings first; None where they do not."""
    return replica.nccl.get(name, replica.environment.get(name))


def gate(host: Host, replica: ReplicaSettings, gpus: tuple[str, ...]) -> CumemGate:
    """The gate of nccl.cumem-preconditions, as far as a plan can know it: an unknown item keeps it shut."""
    asked, host_path = given(replica, CUMEM), given(replica, CUMEM_HOST)
    if asked is not None and asked.strip() != "1":
        return CumemGate(False, f"the settings say {CUMEM}={one_line(asked, 20)}")
    if host_path is not None and host_path.strip() == "0":
        return CumemGate(False, f"the settings say {CUMEM_HOST}=0")
    if len(gpus) < 2:
        return CumemGate(False, "one GPU exchanges nothing")
    for item in host_items(host, gpus):
        if item.status is not Status.PASS:
            return CumemGate(False, item.text)
    obstacle = version_obstacle(replica.image.nccl, host_path == "1")
    if obstacle is not None:
        return CumemGate(False, obstacle.text)
    order = release_order(replica.image.release)
    if replica.engine is Engine.SGLANG and order is not None and order < SGLANG_HONOURS:
        return CumemGate(False, f"SGLang {replica.image.release} overwrites {CUMEM} (honoured from 0.5.4.post2)")
    facts = [item.text for item in host_items(host, gpus)]
    facts.append(f"NCCL {replica.image.nccl}" if replica.image.nccl else "the image's NCCL is not stated (2.24 or newer is needed)")
    return CumemGate(True, "; ".join(facts))

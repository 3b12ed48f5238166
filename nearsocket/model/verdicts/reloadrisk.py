"""Whether a daemon-reload may be done now: the one question that every deploy asks before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from nearsocket.model.finding import Status
from nearsocket.model.host import Host
from nearsocket.model.text import one_line
from nearsocket.model.verdicts import reloads
from nearsocket.model.verdicts.reading import refused, why


@dataclass(frozen=True)
class Risk:
    """Why not, in one line, and what takes the risk away, in one line."""

    reason: str
    remedy: str


def risk(host: Host) -> Optional[Risk]:
    """The first container that could lose its GPUs by a daemon-reload, managed or not; None where none can.

    Not knowing is a risk: containers that could not be read are not known to be safe. A host without a GPU has none to lose.
    """
    for found in reloads.judge_reloads(host):
        if found.status is not Status.PASS:
            return Risk(f"{found.subject}: {found.summary}", one_line(" ".join(_commands(found.remedy)), 400))
    if host.gpus and refused(host, "containers"):
        return Risk(f"the running containers are not known: {why(host, 'containers')}", "sudo docker ps; sudo podman ps")
    return None


def _commands(remedy: Optional[str]) -> list[str]:
    """A remedy's lines as one; a line that is a comment says what the next is for."""
    return [line.lstrip("# ").strip() for line in (remedy or "").splitlines() if line.strip()]

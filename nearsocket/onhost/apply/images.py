"""The images of replicas that are about to start: pulled before the switch, so that a missing one stops nothing that serves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nearsocket.model.generation import ReplicaEntry
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.command import CommandTimeout

_ASK_S = 60.0
#: Images of engines are tens of gigabytes.
_PULL_S = 2 * 3600.0


@dataclass(frozen=True)
class Pull:
    """An image to pull, by digest, and the runtime that does."""

    runtime: str
    image: str


def missing(systemctl: Systemctl, replicas: Iterable[ReplicaEntry]) -> tuple[Pull, ...]:
    """The images that the host lacks, each once. Raises OSError where a runtime does not answer."""
    wanted = sorted({(replica.runtime, replica.image) for replica in replicas})
    return tuple(Pull(runtime, image) for runtime, image in wanted if not _here(systemctl, runtime, image))


def pull(systemctl: Systemctl, pulls: Iterable[Pull]) -> None:
    """Pull each. Raises OSError, one line, for the first that cannot be had."""
    for entry in pulls:
        output = systemctl.run([entry.runtime, "pull", "--quiet", entry.image], _PULL_S)
        if output.code:
            raise OSError(f"expected to pull {entry.image}, found: {output.error or f'exit code {output.code}'}")


def _here(systemctl: Systemctl, runtime: str, image: str) -> bool:
    try:
        return systemctl.run([runtime, "image", "inspect", "--format", "{{.Id}}", image], _ASK_S).code == 0
    except CommandTimeout as error:
        raise OSError(str(error)) from None

"""What a container belongs to: one rule for equal ids, one for the unit whose command runs it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from nearsocket.model.host import Container, Unit

#: The short form that `docker ps` shows; shorter texts name no container.
SHORT_ID = 12
#: Longer command lines are cut before they are searched.
LINE_MAX = 8192
_RUNS = re.compile(r"\b(?:docker|podman|nerdctl)\b.*\b(?:run|start|restart)\b", re.DOTALL)


def same_container(one: Optional[str], other: Optional[str]) -> bool:
    """Whether two ids name one container: equal, or one the other's short form of 12 digits or more."""
    if not one or not other or min(len(one), len(other)) < SHORT_ID:
        return False
    return one.startswith(other) or other.startswith(one)


def unit_of(container: Optional[Container], units: Iterable[Unit]) -> Optional[Unit]:
    """The unit whose command runs this container: by the container's name, else by an image that one active unit alone names.

    Docker's containers are not in the unit's control group, so its command is the only sign. Active units come first.
    """
    if container is None:
        return None
    words = [
        (unit, set(re.split(r"[\s=;]+", unit.exec_start[:LINE_MAX]))) for unit in units if _RUNS.search(unit.exec_start[:LINE_MAX])
    ]
    by_name = [unit for unit, said in words if container.name and container.name in said]
    if by_name:
        return min(by_name, key=lambda unit: unit.active != "active")
    by_image = [unit for unit, said in words if container.image in said and unit.active == "active"]
    return by_image[0] if len(by_image) == 1 else None

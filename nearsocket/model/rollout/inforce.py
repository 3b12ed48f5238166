"""Which generation is in force on a host, as an order of a rollout says what it was made for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import one_line


@dataclass(frozen=True)
class InForce:
    """`number` None: nothing is in force; `digest` None: nothing, or its manifest cannot be read."""

    number: Optional[int] = None
    digest: Optional[str] = None

    def __str__(self) -> str:
        """`generation 3 (sha256:...)`."""
        return f"generation {told(str(self.number), self.digest)}" if self.number is not None else "nothing"


def told(number: Optional[str], digest: Optional[str]) -> str:
    """`3 (sha256:...)`, the digest by its beginning; `nothing` where nothing is in force."""
    return f"{one_line(number, 30)} ({one_line(digest or 'no digest', 30)})" if number is not None else "nothing"


def from_value(value: Any) -> InForce:
    """From JSON's own values. Raises NearsocketError for another shape."""
    try:
        made = InForce(**value)
    except TypeError as error:
        raise NearsocketError(f"expected a generation in force, found: {one_line(str(error), 100)}") from None
    number = made.number is None or (isinstance(made.number, int) and not isinstance(made.number, bool))
    if not number or not (made.digest is None or isinstance(made.digest, str)):
        raise NearsocketError("expected a generation's number and digest, found others")
    return made

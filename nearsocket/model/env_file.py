"""Environment files in Docker's and podman's grammar (`--env-file`): a value is everything after the `=`, nothing is unquoted."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nearsocket.model.errors import NearsocketError
from nearsocket.model.settings import Runtime
from nearsocket.model.systemd import refuse_control
from nearsocket.model.text import one_line

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Docker reads lines with a scanner whose buffer ends at 64 KiB.
LONGEST_BYTES = 60_000


def lines(values: Mapping[str, str], runtime: Runtime) -> list[str]:
    """`NAME=value` for each variable, in order of name. Raises NearsocketError, value not shown, for what cannot be written."""
    return [_line(name, values[name], runtime) for name in sorted(values)]


def _line(name: str, value: str, runtime: Runtime) -> str:
    if not _NAME.match(name):
        raise NearsocketError(f"environment: expected a variable's name, found {one_line(name, 60)!r}")
    refuse_control(value, f"environment: {name}")
    if len(value.encode()) > LONGEST_BYTES:
        raise NearsocketError(f"environment: {name}: expected at most {LONGEST_BYTES} bytes, found more")
    if runtime is Runtime.PODMAN and value[:1] in ("'", '"', "`"):
        raise NearsocketError(
            f"environment: {name}: expected a value that does not begin with a quote, found one that does",
            "releases of podman read quotes in an environment file differently",
        )
    return f"{name}={value}"

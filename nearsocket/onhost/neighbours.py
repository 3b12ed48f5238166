"""Who else is on this host: a container or a GPU process that is not the replica at hand, managed by us or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from nearsocket.model.text import one_line
from nearsocket.onhost.collect import command
from nearsocket.onhost.collect.command import CommandTimeout, Output

_ASK_S = 10.0


def find(own: str, run: Callable[[Sequence[str], float], Output] = command.run) -> Optional[str]:
    """A neighbour in words, or why it is not known that there is none; None where there is none. `own`: the replica's container."""
    for runtime in ("docker", "podman"):
        try:
            output = run([runtime, "ps", "--no-trunc", "--format", "{{.Names}}"], _ASK_S)
        except FileNotFoundError:
            continue
        except (OSError, CommandTimeout) as error:
            return f"{runtime} does not say what runs ({one_line(str(error), 100)})"
        if output.code:
            return f"{runtime} does not say what runs ({one_line(output.error, 100)})"
        others = [name for name in output.text.split() if name != own]
        if others:
            return f"container {one_line(others[0], 60)}"
    try:
        output = run(["nvidia-smi", "--query-compute-apps=pid,name", "--format=csv,noheader"], _ASK_S)
    except FileNotFoundError:
        return None
    except (OSError, CommandTimeout) as error:
        return f"nvidia-smi does not say what runs ({one_line(str(error), 100)})"
    lines = [line for line in output.text.splitlines() if line.strip()]
    if output.code:
        return f"nvidia-smi does not say what runs ({one_line(output.error or output.text, 100)})"
    return f"GPU process {one_line(lines[0], 60)}" if lines else None

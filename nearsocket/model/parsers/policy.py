"""The memory policy in a line of numa_maps: `7f00 prefer (many):0-1 file=/usr/bin/python3 mapped=1 N0=1`."""

from __future__ import annotations

import re
from typing import Optional

# mpol_to_str in mm/mempolicy.c: the mode, `=static` or `=relative` and `|balancing`, and `:` with the nodes. Two modes
# have a space in their name, so the second column alone is not the policy.
_POLICY = re.compile(
    r"[0-9a-f]+ ((?:default|prefer \(many\)|prefer|bind|weighted interleave|interleave|local|unknown)"
    r"(?:=[a-z]+(?:\|[a-z]+)*)?(?::[0-9,-]*)?)(?: .*|)"
)


def policy(line: str) -> Optional[str]:
    """The policy's text, such as `default`, `bind:0` or `prefer (many):0-1`; None where the line is not one of numa_maps."""
    match = _POLICY.fullmatch(line.strip().split("\n", 1)[0])
    return match[1] if match else None

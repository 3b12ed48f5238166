"""The pure step from a snapshot to a host: `host(snapshot)`. One module for each thing that is made."""

from __future__ import annotations

from nearsocket.model.read.assemble import host

__all__ = ["host"]

"""The lab's own errors: one line of what was expected and found, one of what to do."""

from __future__ import annotations

from nearsocket.model.errors import NearsocketError


class LabError(NearsocketError):
    """A fault around the lab: a missing package, a full disk, a machine that does not boot."""


class ToolMissing(LabError):
    """A program that the lab needs is not installed here."""

"""This program as it runs now, for the ranks' Python: the zip's own bytes, or the folder of a checkout."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import nearsocket
from nearsocket.model.errors import NearsocketError


@dataclass(frozen=True)
class Program:
    """`data`: the zip; empty where `path` is a folder that the ranks can see too."""

    path: str
    data: bytes = b""


def program() -> Program:
    """The zip where this runs from one (the anonymous memory file that it came in), else the folder above the package."""
    above = Path(nearsocket.__file__).parent.parent
    if above.is_dir():
        return Program(str(above))
    data = above.read_bytes()
    if not zipfile.is_zipfile(above):
        raise NearsocketError(f"expected this program to be a zip or a folder, found {above}")
    return Program(str(above), data)

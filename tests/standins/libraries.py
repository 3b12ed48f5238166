"""Building a stand-in library from its source, as its package does it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.standins.gpu import packages


def built(source: str, out: Path) -> Path:
    """The library at `out`; the test is skipped where there is no compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here to build the stand-in library with")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f'-DSTANDIN_VERSION="{packages.VERSION}"']
    subprocess.run(["gcc", *flags, "-o", str(out), str(Path(packages.__file__).parent / source)], check=True)
    return out

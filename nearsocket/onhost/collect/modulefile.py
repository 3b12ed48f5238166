"""Which kernel module is the driver's on this host. Its file is nvidia.ko, but for Debian's own packages: they name it after the
package (nvidia-current.ko), and a line in modprobe.d leads from `nvidia` there. In memory it is `nvidia` all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.collect.files import text_or_none

#: modprobe.d(5), the earlier before the later: a file hides one of its name in a later folder.
_FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
_INSTALL = re.compile(r"^\s*install\s+nvidia\s+(.+)$", re.MULTILINE)
_LOADED = re.compile(r"\bmodprobe(?:\s+(?:-\S+|\$\w+))*\s+(nvidia(?:[-_][a-z0-9]+)*)(?![\w./-])")
#: The driver's other modules, whose names end so in any packaging.
_PARTS = ("drm", "uvm", "modeset", "peermem", "fs")
#: Where no line leads to one: NVIDIA's and Ubuntu's name, then Debian's.
_USUAL = ("nvidia", "nvidia-current-open", "nvidia-current")
#: The kernel has modules of its own whose names begin so.
_FILE = re.compile(r"nvidia(-open|-current(-open)?|-(tesla|legacy)(-\d+(xx)?)?(-open)?)?\.ko(\.(xz|gz|zst))?")


def is_module_file(name: str) -> bool:
    """Whether a file of that name is the driver's module itself, in any packaging."""
    return _FILE.fullmatch(name) is not None


def names(root: Path) -> tuple[str, ...]:
    """What the module may be called here, to be asked for in this order. One that modprobe.d names is the only one: whatever else
    lies on the disk, `modprobe nvidia` loads that or nothing."""
    for line in _lines(root):
        for word in _LOADED.findall(line):
            if re.split(r"[-_]", word)[-1] not in _PARTS:
                return (word,)
    return _USUAL


def version(release: str, root: Path, run: Callable[[Sequence[str], float], Output], limit_s: float) -> Optional[str]:
    """The version of the module that a kernel would load; None where it has none. Raises OSError, CommandTimeout."""
    for name in names(root):
        said = run(["modinfo", "-k", release, "-F", "version", name], limit_s)
        words = said.text.split()
        if said.code == 0 and words:
            return words[0]
    return None


def _lines(root: Path) -> list[str]:
    """What modprobe runs in place of loading `nvidia`; the first line that says so counts."""
    files: dict[str, Path] = {}
    for folder in _FOLDERS:
        for path in (root / folder.lstrip("/")).glob("*.conf"):
            files.setdefault(path.name, path)
    texts = [text_or_none(path, 1 << 16) or "" for _, path in sorted(files.items())]
    return [found for text in texts for found in _INSTALL.findall(text.replace("\\\n", " "))][:1]

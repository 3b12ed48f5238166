"""The program that travels to a server: one zip, made in memory, and the command that starts it there.

The server's login shell starts `python3 -c` with a short text that reads standard input: a marker line, the bootstrap
(`nearsocket/onhost/bootstrap.py`), the arguments, the zip and the program's own input. Everything before the marker is thrown
away (a password line that sudo did not need). The zip lands in an anonymous memory file and runs from /proc/self/fd: nothing is
written.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import shlex
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nearsocket
from nearsocket.model.errors import NearsocketError, UsageError

#: Exit codes of the start on the host. Others are the shell's or the interpreter's: 127 means that there is no python3.
EXIT_NO_PROGRAM = 1
EXIT_USAGE = 64
EXIT_CUT = 65
EXIT_TOO_OLD = 66
EXIT_NO_MEMFD = 67
#: The program started and the host could not do it (nearsocket/onhost/main.py).
EXIT_FAILED = 71
EXIT_NO_PYTHON = 127

MARKER = b"NEARSOCKET-PROGRAM/1"

#: One line without single quotes, backslashes, `$` or `!`, so that it stands in single quotes in sh, csh and fish alike.
#: The empty entry of sys.path is the current folder, where anybody may have left an `os.py`.
START = (
    "import sys;sys.path[:]=[p for p in sys.path if p];import os;"
    'f=os.fdopen(0,"rb");'
    f'h=next((l for l in iter(f.readline,b"") if l.startswith(b"{MARKER.decode()} ")),0)'
    'or sys.exit("nearsocket: expected the program on standard input, found none");'
    "source=f.read(int(h.split()[1]));exec(source)"
)
#: -B: a missing bytecode file must not be written; -E -s: PYTHONPATH and the user's site do not count (2.7 knows no -I).
FLAGS = ("-B", "-E", "-s", "-c")
MAIN = "from nearsocket.onhost.main import main\n\nmain()\n"


@dataclass(frozen=True)
class SudoMode:
    """How sudo is called: as which user, and whether its password is the first line of standard input."""

    password: bool = False
    user: str | None = None


@functools.cache
def build() -> bytes:
    """The zip: `nearsocket` (model and onhost) and pynvml; the same bytes for the same sources.

    Raises NearsocketError where pynvml (nvidia-ml-py) is not installed here.
    """
    package = Path(nearsocket.__file__).parent
    files = {"__main__.py": MAIN.encode(), "nearsocket/__init__.py": (package / "__init__.py").read_bytes()}
    for part in ("model", "onhost"):
        for path in (package / part).rglob("*.py"):
            files[f"nearsocket/{path.relative_to(package).as_posix()}"] = path.read_bytes()
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise NearsocketError(
            "expected the package nvidia-ml-py (pynvml) beside nearsocket, found none", "pip install nvidia-ml-py"
        )
    files["pynvml.py"] = Path(spec.origin).read_bytes()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            archive.writestr(entry, files[name], compresslevel=9)
    return whole.getvalue()


def payload(args: Sequence[str], given: bytes = b"") -> bytes:
    """What goes to standard input: marker line with four sizes, bootstrap, arguments parted by NUL, zip, the program's own input.

    Raises UsageError for an argument that holds a NUL.
    """
    if any("\0" in arg for arg in args):
        raise UsageError("expected arguments without NUL characters")
    arguments = "\0".join(args).encode("utf-8", "surrogateescape")
    bootstrap = (Path(nearsocket.__file__).parent / "onhost" / "bootstrap.py").read_bytes()
    program = build()
    header = b"%s %d %d %d %d\n" % (MARKER, len(bootstrap), len(arguments), len(program), len(given))
    return header + bootstrap + arguments + program + given


def remote_command(sudo: SudoMode | None) -> str:
    """The command line for the server's login shell. With a password, sudo reads it from the first line of standard input."""
    words = ["python3", *FLAGS, START]
    if sudo:
        words = ["sudo", *(("-S", "-p", "") if sudo.password else ("-n",)), *(("-u", sudo.user) if sudo.user else ()), "--", *words]
    return shlex.join(words)


def local_command() -> list[str]:
    """The argument list that runs the program on this machine, fed with the same `payload` on standard input."""
    return [sys.executable, *FLAGS, START]

"""Finds the folders checks, deploys, inventories and templates: in the project, else in the source checkout, else in the wheel.

Checks and deploys are code that runs with the rights of whoever calls nearsocket, often root's. So a project must say that it
is one, and a project that somebody else can write is refused rather than run.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

from nearsocket.model.errors import NearsocketError, UsageError

_PACKAGE = Path(__file__).resolve().parent
#: What makes a folder a project: this file (it may be empty), or a pyproject.toml with a table `[tool.nearsocket]`.
MARKER = "nearsocket.toml"


def project_folder(start: Path | None = None) -> Path | None:
    """The project that `start` (the current directory) lies in: the nearest marked folder; None outside.

    Marked means a file nearsocket.toml, or a pyproject.toml with a table `[tool.nearsocket]`. Raises UsageError where the nearest
    one, or what it would run from, is another user's or can be written by anybody.
    """
    try:
        here = (start or Path.cwd()).resolve()
    except FileNotFoundError:
        return None  # the current directory was removed
    for folder in (here, *here.parents):
        marker = _marker(folder)
        if marker is not None:
            if folder != _PACKAGE.parent:  # code of that folder runs already
                _must_be_trusted(folder, marker)
            return folder
    return None


def source_folder() -> Path:
    """The checkout that this package runs from. Raises NearsocketError where it runs from an installed wheel."""
    if _marker(_PACKAGE.parent):
        return _PACKAGE.parent
    raise NearsocketError(
        "expected to run from a source checkout, found an installed package", "run it in a clone of the repository"
    )


def checks_folder(start: Path | None = None) -> Path:
    """Where the checks are. Raises NearsocketError where an installation lacks them; so do the three below."""
    return _find("checks", start)


def deploys_folder(start: Path | None = None) -> Path:
    """Where the deploys are."""
    return _find("deploys", start)


def inventories_folder(start: Path | None = None) -> Path:
    """Where the example inventories are."""
    return _find("inventories", start)


def templates_folder(start: Path | None = None) -> Path:
    """Where the templates of the managed files are."""
    return _find("templates", start)


def _find(name: str, start: Path | None) -> Path:
    for root in _roots(start):
        if (root / name).is_dir():
            if root not in (_PACKAGE.parent, _PACKAGE / "_data"):
                _must_be_trusted(root / name, *sorted((root / name).glob("*.py")))
            return root / name
    raise NearsocketError(f"expected a folder {name} in the project or in the installation, found none", "install nearsocket again")


def _roots(start: Path | None) -> Iterator[Path]:
    project = project_folder(start)
    if project:
        yield project
    if _marker(_PACKAGE.parent):  # a source checkout
        yield _PACKAGE.parent
    yield _PACKAGE / "_data"


def _marker(folder: Path) -> Path | None:
    """The file that makes this folder a project; None where there is none."""
    own = folder / MARKER
    if own.is_file():
        return own
    shared = folder / "pyproject.toml"
    try:
        if not shared.is_file():  # a pipe would never end
            return None
        whole = tomllib.loads(shared.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return shared if "nearsocket" in whole.get("tool", {}) else None


def _must_be_trusted(*paths: Path) -> None:
    """Raises UsageError for the first of these that is neither the user's nor root's, or that anybody may write."""
    for path in paths:
        facts = path.stat()
        if facts.st_uid not in _trusted_users():
            found = f"one of uid {facts.st_uid}"
        elif facts.st_mode & stat.S_IWOTH:
            found = "one that every user can write"
        else:
            continue
        raise UsageError(
            f"{path}: expected a project of yours or root's, since its code would run as you; found {found}",
            "run it from another folder, or correct the owner and the mode",
        )


def _trusted_users() -> frozenset[int]:
    """Root, who runs this, and who called sudo (sudo sets SUDO_UID itself)."""
    who = {0, os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isdecimal():
        who.add(int(caller))
    return frozenset(who)

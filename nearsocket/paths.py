"""Finds the user's folders (checks, deploys, inventories, templates): in the project, the checkout, or the wheel."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from nearsocket.model.errors import NearsocketError

_PACKAGE = Path(__file__).resolve().parent


def project_folder(start: Path | None = None) -> Path | None:
    """The project that `start` (the current directory) lies in: the nearest folder that is laid out as one; None outside.

    Laid out means `checks/` beside `deploys/`, or a pyproject.toml with a table `[tool.nearsocket]`.
    """
    here = (start or Path.cwd()).resolve()
    return next((folder for folder in (here, *here.parents) if _is_project(folder)), None)


def source_folder() -> Path:
    """The checkout that this package runs from. Raises NearsocketError where it runs from an installed wheel."""
    if _is_project(_PACKAGE.parent):
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
            return root / name
    raise NearsocketError(f"expected a folder {name} in the project or in the installation, found none", "install nearsocket again")


def _roots(start: Path | None) -> Iterator[Path]:
    project = project_folder(start)
    if project:
        yield project
    if _is_project(_PACKAGE.parent):  # a source checkout; site-packages holds no checks/ beside deploys/
        yield _PACKAGE.parent
    yield _PACKAGE / "_data"


def _is_project(folder: Path) -> bool:
    if (folder / "checks").is_dir() and (folder / "deploys").is_dir():
        return folder.name != "site-packages"
    try:
        whole = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "nearsocket" in whole.get("tool", {})

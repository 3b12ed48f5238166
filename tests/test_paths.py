"""Where the user's folders are found: the project first, then the checkout, then the wheel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nearsocket import paths
from nearsocket.model.errors import NearsocketError, UsageError

ROOT = Path(__file__).resolve().parent.parent


def test_a_project_is_found_from_any_folder_below_it(tmp_path: Path) -> None:
    for name in ("checks", "deploys", "inventories", "sub/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "nearsocket.toml").touch()
    assert paths.project_folder(tmp_path / "sub" / "deep") == tmp_path
    assert paths.checks_folder(tmp_path / "sub" / "deep") == tmp_path / "checks"
    assert paths.inventories_folder(tmp_path) == tmp_path / "inventories"


def test_a_pyproject_with_our_table_makes_a_project_and_what_it_lacks_comes_from_the_installation(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.nearsocket]\n")
    (tmp_path / "checks").mkdir()
    assert paths.checks_folder(tmp_path) == tmp_path / "checks"
    assert paths.deploys_folder(tmp_path) == ROOT / "deploys"


def test_checks_beside_deploys_are_no_project_by_themselves(tmp_path: Path) -> None:
    for name in ("checks", "deploys", "sub"):
        (tmp_path / name).mkdir()
    assert paths.project_folder(tmp_path / "sub") is None
    assert paths.checks_folder(tmp_path) == ROOT / "checks"


def project(folder: Path) -> Path:
    (folder / "checks").mkdir(parents=True)
    (folder / "nearsocket.toml").touch()
    (folder / "checks" / "own.py").touch()
    return folder


@pytest.mark.parametrize("part", [".", "nearsocket.toml", "checks", "checks/own.py"])
def test_a_project_that_anybody_can_write_is_refused(tmp_path: Path, part: str) -> None:
    root = project(tmp_path / "p")
    assert paths.checks_folder(root) == root / "checks"
    (root / part).chmod(0o777)
    with pytest.raises(UsageError, match="that every user can write"):
        paths.checks_folder(root)


@pytest.mark.parametrize("part", [".", "nearsocket.toml", "checks", "checks/own.py"])
def test_another_users_project_is_refused_and_the_one_who_called_sudo_is_no_other(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(tmp_path / "p")
    whole = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        facts = whole(path, **options)
        return os.stat_result([*facts[:4], 4321, *facts[5:]]) if path == root / part else facts

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(paths.os, "geteuid", lambda: 0)
    monkeypatch.delenv("SUDO_UID", raising=False)
    with pytest.raises(UsageError, match="uid 4321"):
        paths.checks_folder(root)
    monkeypatch.setenv("SUDO_UID", "4321")
    assert paths.checks_folder(root) == root / "checks"


def test_a_pipe_in_place_of_a_marker_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pyproject.toml")
    os.mkfifo(tmp_path / "nearsocket.toml")
    assert paths.project_folder(tmp_path) is None


@pytest.mark.parametrize("text", ["[tool.other]\n", "not toml [", None])
def test_other_folders_are_no_project(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "checks").mkdir()
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert paths.project_folder(tmp_path) is None
    assert paths.checks_folder(tmp_path) == ROOT / "checks"


def test_the_current_directory_is_where_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.deploys_folder() == ROOT / "deploys"


def test_an_installed_wheel_carries_its_own_and_never_a_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    for name in ("nearsocket/_data/checks", "checks", "deploys"):  # other packages of these bare names
        (site / name).mkdir(parents=True)
    monkeypatch.setattr(paths, "_PACKAGE", site / "nearsocket")
    assert paths.checks_folder(tmp_path) == site / "nearsocket" / "_data" / "checks"
    with pytest.raises(NearsocketError, match="source checkout"):
        paths.source_folder()
    with pytest.raises(NearsocketError, match="expected a folder inventories"):
        paths.inventories_folder(tmp_path)


def test_this_runs_from_a_checkout() -> None:
    assert paths.source_folder() == ROOT

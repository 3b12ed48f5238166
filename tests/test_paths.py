"""Where the user's folders are found: the project first, then the checkout, then the wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket import paths
from nearsocket.model.errors import NearsocketError

ROOT = Path(__file__).resolve().parent.parent


def test_a_project_is_found_from_any_folder_below_it(tmp_path: Path) -> None:
    for name in ("checks", "deploys", "inventories", "sub/deep"):
        (tmp_path / name).mkdir(parents=True)
    assert paths.project_folder(tmp_path / "sub" / "deep") == tmp_path
    assert paths.checks_folder(tmp_path / "sub" / "deep") == tmp_path / "checks"
    assert paths.inventories_folder(tmp_path) == tmp_path / "inventories"


def test_a_pyproject_with_our_table_makes_a_project_and_what_it_lacks_comes_from_the_installation(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.nearsocket]\n")
    (tmp_path / "checks").mkdir()
    assert paths.checks_folder(tmp_path) == tmp_path / "checks"
    assert paths.deploys_folder(tmp_path) == ROOT / "deploys"


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

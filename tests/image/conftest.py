"""The stand-in for docker on PATH, and an image that was built in it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.image.store import BASE, TAG, Store, built


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store(tmp_path / "store")
    script = Path(__file__).with_name("standin_docker.py")
    for name in ("docker", "podman"):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {script} "$@"\n')
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("STANDIN_STORE", str(made.folder))
    return made


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test that needs a built image leaves a copy of its store for the others."""
    return tmp_path_factory.mktemp("template") / "images"


@pytest.fixture
def image(store: Store, template: Path) -> str:
    """The id of an image that was built on BASE and has the tag."""
    if not template.exists():
        store.add("base", digests=(BASE,))
        built(store)
        shutil.copytree(store.folder / "images", template, symlinks=True)
    else:
        shutil.rmtree(store.folder / "images")
        shutil.copytree(template, store.folder / "images", symlinks=True)
    key = store.tagged(TAG)
    assert key
    return key

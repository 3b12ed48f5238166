"""Verifying images and containers with a stand-in for docker: files are read out, an engine that hangs is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket.model.errors import NearsocketError
from nearsocket.model.image.kit import GAP
from nearsocket.onhost.image import engine as engines
from nearsocket.onhost.image.verify import verify_container, verify_image
from tests.image.kits import ADDED, EDITED, kit, package, source
from tests.image.store import ROOT, Store


@pytest.mark.parametrize(
    ("env", "variable", "doubt"),
    [
        ((), None, ""),
        (("TEST_PATCH=1",), "1", ""),
        (("TEST_PATCH=0", "PYTHONPATH=/opt/sg"), "0", ""),
        (("PYTHONPATH=/other",), None, "PYTHONPATH=/other may hold another sglang"),
    ],
)
def test_a_container_is_verified_as_it_is_now(
    store: Store, tmp_path: Path, env: tuple[str, ...], variable: str | None, doubt: str
) -> None:
    folder = package(tmp_path / "rootfs" / "opt/sg")
    store.container("engine", tmp_path / "rootfs", *env)
    docker = engines.find("docker")
    with pytest.raises(NearsocketError, match=r"expected the record .*, found none"):
        verify_container(docker, "engine", kit())
    with pytest.raises(NearsocketError, match=r"expected SGLang 1\.1 with test/1, found it unpatched"):
        verify_container(docker, "engine", kit(), ROOT)
    (folder / EDITED).write_bytes(source("1.1")[EDITED] + GAP + ADDED)
    found = verify_container(docker, "engine", kit(), ROOT)
    assert (found.release, found.variable, found.doubt) == ("1.1", variable, doubt)
    (folder / EDITED).with_name("ar.abi3.so").write_bytes(b"\x7fELF")
    with pytest.raises(NearsocketError, match=r"found a file that it loads instead"):
        verify_container(docker, "engine", kit(), ROOT)


def test_bytecode_that_is_not_checked_is_seen_in_a_container(store: Store, tmp_path: Path) -> None:
    folder = package(tmp_path / "rootfs" / "opt/sg")
    (folder / EDITED).write_bytes(source("1.1")[EDITED] + GAP + ADDED)
    cache = (folder / EDITED).parent / "__pycache__"
    cache.mkdir()
    (cache / "ar.cpython-311.pyc").write_bytes(b"MAGI\1\0\0\0" + b"x" * 8)
    store.container("engine", tmp_path / "rootfs")
    with pytest.raises(NearsocketError, match="found unchecked bytecode"):
        verify_container(engines.find("docker"), "engine", kit(), ROOT)


def test_a_link_in_a_container_is_not_followed(store: Store, tmp_path: Path) -> None:
    file = package(tmp_path / "rootfs" / "opt/sg") / EDITED
    file.rename(file.with_name("real.py"))
    file.symlink_to("real.py")
    store.container("engine", tmp_path / "rootfs")
    with pytest.raises(NearsocketError, match="found a symbolic link"):
        verify_container(engines.find("docker"), "engine", kit(), ROOT)


@pytest.mark.parametrize(
    "data", [b"{}", b"\xff", b'{"schema": "nearsocket.image-record/1", "root": "a/..", "patch": "", "kit": "", "release": ""}']
)
def test_a_record_that_is_none_is_refused(store: Store, tmp_path: Path, data: bytes) -> None:
    place = tmp_path / "rootfs/usr/local/share/nearsocket/image.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    store.container("engine", tmp_path / "rootfs")
    with pytest.raises(NearsocketError, match=r"image\.json: expected"):
        verify_container(engines.find("docker"), "engine", kit())


def test_no_image_and_no_engine_are_one_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NearsocketError, match="nothing:1: expected a stored image, found none"):
        verify_image(engines.find(), "nothing:1", kit())
    (store.folder / "fail-info").write_text("Cannot connect to the daemon\x1b[31m")
    with pytest.raises(NearsocketError, match=r"Cannot connect to the daemon\\x1b.*podman: expected it to answer"):
        engines.find()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NearsocketError, match="no docker on PATH; no podman on PATH"):
        engines.find()


def test_an_engine_that_hangs_is_left_at_the_limit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "COPY_S", 0.3)
    (store.folder / "hang-cp").touch()
    (store.folder / "hang-info").touch()
    (store.folder / "hang-pull").touch()
    docker = engines.Engine(str(store.folder.parent / "bin" / "docker"))
    with pytest.raises(NearsocketError, match=r"docker info: expected an answer within 0\.3 s, found none"):
        docker.run(["info"], 0.3)
    with pytest.raises(NearsocketError, match=r"docker pull: expected an end within 0\.3 s, found none"):
        docker.show(["pull", "x"], 0.3)
    with pytest.raises(NearsocketError, match=r"docker cp: expected an answer within 0\.3 s, found none"):
        docker.copy("engine", "/opt/sg")


def test_a_copy_that_is_too_large_is_refused(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path / "rootfs" / "opt/sg")
    store.container("engine", tmp_path / "rootfs")
    monkeypatch.setattr(engines, "MOST_BYTES", 100)
    with pytest.raises(NearsocketError, match="expected less than 0 MiB, found more"):
        engines.find("docker").copy("engine", "/opt/sg")


def test_a_copy_that_fails_is_not_taken_for_a_missing_file(store: Store) -> None:
    (store.folder / "fail-cp").write_text("permission denied")
    with pytest.raises(NearsocketError, match="docker cp: expected it to work, found: permission denied"):
        engines.find("docker").copy("engine", "/opt/sg")
    (store.folder / "fail-cp").unlink()
    with pytest.raises(NearsocketError, match="No such container: engine"):
        engines.find("docker").copy("engine", "/opt/sg")

"""Building, loading and verifying with a stand-in for docker: the tag moves last, a refusal leaves the old image its name."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearsocket.control import program
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.image.kit import GAP
from nearsocket.model.image.order import Order, answer, read_answer, read_order
from nearsocket.onhost.image import engine as engines
from nearsocket.onhost.image.build import build, present
from nearsocket.onhost.image.verify import verify_container, verify_image
from tests.image.kits import ADDED, EDITED, RELIED, files, kit, package, raw, source

BASE = "test/sglang@sha256:" + "ab" * 32
TAG = "near:1"
ROOT = "/opt/sg"


class Store:
    """The stand-in's images and containers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("images", "containers"):
            (folder / name).mkdir(parents=True)

    def add(
        self, key: str, version: str = "1.1", tags: tuple[str, ...] = (), digests: tuple[str, ...] = (), where: str = "images/"
    ) -> Path:
        home = self.folder / f"{where}{key}"
        package(home / "rootfs" / ROOT.lstrip("/"), version)
        config = {"Labels": None, "User": "", "Env": ["PATH=/bin"], "root": ROOT}
        (home / "image.json").write_text(json.dumps({"tags": tags, "digests": digests, "config": config}))
        return home / "rootfs" / ROOT.lstrip("/") / "sglang"

    def tagged(self, name: str) -> str | None:
        for path in self.folder.glob("images/*/image.json"):
            if name in json.loads(path.read_text())["tags"]:
                return path.parent.name
        return None

    def calls(self, command: str) -> int:
        lines = (self.folder / "calls").read_text().splitlines() if (self.folder / "calls").exists() else []
        return sum(line.split()[0] == command for line in lines)

    def container(self, name: str, rootfs: Path, *env: str) -> None:
        (self.folder / "containers" / name).write_text(json.dumps({"rootfs": str(rootfs), "env": env}))

    def archive(self, path: Path, **changed: Any) -> Path:
        """The image TAG as `docker save` would write it."""
        key = self.tagged(TAG)
        assert key
        meta = json.loads((self.folder / "images" / key / "image.json").read_text())
        manifest = [{"Config": "config.json", "RepoTags": [TAG], **changed.get("manifest", {})}]
        config = {"config": {**meta["config"], "Labels": {**(meta["config"]["Labels"] or {}), **changed.get("labels", {})}}}
        with tarfile.open(path, "w") as tar:
            for name, value in (("manifest.json", manifest), ("config.json", config)):
                data = json.dumps(value).encode()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
            tar.add(self.folder / "images" / key / "rootfs", arcname="rootfs")
        return path

    def forget(self) -> None:
        """No image has the tag any more."""
        for path in self.folder.glob("images/*/image.json"):
            path.write_text(json.dumps({**json.loads(path.read_text()), "tags": []}))


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


def order(**changed: Any) -> Order:
    plain = Order(
        tag=TAG, files=tuple(sorted(files(raw("1.0", "1.1")).items())), version="0.1.0", base=BASE, space_gib=0.0, engine="docker"
    )
    return replace(plain, **changed)


def kit_files() -> tuple[tuple[str, bytes], ...]:
    text = Path(__file__).resolve().parents[2] / "templates" / "image" / "Dockerfile"
    return tuple(sorted({**files(raw("1.0", "1.1")), "Dockerfile": text.read_bytes()}.items()))


def built(store: Store, **changed: Any) -> Any:
    return build(order(files=kit_files(), **changed), program.build())


def refused(store: Store, match: str, **changed: Any) -> None:
    """Refused, and the tag, the images and the containers are what they were."""
    before, images = store.tagged(TAG), sorted(path.name for path in (store.folder / "images").iterdir())
    with pytest.raises(NearsocketError, match=match):
        built(store, **changed)
    assert store.tagged(TAG) == before
    assert sorted(path.name for path in (store.folder / "images").iterdir()) == images
    assert list((store.folder / "containers").iterdir()) == []


def test_an_image_is_built_verified_and_named_and_is_there_the_second_time(store: Store) -> None:
    store.add("base", digests=(BASE,))
    assert present(order(files=kit_files())) is None
    first = built(store)
    assert (first.what, first.release, first.engine, first.tag) == ("built", "1.1", "docker", TAG)
    assert store.tagged(TAG) == first.image
    found = verify_image(engines.find("docker"), TAG, kit())
    assert (found.release, found.package, found.variable, found.doubt) == ("1.1", f"{ROOT}/sglang", None, "")
    again = built(store)
    assert (again.what, again.image) == ("present", first.image)
    assert present(order(files=kit_files())) == again
    assert store.calls("build") == 1
    assert list((store.folder / "containers").iterdir()) == []
    assert "is there already: SGLang 1.1 patched" in str(again)


def test_the_labels_say_base_patch_kit_and_hashes(store: Store, image: str) -> None:
    found = engines.find("docker").image(image)
    assert found is not None and found.user == "root"
    (edit,) = kit().releases[1].edits
    assert found.labels["nearsocket.image.base"] == BASE
    assert found.labels["nearsocket.image.patch"] == "test/1"
    assert found.labels["nearsocket.image.source"] == f"{EDITED}@sha256:{edit.before}"
    assert found.labels["nearsocket.image.patched"] == f"{EDITED}@sha256:{edit.after}"


def test_a_base_that_is_not_here_is_pulled(store: Store) -> None:
    store.add("registry", digests=(BASE,), where="")
    assert built(store).what == "built"
    assert store.calls("pull") == 1


def test_a_wrong_base_is_refused_before_any_build_and_the_old_image_kept(store: Store) -> None:
    store.add("base", "0.9", digests=(BASE,))
    store.add("old", tags=(TAG,))
    refused(store, r"state\.py: expected sha256 .* found sha256")
    assert store.calls("build") == 0


def test_a_failing_build_keeps_the_old_image(store: Store) -> None:
    store.add("base", digests=(BASE,))
    store.add("old", tags=(TAG,))
    (store.folder / "fail-build").write_text("no network")
    refused(store, "docker build: expected it to work, found exit code 125")


def test_a_build_whose_files_are_not_the_patch_is_taken_away_again(store: Store) -> None:
    store.add("base", digests=(BASE,))
    store.add("old", tags=(TAG,))
    (store.folder / "spoil").write_text(f"opt/sg/sglang/{EDITED}")
    refused(store, r"ar\.py: expected sha256")


def test_an_image_with_the_right_labels_and_wrong_files_is_made_anew(store: Store, image: str) -> None:
    with (store.folder / "images" / image / "rootfs/opt/sg/sglang" / EDITED).open("ab") as file:
        file.write(b"#\n")
    again = built(store)
    assert again.what == "built" and again.image != image and store.tagged(TAG) == again.image


def test_a_base_without_the_package_is_refused(store: Store) -> None:
    home = store.add("base", digests=(BASE,)).parents[3]
    meta = json.loads((home / "image.json").read_text())
    del meta["config"]["root"]
    (home / "image.json").write_text(json.dumps(meta))
    refused(store, "expected python3 in it to find sglang, found nothing")


def test_too_little_room_is_refused_first(store: Store) -> None:
    store.add("base", digests=(BASE,))
    refused(store, r"expected 1000000000\.0 GiB free for images, found", space_gib=1e9)
    assert store.calls("build") == store.calls("create") == 0


@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_is_loaded_and_is_there_the_second_time(store: Store, image: str, tmp_path: Path, packed: bool) -> None:
    path = store.archive(tmp_path / "near.tar")
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    store.forget()
    loaded = built(store, base=None, archive=str(path))
    assert loaded.what == "loaded" and store.tagged(TAG) == loaded.image
    assert built(store, base=None, archive=str(path)).what == "present"
    assert store.calls("load") == 1


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"manifest": {"RepoTags": ["other:1"]}}, "expected the one tag near:1, found other:1"),
        ({"manifest": {"RepoTags": None}}, "expected the one tag near:1, found no tag"),
        ({"labels": {"nearsocket.image.patch": "test/0"}}, "expected the label nearsocket.image.patch=test/1, found test/0"),
        ({"labels": {"nearsocket.image.kit": "0"}}, "expected the label nearsocket.image.kit="),
        ({"manifest": {"Config": "nothing"}}, "expected an image archive"),
    ],
)
def test_an_archive_of_another_image_is_refused_before_it_is_loaded(
    store: Store, image: str, tmp_path: Path, changed: dict[str, Any], match: str
) -> None:
    path = store.archive(tmp_path / "near.tar", **changed)
    store.forget()
    store.add("old", tags=(TAG,))
    refused(store, match, base=None, archive=str(path))
    assert store.calls("load") == 0


def test_an_archive_whose_files_are_not_the_patch_gives_the_name_back(store: Store, image: str, tmp_path: Path) -> None:
    path = store.archive(tmp_path / "near.tar")
    store.forget()
    store.add("old", tags=(TAG,))
    (store.folder / "spoil").write_text(f"opt/sg/sglang/{RELIED}")
    refused(store, r"state\.py: expected sha256", base=None, archive=str(path))
    assert store.calls("load") == 1


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b broken"])
def test_what_is_no_archive_is_refused(store: Store, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(data)
    refused(store, "expected an image archive", base=None, archive=str(tmp_path / "x.tar"))


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


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"tag": "Near:1"}, "expected name:tag"),
        ({"tag": "near"}, "expected name:tag"),
        ({"tag": "near:1 --rm"}, "expected name:tag"),
        ({"base": "test/sglang:latest"}, "expected NAME@sha256:DIGEST"),
        ({"base": None}, "expected either a base or an archive"),
        ({"archive": "/x.tar"}, "expected either a base or an archive"),
        ({"base": None, "archive": "x.tar"}, "expected an absolute path"),
        ({"engine": "rkt"}, "expected docker or podman"),
        ({"python": "python3; id"}, "expected a name or path"),
    ],
)
def test_an_order_that_cannot_be_is_wrong_usage(changed: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        order(**changed).checked()


def test_orders_and_answers_travel() -> None:
    assert read_order(order().to_json()) == order()
    with pytest.raises(UsageError, match="expected an image order"):
        read_order('{"tag": 1}')
    assert read_answer("motd\n" + answer(None), TAG) is None
    with pytest.raises(NearsocketError, match="no room") as caught:
        read_answer(answer(None, NearsocketError("no room", "make some")), TAG)
    assert caught.value.hint == "make some"
    with pytest.raises(NearsocketError, match="expected the image builder's answer, found bash: nothing"):
        read_answer("bash: nothing", TAG)

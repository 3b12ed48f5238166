"""A store of images for the stand-in for docker, and orders that are built in it."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearsocket.control import program
from nearsocket.model.image.order import Order
from nearsocket.onhost.image.build import build
from tests.image.kits import files, package, raw

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

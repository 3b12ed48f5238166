"""Proves that a stored image or a container carries exactly the patch: its files are read out, nothing of it is run."""

from __future__ import annotations

import io
import json
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.image import record as records
from nearsocket.model.image.kit import Kit
from nearsocket.model.image.tree import PYC_HEAD_BYTES, Entry, Kind, State, Tree, Verdict, demand, judge
from nearsocket.model.text import one_line
from nearsocket.onhost.image.engine import Engine
from nearsocket.onhost.image.folder import MOST_BYTES


@dataclass(frozen=True)
class Verified:
    """A package that is patched: its release, where it lies, and whether the environment turns the patch on.

    `variable`: the variable's value in the environment that the image or container sets, None where it sets none.
    `doubt`: why Python might import another package; empty where nothing says so.
    """

    release: str
    package: str
    variable: Optional[str]
    doubt: str = ""


def verify_image(engine: Engine, name: str, kit: Kit, root: Optional[str] = None) -> Verified:
    """Read the package out of a stored image. Raises NearsocketError where it is not patched, or there is no such image."""
    image = engine.image(name)
    if image is None:
        raise NearsocketError(f"{one_line(name, 200)}: expected a stored image, found none", "pull or build it first")
    with engine.unstarted(image.id) as container:
        return _verified(engine, container, image.env, name, kit, root)


def verify_container(engine: Engine, name: str, kit: Kit, root: Optional[str] = None) -> Verified:
    """Read the package out of a container as it is now, mounts included. Raises NearsocketError where it is not patched."""
    words = ["container", "inspect", "--format", "{{json .Config.Env}}", name]
    try:
        env = tuple(str(line) for line in json.loads(engine.run(words)) or ())
    except ValueError:
        raise NearsocketError(f"{engine.name} container inspect: expected its environment as JSON, found something else") from None
    return _verified(engine, name, env, name, kit, root)


def read_package(engine: Engine, container: str, root: str, kit: Kit) -> Tree:
    """What the kit looks at, out of a container. Paths are below the package in `root`."""
    package = posixpath.join(root, kit.package)
    tree: dict[str, Entry] = {}
    for folder in sorted({posixpath.dirname(path) for path in kit.edited}):
        for name, entry in _members(engine.copy(container, posixpath.join(package, folder))):
            inner = posixpath.join(folder, *name.split("/")[1:])
            if posixpath.dirname(inner) in (folder, posixpath.join(folder, "__pycache__")):
                tree[inner] = entry
    for path in kit.paths:
        if path not in tree:
            tree.update((path, entry) for _, entry in _members(engine.copy(container, posixpath.join(package, path))))
    return tree


def judge_package(engine: Engine, container: str, root: str, kit: Kit, where: str) -> Verdict:
    """The verdict on a container's package. Raises NearsocketError where it is no release of the kit."""
    verdict = judge(kit, read_package(engine, container, root, kit))
    demand(verdict, kit, one_line(where, 200))
    return verdict


def _verified(engine: Engine, container: str, env: tuple[str, ...], name: str, kit: Kit, root: Optional[str]) -> Verified:
    root = root or _recorded_root(engine, container, name)
    verdict = judge_package(engine, container, root, kit, name)
    if verdict.state is not State.PATCHED:
        raise NearsocketError(
            f"{one_line(name, 200)}: expected SGLang {verdict.release.version} with {kit.patch}, found it {verdict.state.value}",
            "nearsocket image build makes an image with it",
        )
    values = dict(line.partition("=")[::2] for line in env)
    path = values.get("PYTHONPATH", "")
    doubt = f"PYTHONPATH={one_line(path, 120)} may hold another {kit.package}" if path and root not in path.split(":") else ""
    return Verified(verdict.release.version, posixpath.join(root, kit.package), values.get(kit.variable), doubt)


def _recorded_root(engine: Engine, container: str, name: str) -> str:
    for _, entry in _members(engine.copy(container, records.PLACE)):
        if entry.kind is Kind.FILE:
            return records.read(entry.data).root
    raise NearsocketError(
        f"{one_line(name, 200)}: expected the record {records.PLACE}, found none",
        "not built by nearsocket; say with --root which folder in it holds sglang/",
    )


def _members(archive: Optional[bytes]) -> Iterator[tuple[str, Entry]]:
    """Names and entries of a tar archive in memory; none where there is no archive. Raises NearsocketError for a broken one."""
    if archive is None:
        return
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar:
                name = member.name.strip("/")
                if member.isdir():
                    yield name, Entry(Kind.FOLDER)
                elif member.issym():
                    yield name, Entry(Kind.LINK)
                elif not member.isfile():
                    # A hard link inside the archive is a file whose content stands under another name.
                    yield name, Entry(Kind.OTHER)
                else:
                    file = tar.extractfile(member)
                    most = PYC_HEAD_BYTES if name.endswith(".pyc") else MOST_BYTES
                    yield name, Entry(Kind.FILE, file.read(most) if file else b"")
    except tarfile.TarError as error:
        raise NearsocketError(f"expected a tar archive from the container, found: {one_line(str(error), 200)}") from None

"""Builds the patched image on a base, or loads it from an archive; the tag moves last, after the new image was verified."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.image.kit import DOCKERFILE, Kit, Release, read
from nearsocket.model.image.order import ADDED_GIB, PULLED_GIB, Order, Outcome
from nearsocket.model.text import one_line
from nearsocket.onhost.image import archive as archives
from nearsocket.onhost.image import engine as engines
from nearsocket.onhost.image.engine import Engine, Image
from nearsocket.onhost.image.verify import judge_package, verify_image

LABEL = "nearsocket.image."
#: Prints the folder that the base's own Python would import the package from, without importing it.
_FIND = (
    "import importlib.util as u,os;s=u.find_spec('{0}');print(os.path.dirname(list(s.submodule_search_locations)[0]) if s else '')"
)
_GIB = 1 << 30


def build(order: Order, program: bytes) -> Outcome:
    """Bring the image about. `program` is the zipped program, which applies the kit inside the build.

    Raises NearsocketError (exit 2) where it cannot be; the image that had the tag keeps it then.
    """
    kit = read(dict(order.checked().files))
    engine = engines.find(order.engine)
    old = engine.image(order.tag)
    there = _present(engine, order, kit, old)
    if there:
        return there
    if order.archive is not None:
        return _load(engine, order, kit, old)
    return _build(engine, order, kit, program)


def present(order: Order) -> Optional[Outcome]:
    """The image that is wanted, where it is there already; nothing is built or loaded."""
    kit = read(dict(order.checked().files))
    engine = engines.find(order.engine)
    return _present(engine, order, kit, engine.image(order.tag))


def _present(engine: Engine, order: Order, kit: Kit, old: Optional[Image]) -> Optional[Outcome]:
    """The image that is there, if it is the one that is wanted: by its labels, and by its files."""
    if old is None:
        return None
    wanted = {"patch": kit.patch, "kit": kit.digest, **({"base": order.base} if order.base else {})}
    if any(old.labels.get(LABEL + name) != value for name, value in wanted.items()):
        return None
    try:
        release = verify_image(engine, old.id, kit).release
    except NearsocketError:
        return None  # labels say one thing, files another: it is made anew
    return Outcome("present", old.id, release, engine.name, order.tag)


def _build(engine: Engine, order: Order, kit: Kit, program: bytes) -> Outcome:
    base = order.base or ""
    found = engine.image(base)
    _room(engine, order, ADDED_GIB if found else PULLED_GIB)
    if found is None:
        engine.show(["pull", base], order.timeout_s)
        found = engine.image(base)
    if found is None:
        raise NearsocketError(f"{base}: expected the base image after the pull, found none")
    root = _root(engine, order, kit)
    with engine.unstarted(base) as container:
        release = judge_package(engine, container, root, kit, base).release
    with tempfile.TemporaryDirectory(prefix="nearsocket-image-") as folder:
        context = Path(folder)
        _lay_out(context, kit, program)
        words = ["build", "--iidfile", str(context / "id"), "-f", str(context / DOCKERFILE)]
        for name, value in _arguments(order, kit, release, found).items():
            words += ["--build-arg", f"{name}={value}"]
        engine.show([*words, str(context)], order.timeout_s)
        made = (context / "id").read_text(encoding="ascii").strip().rpartition(":")[2]
    try:
        verified = verify_image(engine, made, kit)
    except NearsocketError:
        engine.remove(made)
        raise
    engine.tag(made, order.tag)
    return Outcome("built", made, verified.release, engine.name, order.tag)


def _root(engine: Engine, order: Order, kit: Kit) -> str:
    """Where the base's own Python finds the package. Raises NearsocketError where it does not."""
    words = ["run", "--rm", "--network", "none", "--entrypoint", order.python, order.base or "", "-B", "-c"]
    said = os.fsdecode(engine.run([*words, _FIND.format(kit.package)], 300.0)).strip()
    if not said.startswith("/") or "\n" in said:
        raise NearsocketError(
            f"{order.base}: expected {order.python} in it to find {kit.package}, found {one_line(said, 120) or 'nothing'}",
            "take an image of SGLang, or name its interpreter",
        )
    return said


def _arguments(order: Order, kit: Kit, release: Release, base: Image) -> dict[str, str]:
    return {
        "BASE": order.base or "",
        "BASE_USER": base.user or "0",
        "PYTHON": order.python,
        "PATCH": kit.patch,
        "KIT_DIGEST": kit.digest,
        "SOURCE_HASHES": " ".join(f"{edit.path}@sha256:{edit.before}" for edit in release.edits),
        "PATCHED_HASHES": " ".join(f"{edit.path}@sha256:{edit.after}" for edit in release.edits),
        "NEARSOCKET_VERSION": order.version,
    }


def _lay_out(context: Path, kit: Kit, program: bytes) -> None:
    (context / "kit").mkdir()
    for name, data in kit.files:
        (context / "kit" / name).write_bytes(data)
    (context / DOCKERFILE).write_bytes(kit.file(DOCKERFILE))
    (context / "nearsocket.pyz").write_bytes(program)


def _load(engine: Engine, order: Order, kit: Kit, old: Optional[Image]) -> Outcome:
    """Load an archive whose label and tag are right, verify what was loaded, give the tag back where it is not."""
    path = Path(order.archive or "")
    labels = archives.labels(path, order.tag)
    for name, value in (("patch", kit.patch), ("kit", kit.digest)):
        if labels.get(LABEL + name) != value:
            said = one_line(str(labels.get(LABEL + name, "none")), 80)
            raise NearsocketError(f"{path}: expected the label {LABEL}{name}={value}, found {said}", "save it from `image build`")
    packed = _packed(path)
    _room(engine, order, path.stat().st_size * (3 if packed else 1) / _GIB + ADDED_GIB)
    engine.load(path, packed, order.timeout_s)
    new = engine.image(order.tag)
    try:
        if new is None:
            raise NearsocketError(f"{order.tag}: expected the image after loading {path}, found none")
        release = verify_image(engine, new.id, kit).release
    except NearsocketError:
        if old is not None:
            engine.tag(old.id, order.tag)
        if new is not None and (old is None or new.id != old.id):
            engine.remove(new.id)
        raise
    return Outcome("loaded", new.id, release, engine.name, order.tag)


def _packed(path: Path) -> bool:
    """Whether it is a gzip file, by its first bytes (RFC 1952)."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _room(engine: Engine, order: Order, gib: float) -> None:
    """Raises NearsocketError where the engine's store has less room than that, or than the order says."""
    wanted = order.space_gib if order.space_gib is not None else gib
    store = engine.store()
    stats = os.statvfs(store)
    free = stats.f_bavail * stats.f_frsize / _GIB
    if free < wanted:
        raise NearsocketError(
            f"{one_line(str(store), 200)}: expected {wanted:.1f} GiB free for images, found {free:.1f} GiB",
            f"remove images that nobody uses ({engine.name} image prune), or say how much is enough",
        )

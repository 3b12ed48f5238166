"""The image kit on the operator's side: its files, and the manifest for new releases."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearsocket.model.errors import UsageError
from nearsocket.model.image.kit import DOCKERFILE, MANIFEST, SCHEMA, grown, sha256


def kit_files(folder: Path) -> dict[str, bytes]:
    """The files of a kit's folder, name to content. Raises UsageError where it is no kit."""
    if not (folder / MANIFEST).is_file() or not (folder / DOCKERFILE).is_file():
        raise UsageError(f"expected {MANIFEST} and {DOCKERFILE} in {folder}, found no such kit", "give its folder with --kit")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def manifest(files: Mapping[str, bytes], wheels: Sequence[Path]) -> str:
    """The manifest for these wheels: the same patch, the hashes of what it edits and relies on in each.

    Takes the paths from the kit's first release. Raises UsageError for a wheel that has not these files, or a kit without one.
    """
    try:
        raw: dict[str, Any] = json.loads(files[MANIFEST])
        first = raw["releases"][0]
        texts = {entry["path"]: files[entry["path"]] for entry in raw["texts"]}
        releases = [_release(first, texts, wheel) for wheel in wheels]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(f"{MANIFEST}: expected a manifest with one release to follow, found a fault at {error}") from None
    pinned = [{"path": name, "sha256": sha256(data)} for name, data in texts.items()]
    whole = {**raw, "schema": SCHEMA, "texts": pinned, "releases": sorted(releases, key=lambda entry: _number(entry["version"]))}
    return json.dumps(whole, indent=2) + "\n"


def _release(like: Mapping[str, Any], texts: Mapping[str, bytes], wheel: Path) -> dict[str, Any]:
    def member(path: str) -> bytes:
        try:
            return archive.read(f"sglang/{path}")
        except KeyError:
            raise UsageError(f"{wheel}: expected sglang/{path}, found none", "the patch needs a look at this release") from None

    try:
        with zipfile.ZipFile(wheel) as archive:
            edits = [
                {
                    "path": edit["path"],
                    "before": sha256(member(edit["path"])),
                    "after": sha256(grown(member(edit["path"]), texts[edit["append"]])),
                    "append": edit["append"],
                }
                for edit in like["edits"]
            ]
            relies_on = [{"path": pinned["path"], "sha256": sha256(member(pinned["path"]))} for pinned in like["relies_on"]]
    except zipfile.BadZipFile:
        raise UsageError(f"{wheel}: expected a wheel, found another file") from None
    version = wheel.name.split("-")[1] if wheel.name.count("-") >= 4 else ""
    if not version:
        raise UsageError(f"{wheel}: expected a wheel's file name, found {wheel.name!r}")
    return {
        "version": version,
        "wheel": {"path": wheel.name, "sha256": sha256(wheel.read_bytes())},
        "edits": edits,
        "relies_on": relies_on,
    }


def _number(version: str) -> list[tuple[int, str]]:
    return [(int(word), "") if word.isdigit() else (-1, word) for word in version.split(".")]

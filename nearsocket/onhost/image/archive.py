"""What a saved image says about itself, read from its archive before anything is loaded."""

from __future__ import annotations

import json
import tarfile
import zlib
from pathlib import Path
from typing import Any

from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import one_line

_MOST_BYTES = 8 << 20
#: podman's and docker's ways to write the same short name.
_PREFIXES = ("localhost/", "docker.io/library/", "docker.io/")


def labels(path: Path, tag: str) -> dict[str, str]:
    """The labels of the one image in the archive. Raises NearsocketError where it is not one image with that tag."""
    try:
        with tarfile.open(path, "r:*") as tar:
            manifest = json.loads(_read(tar, "manifest.json"))
            if not isinstance(manifest, list) or len(manifest) != 1:
                raise NearsocketError(f"{path}: expected an archive of one image, found {len(manifest)}")
            tags = [str(name) for name in manifest[0].get("RepoTags") or ()]
            if [_short(name) for name in tags] != [_short(tag)]:
                found = one_line(", ".join(tags), 200) or "no tag"
                raise NearsocketError(f"{path}: expected the one tag {tag}, found {found}", f"save it as {tag}")
            config = json.loads(_read(tar, str(manifest[0]["Config"])))
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError, KeyError, AttributeError, TypeError) as error:
        said = one_line(str(error), 200)
        raise NearsocketError(f"{path}: expected an image archive (docker save), found: {said}") from None
    found_labels: dict[str, Any] = (config.get("config") or {}).get("Labels") or {}
    return {str(name): str(value) for name, value in found_labels.items()}


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{name} is larger than {_MOST_BYTES >> 20} MiB")
    return data


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name

"""A small kit of two releases and packages that it fits: of the shape of the real one, with none of upstream's text."""

from __future__ import annotations

import json
from pathlib import Path

from nearsocket.model.image.kit import GAP, Kit, read, sha256

ADDED = b"# added\nVALUE = 2\n"
EDITED, RELIED = "srt/comm/ar.py", "srt/state.py"
SECOND = "srt/other/extra.py"


def source(version: str) -> dict[str, bytes]:
    """The files of a release; the edited one is the same in both, as in the real releases."""
    return {EDITED: b"VALUE = 1\n", RELIED: f"VERSION = '{version}'\n".encode(), SECOND: b"EXTRA = 1\n", "__init__.py": b""}


def raw(*versions: str, edits: tuple[str, ...] = (EDITED,)) -> dict[str, object]:
    return {
        "schema": "nearsocket.image-kit/1",
        "patch": "test/1",
        "variable": "TEST_PATCH",
        "package": "sglang",
        "texts": [{"path": "added.py", "sha256": sha256(ADDED)}],
        "releases": [
            {
                "version": version,
                "wheel": {"path": f"sglang-{version}.whl", "sha256": "0" * 64},
                "edits": [
                    {
                        "path": path,
                        "before": sha256(source(version)[path]),
                        "after": sha256(source(version)[path] + GAP + ADDED),
                        "append": "added.py",
                    }
                    for path in edits
                ],
                "relies_on": [{"path": RELIED, "sha256": sha256(source(version)[RELIED])}],
            }
            for version in versions
        ],
    }


def files(manifest: object) -> dict[str, bytes]:
    return {"kit.json": json.dumps(manifest).encode(), "added.py": ADDED, "Dockerfile": b"FROM x\n", "NOTICE": b"ours\n"}


def kit(*versions: str, edits: tuple[str, ...] = (EDITED,)) -> Kit:
    return read(files(raw(*(versions or ("1.0", "1.1")), edits=edits)))


def package(root: Path, version: str = "1.1") -> Path:
    """A package `sglang` in `root`; the package's folder."""
    for path, data in source(version).items():
        file = root / "sglang" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return root / "sglang"


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every path below `root` with mode and content (a link's target)."""
    found = {}
    for path in sorted(root.rglob("*")):
        data = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (path.lstat().st_mode, data)
    return found

"""`image apply` (inside an image's build) and `image build` (on a host): the program's entries for images."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Optional

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.image import record as records
from nearsocket.model.image.kit import Kit, read
from nearsocket.model.image.order import read_order
from nearsocket.onhost.image.apply import apply
from nearsocket.onhost.image.build import build
from nearsocket.onhost.image.folder import installed_root

USAGE = "image apply --kit DIR [--root DIR] [--record FILE] | image build --order JSON"


def run(words: list[str]) -> int:
    """Run the action; a refusal is one line on standard error, its hint another, and the exit code."""
    try:
        action, options = _parsed(words)
        if action == "apply":
            os.write(2, _safe(_apply(options)))
        else:
            os.write(1, _safe(build(read_order(options["--order"]), _program()).to_json()))
    except NearsocketError as error:
        os.write(2, _safe(f"nearsocket: {error.message}"))
        if error.hint:
            os.write(2, _safe(f"  {error.hint}"))
        return error.exit_code
    except OSError as error:
        os.write(2, _safe(f"nearsocket: {error.strerror}: {error.filename or 'no file'}"))
        return 2
    return 0


def read_kit(folder: Path) -> Kit:
    """The kit in a folder. Raises UsageError where it cannot be used."""
    if not folder.is_dir():
        raise UsageError(f"expected a folder with the image kit, found none at {folder}")
    return read({path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()})


def _apply(options: dict[str, str]) -> str:
    kit = read_kit(Path(options["--kit"]))
    root = Path(options["--root"]) if "--root" in options else installed_root(kit)
    changed, verdict = apply(root, kit)
    if "--record" in options:
        record = records.Record(str(root.resolve()), kit.patch, kit.digest, verdict.release.version)
        Path(options["--record"]).write_text(record.to_json(), encoding="utf-8")
    return f"{kit.patch}: {'applied to' if changed else 'in place in'} SGLang {verdict.release.version} in {root}"


def _parsed(words: list[str]) -> tuple[str, dict[str, str]]:
    action: Optional[str] = words[0] if words else None
    needed, known = {"apply": ("--kit", {"--kit", "--root", "--record"}), "build": ("--order", {"--order"})}.get(
        action or "", ("", set())
    )
    options = dict(zip(words[1::2], words[2::2]))
    if not action or not needed or len(words) % 2 == 0 or not set(options) <= known or needed not in options:
        raise UsageError("expected an action and its options", f"usage: {USAGE}")
    return action, options


def _program() -> bytes:
    """The zip that this process runs from (an anonymous file in memory on a server)."""
    return Path(sys.argv[0]).read_bytes()


def _safe(text: str) -> bytes:
    return (text + "\n").encode("utf-8", "backslashreplace")

"""The program's entries for images: `image apply` inside an image's build, `image present` and `image build` on a host."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Optional

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.image import record as records
from nearsocket.model.image.kit import Kit, read
from nearsocket.model.image.order import answer, read_order
from nearsocket.onhost.apply import freeze
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.image.apply import apply
from nearsocket.onhost.image.build import build, present
from nearsocket.onhost.image.folder import installed_root

USAGE = "image apply --kit DIR [--root DIR] [--record FILE] | image present --order JSON | image build --order JSON"


def run(words: list[str]) -> int:
    """Run the action. `apply`: exit 0, or 2 with one line on standard error. The others answer with JSON, a refusal too."""
    try:
        action, options = _parsed(words)
        if action == "apply":
            os.write(2, _safe(_apply(options)))
        else:
            os.write(1, _safe(_answer(action, options["--order"], options.get("--override-freeze"))))
    except NearsocketError as error:
        os.write(2, _safe(f"nearsocket: {error.message}"))
        if error.hint:
            os.write(2, _safe(f"  {error.hint}"))
        return error.exit_code
    return 0


def _answer(action: str, order: str, override: Optional[str]) -> str:
    try:
        if action == "present":
            return answer(present(read_order(order)))
        freeze.pass_or_refuse(Tree(), None, override, "nearsocket image build")
        return answer(build(read_order(order), _program()))
    except NearsocketError as error:
        return answer(None, error)
    except OSError as error:
        return answer(None, NearsocketError(f"{error.filename or 'image'}: {error.strerror or error}"))


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
        _write(Path(options["--record"]), record.to_json())
    return f"{kit.patch}: {'applied to' if changed else 'in place in'} SGLang {verdict.release.version} in {root}"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NearsocketError(f"{path}: expected to write the record, found: {error.strerror}") from None


def _parsed(words: list[str]) -> tuple[str, dict[str, str]]:
    action: Optional[str] = words[0] if words else None
    order = ("--order", {"--order", "--override-freeze"})
    every = {"apply": ("--kit", {"--kit", "--root", "--record"}), "present": order, "build": order}
    needed, known = every.get(action or "", ("", set()))
    options = dict(zip(words[1::2], words[2::2]))
    if not action or not needed or len(words) % 2 == 0 or not set(options) <= known or needed not in options:
        raise UsageError("expected an action and its options", f"usage: {USAGE}")
    return action, options


def _program() -> bytes:
    """The zip that this process runs from (an anonymous file in memory on a server)."""
    return Path(sys.argv[0]).read_bytes()


def _safe(text: str) -> bytes:
    return (text + "\n").encode("utf-8", "backslashreplace")

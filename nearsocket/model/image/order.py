"""What a person orders of the image builder, and what became of it: values that travel as JSON. Pure."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.text import one_line

_BASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}@sha256:[0-9a-f]{64}\Z")
_TAG = re.compile(r"[a-z0-9][a-z0-9._/-]*(:[0-9]+/[a-z0-9._/-]+)?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
#: Room in GiB: what a build on a present base adds, with slack for the builder's copies; and a base that must be pulled.
ADDED_GIB, PULLED_GIB = 2, 70


@dataclass(frozen=True)
class Order:
    """An image by its `tag`, from a `base` by digest or from an `archive` on the host; the kit's files, name to content.

    `python`: the interpreter inside the image. `space_gib`: free room asked for, None for the builder's own reckoning.
    """

    tag: str
    files: tuple[tuple[str, bytes], ...]
    version: str
    base: Optional[str] = None
    archive: Optional[str] = None
    engine: Optional[str] = None
    python: str = "python3"
    space_gib: Optional[float] = None
    timeout_s: float = 3600.0

    def checked(self) -> Order:
        """The order itself. Raises UsageError, one line, for what cannot be built."""
        if not _TAG.match(self.tag):
            raise UsageError(f"image tag: expected name:tag in lower case, found {one_line(repr(self.tag), 120)}")
        if self.engine not in (None, "docker", "podman"):
            raise UsageError(f"container engine: expected docker or podman, found {one_line(repr(self.engine), 60)}")
        if (self.base is None) == (self.archive is None):
            raise UsageError("image: expected either a base or an archive", "give --base NAME@sha256:... or --archive FILE")
        if self.base is not None and not _BASE.match(self.base):
            raise UsageError(
                f"image base: expected NAME@sha256:DIGEST, found {one_line(repr(self.base), 200)}",
                "a tag can move; docker image inspect --format '{{.RepoDigests}}' NAME shows the digest",
            )
        if self.archive is not None and not self.archive.startswith("/"):
            raise UsageError(f"image archive: expected an absolute path, found {one_line(repr(self.archive), 200)}")
        if not re.fullmatch(r"[A-Za-z0-9._/-]+", self.python):
            raise UsageError(f"python: expected a name or path, found {one_line(repr(self.python), 120)}")
        return self

    def to_json(self) -> str:
        """As it travels."""
        files = {name: base64.b64encode(data).decode("ascii") for name, data in self.files}
        return json.dumps({**self.__dict__, "files": files})


def read_order(text: str) -> Order:
    """The order from its JSON. Raises UsageError for a broken one."""
    try:
        raw: dict[str, Any] = json.loads(text)
        files = tuple(sorted((name, base64.b64decode(data)) for name, data in raw.pop("files").items()))
        return Order(files=files, **raw).checked()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError("expected an image order as JSON, found something else") from None


@dataclass(frozen=True)
class Outcome:
    """What became of it: `present`, `built` or `loaded`, the image's id, the engine's release, docker or podman."""

    what: str
    image: str
    release: str
    engine: str
    tag: str = ""

    def __str__(self) -> str:
        words = {"present": "is there already", "built": "built", "loaded": "loaded"}
        return (
            f"{self.tag} {words.get(self.what, self.what)}: SGLang {self.release} patched, image {self.image[:12]} ({self.engine})"
        )


#: How every answer of the image builder begins; what a login shell says before it is not ours.
ANSWER_BEGINS = '{"schema": "nearsocket.image-answer/1"'


def answer(outcome: Optional[Outcome], refusal: Optional[NearsocketError] = None) -> str:
    """The builder's answer as it travels: what became of it, nothing (no such image), or why it was refused. One line."""
    told = None if outcome is None else outcome.__dict__
    refused = None if refusal is None else {"message": refusal.message, "hint": refusal.hint}
    return json.dumps({"schema": "nearsocket.image-answer/1", "outcome": told, "refused": refused})


def read_answer(text: str, tag: str) -> Optional[Outcome]:
    """What a host answered, which is outside text. Raises NearsocketError where it refused, or where this is no answer."""
    start = text.find(ANSWER_BEGINS)
    try:
        raw = json.loads(text[start:].splitlines()[0] if start >= 0 else "")
        refused, told = raw["refused"], raw["outcome"]
        if refused is not None:
            message, hint = str(refused["message"]), refused["hint"]
        elif told is None:
            return None
        else:
            what, image, release, engine = (one_line(str(told[name]), 80) for name in ("what", "image", "release", "engine"))
            return Outcome(what, image, release, engine, tag)
    except (ValueError, KeyError, TypeError, IndexError):
        found = one_line(text.strip(), 120) or "nothing"
        raise NearsocketError(f"expected the image builder's answer, found {found}") from None
    raise NearsocketError(one_line(message, 600), one_line(str(hint), 300) if hint else None)

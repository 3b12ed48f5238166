"""Services of the compose files that containers' labels name: which run an engine, and what changed since one was started."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from nearsocket.model.host import Container, Host
from nearsocket.model.parsers import compose, take
from nearsocket.model.read import titles
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.reading import entries, files
from nearsocket.onhost.collect.redact import REDACTED

#: An engine's image by its name: `lmsysorg/sglang:v0.5.23`, `vllm/vllm-openai`, `registry:5000/my-sglang`.
_IMAGE = re.compile(r"(?:^|[/_.-])(?:sglang|vllm)(?:[/_.:@-]|$)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$[A-Za-z_{]")


@dataclass(frozen=True)
class Service:
    """A service of a project. `files`: those that name it; `told`: what they say, later files on top of earlier ones."""

    project: str
    name: str
    files: tuple[str, ...]
    told: Mapping[str, Any]

    @property
    def words(self) -> str:
        """In a line for people."""
        return f"service {self.name} of {', '.join(self.files)}"

    @property
    def serves(self) -> bool:
        """Whether it is an engine's by its command or image, or reserves GPUs."""
        started = [*_words(self.told.get("entrypoint")), *_words(self.told.get("command"))]
        return titles.engine(started) is not None or engines_image(self.told.get("image")) or _reserves(self.told)

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The services that it depends on."""
        others = self.told.get("depends_on")
        return tuple(map(str, others)) if isinstance(others, (list, dict)) else ()


def engines_image(image: object) -> bool:
    """Whether an image is an engine's by its name."""
    return isinstance(image, str) and bool(_IMAGE.search(image.partition("@")[0]))


def read(host: Host) -> tuple[dict[tuple[str, str], Service], dict[str, str]]:
    """Every service by project and name; and why a file could not be read, by its path."""
    parsed: dict[str, Mapping[str, Any]] = {}
    unread: dict[str, str] = {}
    for path, text in files(host, "compose").items():
        try:
            parsed[path] = _parse(text)
        except (ValueError, yaml.YAMLError, RecursionError) as error:
            unread[path] = one_line(str(error), 120)
    found: dict[tuple[str, str], Service] = {}
    for project, paths in projects(host):
        for path in paths:
            for name, told in parsed.get(path, {}).items():
                before = found.get((project, name))
                own = (*before.files, path) if before else (path,)
                found[project, name] = Service(project, name, own, {**(before.told if before else {}), **told})
    return found, unread


def _parse(text: str) -> dict[str, Mapping[str, Any]]:
    if text.startswith(compose.UNREAD):
        raise ValueError(text[len(compose.UNREAD) : -1])
    whole = yaml.safe_load(text)
    services = whole.get("services") if isinstance(whole, dict) else None
    if not isinstance(services, dict):
        raise ValueError("expected services, found none")
    return {str(name): told for name, told in services.items() if isinstance(told, dict)}


def projects(host: Host) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each project with its files, each pair once."""
    labels = [take.text_map(entry.get("compose")) for name in ("containers", "containers.stopped") for entry in entries(host, name)]
    yield from dict.fromkeys((compose.label(one, "project"), compose.paths(one)) for one in labels if compose.paths(one))


def _reserves(told: Mapping[str, Any]) -> bool:
    if told.get("gpus") or told.get("runtime") == "nvidia":
        return True
    value: Mapping[str, Any] = told
    for key in ("deploy", "resources", "reservations"):
        value = take.mapping(value.get(key))
    devices = take.maps(value.get("devices"))
    asked = {word for device in devices for word in take.texts(device.get("capabilities"))}
    return "gpu" in asked or any(device.get("driver") in ("nvidia", "cdi") for device in devices)


def _words(value: object) -> list[str]:
    """A command of a compose file as words; `$$` is a dollar sign there."""
    words: object = value
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError:
            words = value.split()
    return [str(word).replace("$$", "$") for word in words] if isinstance(words, list) else []


def changed(box: Container, service: Service) -> str | None:
    """What the files ask for and the running container does not have; None for nothing. Words with variables are not compared."""
    differs = []
    image = service.told.get("image")
    if isinstance(image, str) and not _VARIABLE.search(image) and REDACTED not in image and image != box.image:
        differs.append(f"image {one_line(image, 120)} (it runs {one_line(box.image, 120)})")
    first, rest = _words(service.told.get("entrypoint")), _words(service.told.get("command"))
    # Without an entry point in the file the image's own words stand in front.
    has = list(box.command) if first else list(box.command)[len(box.command) - len(rest) :]
    asked = [*first, *rest]
    if asked and rest and not _same(asked, has):
        differs.append(f"the words {one_line(shlex.join(asked), 160)}")
    return f"the file has changed since it was started: it asks for {' and '.join(differs)}" if differs else None


def _same(asked: Sequence[str], has: Sequence[str]) -> bool:
    """Word by word; one that was taken out, or that holds a variable, may be anything."""
    if len(asked) != len(has):
        return False
    return all(
        one == other or REDACTED in one or REDACTED in other or _VARIABLE.search(one) for one, other in zip(asked, has, strict=True)
    )

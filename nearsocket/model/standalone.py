"""A replica's files rewritten to stand alone: nothing in them needs nearsocket any more. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from nearsocket.model import programs, systemd
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Generation, ReplicaEntry
from nearsocket.model.places import VAR, acted_marker
from nearsocket.model.start import Start
from nearsocket.model.text import one_line

UNITS = "/etc/systemd/system"
#: Where distributions keep the environment of a service.
ENVIRONMENT = "/etc/default"
_HEAD = "# Once written by nearsocket, which has left this host; this file is its own now and may be changed."
#: Words of comments that stand above lines which go.
_OURS = ("`fingerprint`", "nearsocket plan", "relief", "docs/verify.md", "metrics")


@dataclass(frozen=True)
class Alone:
    """A file that takes the place of a managed one: absolute path, content, mode."""

    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Boot:
    """A link that starts a unit at boot, to the unit's own file."""

    path: str
    target: str


def alone(generation: Generation, starts: Mapping[str, Start]) -> tuple[tuple[Alone, ...], tuple[Boot, ...]]:
    """The files and boot links that keep every replica of the generation as it runs. `starts`: replica to its start record.

    Raises NearsocketError where a unit (of a changed template) still needs a file of nearsocket's.
    """
    manifest = generation.manifest
    files: list[Alone] = []
    for replica in manifest.replicas:
        base = replica.unit.rpartition(".")[0]
        text = _text(generation, f"systemd/{replica.unit}")
        made = _unit(text, replica, starts[replica.name], f"{ENVIRONMENT}/{base}")
        files.append(Alone(f"{UNITS}/{replica.unit}", made.encode()))
        files.append(Alone(f"{ENVIRONMENT}/{base}", _own_head(_text(generation, f"env/{replica.name}.env")).encode(), 0o600))
        for unit in (replica.slice, replica.mount):
            if unit:
                files.append(Alone(f"{UNITS}/{unit}", _own_head(_text(generation, f"systemd/{unit}")).encode()))
    units = {replica.unit for replica in manifest.replicas}
    boots = [
        Boot(link.path, f"{UNITS}/{name}")
        for link in manifest.links
        for name in [link.path.rpartition("/")[2]]
        if link.unit and ".wants/" in link.path and name in units
    ]
    return tuple(files), tuple(boots)


def _text(generation: Generation, path: str) -> str:
    content = generation.contents.get(path)
    if content is None:
        raise NearsocketError(f"expected {path} in the generation in force, found none", "run deploys/site.py: it puts all right")
    return content.decode("utf-8", "surrogateescape")


def _own_head(text: str) -> str:
    """The text without the two lines that say how nearsocket changes it."""
    lines = text.split("\n")
    rest = lines[2:] if lines and "nearsocket" in lines[0].lower() else lines
    return "\n".join([_HEAD, *rest])


def _unit(text: str, replica: ReplicaEntry, start: Start, environment: str) -> str:
    """The service without the program: a start makes its folder and secrets itself, and is bound as the plan said."""
    made: list[str] = []
    for line in _own_head(text).split("\n"):
        name, _, value = line.partition("=")
        if programs.PROGRAM in value:
            made += _prepare(start) if " fingerprint " in value else _hook(name, value)
        elif not (_reads_start(name, value, replica) or _speaks_of_us(line) or _of_the_proof(value, replica, start)):
            made.append(line.replace(f"{programs.CURRENT}/env/{replica.name}.env", environment))
    for line in made:
        if not line.startswith("#") and (programs.ETC + "/" in line or programs.LIB + "/" in line):
            raise NearsocketError(
                f"{replica.unit}: expected a unit that can stand alone, found a line that needs nearsocket: {one_line(line, 120)}",
                "change the template, apply it, then remove; or remove without keep_engines",
            )
    return "\n".join(made)


def _hook(name: str, value: str) -> list[str]:
    """The user's own hook behind the program that gives it a limit; none in another line of the program's."""
    _, mark, own = value.partition(" -- ")
    return [f"{name}=-{own}"] if mark and f"{programs.PROGRAM} hook " in value else []


def _reads_start(name: str, value: str, replica: ReplicaEntry) -> bool:
    return name == "EnvironmentFile" and value.lstrip("-") == programs.start_env(replica.name)


def _of_the_proof(value: str, replica: ReplicaEntry, start: Start) -> bool:
    """Whether it takes away what a start's proof leaves, which there is none of any more."""
    metrics = programs.metrics_file(start.verify.metrics, replica.name)
    return f"{VAR}/" in value or value.endswith((f" {metrics}", f" {acted_marker(replica.name)}"))


def _speaks_of_us(line: str) -> bool:
    return line.startswith("#") and line != _HEAD and any(word in line for word in _OURS)


def _prepare(start: Start) -> list[str]:
    """What `fingerprint` made for each start: the folder of NCCL's log, which the container writes to, and secrets.env."""
    folder = f"{programs.replica_folder(start.replica)}/start"
    words = ["/usr/bin/install", "-d", "-m", "1777", folder]
    lines = [f"ExecStartPre={' '.join(map(systemd.word, words))}"]
    if start.secrets:
        file = shlex.quote(programs.secrets_env(start.replica))
        reads = [f"printf '{name}=%s\\n' \"$(cat {shlex.quote(path)})\"" for name, path in sorted(start.secrets.items())]
        script = f"umask 077; {{ {' && '.join(reads)}; }} >{file}"
        lines.append(f"ExecStartPre=/bin/sh -ec {systemd.word(script)}")
    return lines

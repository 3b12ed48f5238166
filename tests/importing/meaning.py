"""What a container comes to, from `inspect` and from a rendered unit, in the same words: so that the two can be compared."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearsocket.model.generation import Generation
from tests.importing.inspects import GPUS, UUIDS

#: Options with more than one name, and what an engine takes where an option is missing.
_SAME = {"--tp": "--tp-size", "-tp": "--tp-size", "--tensor-parallel-size": "--tp-size", "--model": "--model-path"}


@dataclass(frozen=True)
class Meaning:
    """`program`: what starts the engine; `options`: name to value; `mounts`: source, target, read-only."""

    image: str
    program: tuple[str, ...]
    options: frozenset[tuple[str, str]]
    mounts: frozenset[tuple[str, str, bool]]
    environment: frozenset[str]
    gpus: frozenset[str]


def options(words: Sequence[str]) -> tuple[tuple[str, ...], frozenset[tuple[str, str]]]:
    """The program and its options; an engine's first plain word behind `serve` is its model."""
    at = next((n for n, word in enumerate(words) if word.startswith("--")), len(words))
    program, rest = list(words[:at]), list(words[at:])
    found: dict[str, str] = {}
    if program[:2] == ["vllm", "serve"] and len(program) == 3:
        found["--model-path"] = program.pop()
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        found[_SAME.get(name, name)] = value
    return tuple(program), frozenset(found.items())


def of_inspect(whole: dict[str, Any], image: str, gpus: Sequence[str]) -> Meaning:
    """Of a container that runs. `gpus`: PCI addresses that it was given, `image`: its digest reference."""
    program, said = options([whole["Path"], *whole["Args"]])
    mounts = frozenset((m["Source"], m["Destination"], not m["RW"]) for m in whole["Mounts"])
    return Meaning(image, program, said, mounts, frozenset(whole["Config"]["Env"]), frozenset(gpus))


def of_unit(generation: Generation, replica: str) -> Meaning:
    """Of what the unit of a replica starts."""
    entry = next(one for one in generation.manifest.replicas if one.name == replica)
    text = generation.contents[f"systemd/{entry.unit}"].decode()
    variables = dict(line.split("=", 1) for line in re.findall(r'^Environment="(.*)"$', text, re.MULTILINE))
    block = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert block
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(block[1].replace("\\\n", " "))]
    end = words.index("--entrypoint=")
    given = variables["GPUS"].replace('\\"', '"')
    gpus = [pci for pci, uuid in zip(GPUS, UUIDS, strict=True) if uuid in given]
    mounts = [dict(part.partition("=")[::2] for part in word[8:].split(",")) for word in words[:end] if word.startswith("--mount=")]
    engine = [word for word in words[end + 2 :] if word not in ("$NUMACTL", "$ENGINE_BINDING")]
    program, said = options(engine)
    env = generation.contents[f"env/{replica}.env"].decode().splitlines()
    return Meaning(
        words[end + 1],
        program,
        said,
        frozenset(
            (m["source"], m["target"], "readonly" in m) for m in mounts if not m["source"].startswith(("$", "/run/nearsocket"))
        ),
        frozenset(line for line in env if line and not line.startswith("#")),
        frozenset(gpus),
    )

"""An engine's command line taken apart: what the plan says by itself, what stays an argument, what is a secret."""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from nearsocket.control.container import TENSOR_RANKS, tells_ranks
from nearsocket.model.host import Engine
from nearsocket.model.plan.ports import FIRST
from nearsocket.model.read import titles
from nearsocket.onhost.collect.redact import REDACTED

#: Options by which the engine binds itself: the plan decides that. `--numa-bind` is a flag, the others take numbers.
BINDING = ("--numa-node", "--numa-bind", "--numa-bind-nodes")
#: Options that take no value, so that a plain word behind them is the model.
_FLAG = re.compile(r"--(?:no-|enable-|disable-)\S*|--trust-remote-code|--enforce-eager")
#: How each engine's own launch begins where the plan makes the command.
STARTS = {Engine.SGLANG: ("python3", "-m", "sglang.launch_server"), Engine.VLLM: ("vllm", "serve")}
MODEL = {Engine.SGLANG: ("--model-path", "--model"), Engine.VLLM: ("--model",)}
#: The engines' own words for every address and for this host alone.
_EVERY = {"": "0.0.0.0", "localhost": "127.0.0.1"}  # noqa: S104 - what an engine was told, not an address of ours
_DEFAULT_LISTEN = {Engine.SGLANG: "127.0.0.1", Engine.VLLM: "0.0.0.0"}  # noqa: S104


@dataclass(frozen=True)
class Words:
    """A command line. `whole`: without what the plan does in front (numactl) and without secrets; `rest`: of it what the plan
    does not say. `standard`: it begins as the plan's own does. `listen` None: not an address. `hidden`: options whose value is
    secret; `bound`: words that bind."""

    engine: Engine
    whole: tuple[str, ...]
    rest: tuple[str, ...]
    standard: bool
    model: str | None
    listen: str | None
    port: int
    ranks: str | None
    hidden: tuple[str, ...] = ()
    bound: tuple[str, ...] = field(default=())


def parse(command: Sequence[str], gpus: int) -> Words | None:
    """The engine's command line; None where it is none. `gpus`: how many the replica has."""
    engine = titles.engine(command)
    if engine is None:
        return None
    words, bound = _without_numactl(list(command))
    for name in BINDING:
        words, values = _take(words, name, _Values.NUMBERS)
        bound += [f"{name} {' '.join(values)}".strip()] if values is not None else []
    whole, hidden = _without_secrets(words)
    start = len(STARTS[engine])
    standard = tuple(whole[:start]) == STARTS[engine]
    rest = whole[start:] if standard else whole
    rest, model = _last(rest, MODEL[engine])
    rest, host = _one(rest, "--host")
    rest, port = _one(rest, "--port")
    rest, ranks = _last(rest, TENSOR_RANKS)
    if model is None and engine is Engine.VLLM:
        rest, model = _plain_model(rest, standard)
    if ranks is not None and (ranks != str(gpus) or tells_ranks(rest)):
        rest = [*rest, f"{'--tp-size' if engine is Engine.SGLANG else '--tensor-parallel-size'}={ranks}"]
    number = int(port) if port and port.isdigit() and 0 < int(port) < 65536 else FIRST[engine]
    listen = _DEFAULT_LISTEN[engine] if host is None else _address(host)
    return Words(engine, tuple(whole), tuple(rest), standard, model, listen, number, ranks, tuple(hidden), tuple(bound))


def with_port(words: Sequence[str], port: int) -> tuple[str, ...]:
    """The command line on another port."""
    rest, _ = _one(list(words), "--port")
    return (*rest, f"--port={port}")


def with_listen(words: Sequence[str], listen: str) -> tuple[str, ...]:
    """The command line on another address."""
    rest, _ = _one(list(words), "--host")
    return (*rest, f"--host={listen}")


def _address(text: str) -> str | None:
    text = _EVERY.get(text, text)
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _without_numactl(words: list[str]) -> tuple[list[str], list[str]]:
    """Without `numactl OPTIONS` in front, and that as one text."""
    if not words or words[0].rpartition("/")[2] != "numactl":
        return words, []
    at = 1
    while at < len(words) and words[at].startswith("-"):
        # -N 0, -m 0, -C 0: a short option's value is a word of its own; `--` ends the options.
        at += 2 if len(words[at]) == 2 and words[at] != "--" and words[at] not in ("-l", "-b") else 1
    return words[at:], [" ".join(words[:at])]


def _without_secrets(words: list[str]) -> tuple[list[str], list[str]]:
    """Without options whose value was redacted, and the names of these."""
    kept: list[str] = []
    hidden: list[str] = []
    for word in words:
        if REDACTED not in word:
            kept.append(word)
            continue
        name, equals, _ = word.partition("=")
        if word == REDACTED and kept and kept[-1].startswith("-"):
            hidden.append(kept.pop())
        elif word == REDACTED and hidden:
            continue  # a further value of the same option
        else:
            hidden.append(name if equals else "a word with a secret in it")
    return kept, hidden


def _plain_model(words: list[str], standard: bool) -> tuple[list[str], str | None]:
    """The words without vLLM's model, which stands alone: first, or behind what takes no further value; and it.

    Behind an option that is not known a plain word is taken for its value.
    """
    start = 0 if standard else words.index("serve") + 1 if "serve" in words else len(words)
    for at in range(start, len(words)):
        before = words[at - 1] if at > start else "="
        if not words[at].startswith("-") and ("=" in before or _FLAG.fullmatch(before)):
            return [*words[:at], *words[at + 1 :]], words[at]
    return words, None


def _last(words: list[str], names: Sequence[str]) -> tuple[list[str], str | None]:
    """The words without these options of one meaning, and the value that the last of their names has."""
    found = None
    for name in names:
        words, value = _one(words, name)
        found = value if value is not None else found
    return words, found


def _one(words: list[str], name: str) -> tuple[list[str], str | None]:
    rest, values = _take(words, name, _Values.ONE)
    return rest, values[-1] if values else None


class _Values(enum.Enum):
    """What an option takes."""

    ONE = re.compile(r"(?!-).*", re.DOTALL)
    NUMBERS = re.compile(r"[0-9][0-9,-]*")


def _take(words: list[str], name: str, values: _Values) -> tuple[list[str], list[str] | None]:
    """The words without that option, and its values; None where it is not there."""
    rest: list[str] = []
    found: list[str] | None = None
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == name:
            found = found or []
            while at < len(words) and values.value.fullmatch(words[at]):
                found.append(words[at])
                at += 1
                if values is _Values.ONE:
                    break
        elif word.startswith(f"{name}="):
            found = [*(found or []), word.partition("=")[2]]
        else:
            rest.append(word)
    return rest, found

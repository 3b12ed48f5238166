"""What a process's title tells: its engine, its place among the ranks and its port (FIELD_NOTES 5).

Engines rename their processes by setproctitle, which overwrites the command line: `sglang::scheduler_TP0`,
`sglang::scheduler_PP1_TP0_EP2`, `VLLM::Worker_DP0_PP1_TP3`, `VLLM::EngineCore_DP0`. The server's first process keeps its own:
`python3 -m sglang.launch_server ...`, `vllm serve ...`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.host import Engine

#: Programs whose arguments name an engine's command line that they do not run themselves.
_NOT_ENGINES = frozenset(
    ["docker", "podman", "nerdctl", "ctr", "crictl", "kubectl", "docker-init", "conmon", "containerd-shim", "containerd-shim-runc-v2", "sudo", "su", "ssh", "bash", "sh", "dash", "zsh", "timeout", "watch", "grep", "pgrep", "tail", "less", "vi", "vim", "nano", "systemd-run", "tee", "strace", "gdb", "tini", "dumb-init", "catatonit"]
)
_COORDINATE = re.compile(r"_(TP|PP|DP|EP)_?([0-9]{1,5})(?![0-9])")
_MODULE = {"sglang": Engine.SGLANG, "vllm": Engine.VLLM}


@dataclass(frozen=True)
class Coordinates:
    """A rank's place in its engine; None for a dimension that the title does not name."""

    tp: Optional[int] = None
    pp: Optional[int] = None
    dp: Optional[int] = None
    ep: Optional[int] = None


def engine(command: Sequence[str]) -> Optional[Engine]:
    """The engine that this command line runs, None for any other program (`docker run ... sglang` is Docker's client)."""
    if not command:
        return None
    first = command[0]
    if first.startswith("sglang::"):
        return Engine.SGLANG
    if first.startswith("VLLM::"):
        return Engine.VLLM
    words = list(command) if len(command) > 1 else first.split()
    names = [word.rpartition("/")[2] for word in words[:1]]
    if not names or names[0] in _NOT_ENGINES:
        return None
    for word, after in zip(words, [*words[1:], ""]):
        module = after.partition(".")[0] if word == "-m" else word.rpartition("/")[2]
        runs = word == "-m" or word is words[0] or (word is words[1] and names[0].startswith("python"))
        if runs and module in _MODULE:
            return _MODULE[module]
    return None


def coordinates(title: str) -> Coordinates:
    """The numbers after TP, PP, DP and EP in a title of an engine's process; none in any other text."""
    first = title.split(" ", 1)[0]
    if "::" not in first:
        return Coordinates()
    found = {name.lower(): int(number) for name, number in _COORDINATE.findall(first)}
    return Coordinates(found.get("tp"), found.get("pp"), found.get("dp"), found.get("ep"))


def port(command: Sequence[str]) -> Optional[int]:
    """The value of `--port`, None where there is none that is a port."""
    words = [part for word in command for part in word.split()] if len(command) == 1 else list(command)
    for word, after in zip(words, [*words[1:], ""]):
        text = after if word == "--port" else word[len("--port=") :] if word.startswith("--port=") else ""
        if re.fullmatch(r"[0-9]{1,5}", text) and 0 < int(text) < 65536:
            return int(text)
    return None


_LOG_RANK = re.compile(r"\brank ([0-9]{1,6}) nranks ([0-9]{1,6})\b")


def logged_rank(log: str) -> Optional[int]:
    """The rank in the largest communicator that an NCCL log tells of (`... rank 1 nranks 2 cudaDev 1 ...`)."""
    found = [(int(size), int(rank)) for rank, size in _LOG_RANK.findall(log)]
    largest = max((size for size, rank in found if rank < size), default=0)
    ranks = {rank for size, rank in found if size == largest and rank < size}
    return ranks.pop() if len(ranks) == 1 else None  # one log of several ranks: a process with several GPUs

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

#: Programs that name an engine's command line among their arguments and do not run it themselves.
_NOT_ENGINES = frozenset(
    {
        *("docker", "podman", "nerdctl", "ctr", "crictl", "kubectl", "docker-init", "conmon", "containerd-shim-runc-v2"),
        *("sudo", "su", "ssh", "bash", "sh", "dash", "zsh", "timeout", "watch", "grep", "pgrep", "tail", "less", "vi", "vim"),
        *("systemd-run", "tee", "strace", "gdb", "tini", "dumb-init", "catatonit"),
    }
)
#: Programs that become what they start: the command line with them in front is the engine's.
_BECOME_IT = frozenset({"numactl", "taskset", "nice", "ionice", "chrt", "env", "nohup", "setsid", "stdbuf"})
_MOST_STARTS = 16
#: What starts a server: a module after `-m`, a script, or a program and its first argument. Benchmarks are clients.
_SERVERS = (
    (re.compile(r"(.* )?-m sglang\.(launch_server|srt\.\S+)( .*)?"), Engine.SGLANG),
    (re.compile(r"\S+ (\S*/)?sglang/launch_server\.py( .*)?"), Engine.SGLANG),
    (re.compile(r"(\S*python[0-9.]* )?(\S*/)?sglang serve( .*)?"), Engine.SGLANG),
    (re.compile(r"(.* )?-m vllm\.entrypoints\.\S+( .*)?"), Engine.VLLM),
    (re.compile(r"(\S*python[0-9.]* )?(\S*/)?vllm serve( .*)?"), Engine.VLLM),
)
#: Longer command lines are cut before they are searched.
LINE_MAX = 8192
_COORDINATE = re.compile(r"_(TP|PP|DP|EP)_?([0-9]{1,5})(?![0-9])")


@dataclass(frozen=True)
class Coordinates:
    """A rank's place in its engine; None for a dimension that the title does not name."""

    tp: Optional[int] = None
    pp: Optional[int] = None
    dp: Optional[int] = None
    ep: Optional[int] = None


def engine(command: Sequence[str], comm: str = "") -> Optional[Engine]:
    """The engine that this command line runs, None for any other program (`docker run ... sglang` is Docker's client).

    `comm` is the name that counts where the command line is empty. The collector chooses processes by this, too.
    """
    first = (command[0] if command and command[0] else comm).lower()
    if first.startswith("sglang::"):
        return Engine.SGLANG
    if first.startswith("vllm::"):
        return Engine.VLLM
    words = " ".join(command)[:LINE_MAX].split()
    program = words[0].rpartition("/")[2] if words else ""
    if not words or program in _NOT_ENGINES:
        return None
    # Where the engine's own words begin behind options of numactl and the like is not known: every place is tried.
    starts = range(min(len(words), _MOST_STARTS)) if program in _BECOME_IT else range(1)
    lines = [" ".join(words[start:]) for start in starts]
    return next((found for line in lines for pattern, found in _SERVERS if pattern.fullmatch(line)), None)


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


_LOG_RANK = re.compile(r"\brank ([0-9]{1,6}) n[Rr]anks ([0-9]{1,6})\b")


def logged_rank(log: str) -> Optional[int]:
    """The rank in the largest communicator that an NCCL log tells of (`... rank 1 nranks 2 cudaDev 1 ...`)."""
    found = [(int(size), int(rank)) for rank, size in _LOG_RANK.findall(log)]
    largest = max((size for size, rank in found if rank < size), default=0)
    ranks = {rank for size, rank in found if size == largest and rank < size}
    return ranks.pop() if len(ranks) == 1 else None  # one log of several ranks: a process with several GPUs

"""Telling an engine's process by its command line or title."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: `sglang::scheduler_TP0`, `VLLM::Worker_TP0`, `vllm`, `sglang.launch_server`, `/opt/venv/bin/vllm`.
_ENGINE = re.compile(r"(?:\S*/)?(?:sglang|vllm)(?:\.[\w.]+|::\S*|-\w+)?(?:\s|\Z)", re.IGNORECASE)
#: Programs that only speak of an engine: a container's client, a shell, an editor, a search.
_SPEAKERS = (
    "docker podman nerdctl kubectl sudo su ssh bash sh dash zsh fish vi vim nano less more tail head cat grep pgrep watch"
    " tmux screen journalctl systemctl pip uv git strace"
)
_FIRST_WORDS = 12


def is_engine(command: Sequence[str], comm: str) -> bool:
    """Whether this is SGLang's or vLLM's own process (FIELD_NOTES 5: match the whole title, not the cut comm)."""
    words = [word for word in command if word]
    if re.match(r"(?:sglang|vllm)::", comm, re.IGNORECASE):
        return True
    if not words or words[0].rpartition("/")[2].split(" ")[0] in _SPEAKERS.split():
        return False
    return any(_ENGINE.match(word) for word in words[:_FIRST_WORDS])

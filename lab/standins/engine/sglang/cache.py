"""The prefix cache's bookkeeping: which prompts were seen, and how many tokens of a new one they cover. Words stand for tokens."""

from __future__ import annotations

import threading

KEPT = 256


class PrefixCache:
    """Prompts of the past, newest last."""

    def __init__(self) -> None:
        self._seen: list[list[str]] = []
        self._lock = threading.Lock()

    def look_up(self, text: str) -> tuple[int, int]:
        """Tokens of the prompt and how many of them are cached; the prompt is remembered. The last token is always computed."""
        words = text.split()
        with self._lock:
            cached = max((_common(words, other) for other in self._seen), default=0)
            self._seen = [*self._seen[-KEPT + 1 :], words]
        return len(words), min(cached, max(len(words) - 1, 0))

    def flush(self) -> None:
        """Forget all."""
        with self._lock:
            self._seen = []


def _common(one: list[str], other: list[str]) -> int:
    count = 0
    for a, b in zip(one, other):
        if a != b:
            break
        count += 1
    return count

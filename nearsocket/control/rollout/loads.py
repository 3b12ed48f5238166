"""How many hosts load models from one network file system at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Loads:
    """At most `most` hosts a file system (0: no limit); inside a host replicas load one after another."""

    def __init__(self, most: int) -> None:
        self.most, self.lock = most, threading.Lock()
        self.sources: dict[str, threading.BoundedSemaphore] = {}

    @contextlib.contextmanager
    def loading(self, sources: frozenset[str]) -> Iterator[None]:
        """While the block runs, models are loaded from these."""
        with contextlib.ExitStack() as held:
            for source in sorted(sources) if self.most else ():  # in one order everywhere: nobody waits for who waits for him
                with self.lock:
                    place = self.sources.setdefault(source, threading.BoundedSemaphore(self.most))
                held.enter_context(place)
            yield

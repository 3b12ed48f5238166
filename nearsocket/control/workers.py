"""Many hosts side by side, in as many threads as this machine gives; with none it is one host after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from typing import TypeVar

Result = TypeVar("Result")


def each(count: int, act: Callable[[int], Result], parallel: int) -> Generator[tuple[int, Result]]:
    """Do `act` for 0 to `count` - 1, `parallel` at a time; each number with its result, in the order in which they are done.

    What `act` raises is raised here. An interrupt or an error ends it, and so does closing it: nothing more is begun.
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result | BaseException]] = queue.SimpleQueue()
    for number in range(count):
        todo.put(number)

    def work() -> None:
        while True:
            try:
                number = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, act(number)))
            except BaseException as error:  # it belongs to the thread that waits below
                done.put((number, error))
                _empty(todo)

    try:
        started = _start(work, max(1, min(parallel, count)))
        for _ in range(count):
            if not started:
                number = todo.get_nowait()
                yield number, act(number)
                continue
            number, result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield number, result
    finally:
        _empty(todo)


def _start(work: Callable[[], None], wanted: int) -> int:
    """How many threads could be started: a limit on processes (ulimit -u) holds for threads too."""
    for started in range(wanted):
        try:
            threading.Thread(target=work, name=f"host-{started}").start()
        except RuntimeError:
            return started
    return wanted


def _empty(todo: queue.SimpleQueue[int]) -> None:
    try:
        while True:
            todo.get_nowait()
    except queue.Empty:
        return

"""Reading sources side by side, each in a forked child under its own time limit, all under one."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Callable, Optional

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import children
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.collect.files import Context

#: The limits of sources and commands are made for a whole of this many seconds. One that was given more, for a host that is slow
#: or busy, gives each part more too; one that was given less cuts the whole, not the parts.
USUAL_WHOLE_S = 60.0
#: How many sources are read at once: enough to hide slow commands, few enough to go unnoticed on a serving host.
WIDTH = 8
_GRACE_S = 0.2


@dataclass(frozen=True)
class Job:
    """One source: how it is read, its time limit in seconds, and the sources that it needs first."""

    name: str
    read: Callable[[Context], Source]
    limit_s: float = 10.0
    after: tuple[str, ...] = ()


@dataclass
class _Running:
    job: Job
    pid: int
    fd: int
    started: float
    end: float
    parts: list[bytes] = field(default_factory=list)


def guarded(read: Callable[[Context], Source], context: Context) -> Source:
    """The source, every fault of the outside world turned into its status and a reason of one line."""
    try:
        return read(context)
    except CommandTimeout as error:
        return Source(SourceStatus.TIMEOUT, reason=str(error))
    except (FileNotFoundError, NotADirectoryError) as error:
        return Source(SourceStatus.ABSENT, reason=_reason(error))
    except PermissionError as error:
        return Source(SourceStatus.DENIED, reason=_reason(error))
    except Exception as error:  # one odd source must not cost the other forty
        return Source(SourceStatus.ERROR, reason=_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, OSError) and text else f"{type(error).__name__}: {text}"


def run_jobs(jobs: Sequence[Job], context: Context, deadline: float) -> dict[str, Source]:
    """Every job's source. `deadline` is time.monotonic's; a source that did not answer by its end is a time-out."""
    done: dict[str, Source] = {}
    waiting = list(jobs)
    running: list[_Running] = []
    dying: dict[int, float] = {}
    awaited = {name for job in jobs for name in job.after}
    whole_s = deadline - time.monotonic()
    children.be_patient(whole_s / USUAL_WHOLE_S)
    poller = select.poll()
    while waiting or running:
        now = time.monotonic()
        for job in [job for job in waiting if all(name in done for name in job.after)][: WIDTH - len(running)]:
            waiting.remove(job)
            if now >= deadline:
                done[job.name] = Source(SourceStatus.TIMEOUT, reason="not reached within the time limit of the whole")
                continue
            usual_s = children.stretched(job.limit_s)
            # What others wait for may not use up the time of the whole: hanging NVML must leave some for the processes.
            limit_s = min(usual_s, whole_s / 3) if job.name in awaited else usual_s
            one = _start(job, replace(context, results=dict(done), end=min(now + limit_s, deadline)))
            running.append(one)
            poller.register(one.fd, select.POLLIN | select.POLLHUP)
        if not running:
            continue
        soonest = min([one.end for one in running] + list(dying.values()))
        ready = {fd for fd, _ in poller.poll(max(0.0, soonest - time.monotonic()) * 1000 + 1)}
        for one in list(running):
            ended = False
            if one.fd in ready:
                chunk = os.read(one.fd, 1 << 20)
                one.parts.append(chunk)
                ended = not chunk
            if ended or time.monotonic() >= one.end:
                poller.unregister(one.fd)
                os.close(one.fd)
                running.remove(one)
                done[one.job.name] = _finish(one, ended, dying)
        _kill_late(dying)
    _bury(dying)
    return done


def _start(job: Job, context: Context) -> _Running:
    def work(fd: int) -> None:
        value = asdict(guarded(job.read, context))
        children.send(fd, value)

    started = time.monotonic()
    pid, fd = children.fork(work)
    return _Running(job, pid, fd, started, context.end)


def _finish(one: _Running, ended: bool, dying: dict[int, float]) -> Source:
    took_s = time.monotonic() - one.started
    if not ended:
        # The child gets a moment to kill its own commands; the kernel may keep it longer, and nobody waits for that.
        try:
            os.kill(one.pid, signal.SIGTERM)
        except OSError:
            pass  # it ended just now
        dying[one.pid] = time.monotonic() + _GRACE_S
        return Source(SourceStatus.TIMEOUT, reason=f"no answer in {one.end - one.started:.1f} s", took_s=took_s)
    value = _decode(b"".join(one.parts))
    status = children.reap(one.pid)
    if value is None:
        how = f" (signal {os.WTERMSIG(status)})" if status is not None and os.WIFSIGNALED(status) else ""
        return Source(SourceStatus.ERROR, reason=f"the reader ended early{how}", took_s=took_s)
    return Source(SourceStatus(value["status"]), value["text"], value["data"], value["reason"], took_s)


def _decode(data: bytes) -> Optional[dict[str, Any]]:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _kill_late(dying: dict[int, float]) -> None:
    for pid, at in list(dying.items()):
        if children.reap(pid) is not None:
            del dying[pid]
        elif time.monotonic() >= at:
            children.kill_group(pid)
            del dying[pid]


def _bury(dying: dict[int, float]) -> None:
    while dying:
        _kill_late(dying)
        time.sleep(0.01)

"""A driver upgrade inside a pyinfra run: every host looked at while pyinfra prepares, host after host while it executes."""

from __future__ import annotations

import contextlib
import io
import re
import uuid
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakKeyDictionary

import click
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host as PyinfraHost
from pyinfra.api.operation import operation
from pyinfra.api.state import State

from nearsocket.control import checks, deploy
from nearsocket.control.reprovision import ask
from nearsocket.control.reprovision.job import Reprovision, target_version
from nearsocket.control.rollout import earlier
from nearsocket.control.rollout.connect import lines
from nearsocket.control.rollout.host import Course, turn
from nearsocket.control.rollout.job import Place
from nearsocket.control.rollout.look import look
from nearsocket.control.rollout.run import RESUME_WAIT_S, Manner
from nearsocket.control.target import Target
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.rollout.progress import Phase, Progress, unfinished
from nearsocket.model.rollout.report import WRONG
from nearsocket.report import rollout as page
from nearsocket.report import terminal

#: The host that failed in a run of pyinfra's, by the run: none is begun behind it.
_failed: WeakKeyDictionary[State, str] = WeakKeyDictionary()
#: One upgrade's id for all hosts of a run.
_ids: WeakKeyDictionary[State, str] = WeakKeyDictionary()


def reprovision_host(host: PyinfraHost, checks_folder: Path) -> None:
    """Look at the host now, upgrade it when its turn comes. Data: driver, reboot_limit, disturb, accept_unknown, resume, anew.

    One that an earlier rollout is not done with is gone on with (`resume`) or begun anew (`anew`), and refused without either. A
    host that is refused fails with one line and stops every other before anything is changed.
    """
    with deploy.failing_alone(host), _stopping_all(host):
        target, options, _ = deploy.target_of(host)
        if options.resume and options.anew:
            raise UsageError("expected one of resume and anew, found both", "leave one of them out")
        job = Reprovision(
            target_version(options.driver),
            ask.by(),
            checks.load([checks_folder, *options.nearsocket_checks]),
            timeout_s=options.nearsocket_timeout,
            reboot_limit_s=options.reboot_limit,
            accept_unknown=options.accept_unknown,
            disturb=options.disturb,
            override_freeze=options.override_freeze,
            check=deploy.dry(),
            anew=options.anew,
        )
        manner = Manner(job.by, wait_s=options.lock_wait, check=deploy.dry(), resume=options.resume, anew=options.anew)
        pending, left = _looked(host, target, job, manner)
        if pending:
            _upgrade(name=f"Nearsocket: driver {job.to}", target=target, job=job, wait_s=_wait_s(manner), left=left, _serial=True)


@contextlib.contextmanager
def _stopping_all(host: PyinfraHost) -> Iterator[None]:
    """A host that may not be begun keeps every other from being begun."""
    try:
        yield
    except Exception:
        _failed[host.state] = host.name
        raise


def _wait_s(manner: Manner) -> float:
    """How long to wait for who works on the host: who resumes may meet what a dead client left at work there."""
    return RESUME_WAIT_S if manner.resume else manner.wait_s


def _looked(host: PyinfraHost, target: Target, job: Reprovision, manner: Manner) -> tuple[bool, Progress | None]:
    """Whether there is anything to do, and the rollout that is gone on with. Raises NearsocketError where it may not be begun."""
    children = Children()
    with lines([target]) as ways:
        found = look(job, [target], ways, _wait_s(manner), 1, children)[target.name]
    left = _to_resume(found.left, target.name, job, manner)
    if found.ready is None:
        raise NearsocketError(found.reason or "the host could not be looked at", found.hint)
    for note in found.ready.notes:
        deploy.say(host, f"note: {note}")
    for change in found.ready.changes:
        deploy.say(host, change)
    if found.left is not None and found.left.phase is not Phase.VERIFIED and (manner.resume or manner.anew):
        return True, left  # whatever is left to change: it is proven, and said so on the host
    if not found.ready.pending:
        deploy.say(host, f"the driver is {found.ready.current} everywhere; 0 changes")
    return found.ready.pending, left


def _to_resume(left: Progress | None, name: str, job: Reprovision, manner: Manner) -> Progress | None:
    """The rollout that this host is not at the end of, where it is to be gone on with; a host asks for its own record alone.

    Raises NearsocketError where nobody says what to do with it, or it is another one.
    """
    there = {name: left}
    if unfinished(there) is None:
        return None
    try:
        return earlier.to_resume(there, {name: job.to}, job.name, manner)
    except NearsocketError as error:
        hint = re.sub(r"--(resume|anew)\b", r"--data \1=true", error.hint or "")
        raise NearsocketError(error.message, hint or None) from None


@operation(is_idempotent=True)
def _upgrade(target: Target, job: Reprovision, wait_s: float, left: Progress | None) -> Generator[FunctionCommand, None, None]:
    """The host's turn."""
    yield FunctionCommand(_turn, (target, job, wait_s, left), {})


def _turn(state: State, host: PyinfraHost, target: Target, job: Reprovision, wait_s: float, left: Progress | None) -> bool:
    """pyinfra's way of calling: whether it went well."""
    if state in _failed:
        deploy.say(host, f"not touched: {_failed[state]} failed")
        return False
    client = _ids.setdefault(state, uuid.uuid4().hex[:12])
    moment = datetime.now(UTC).strftime(earlier.FORMAT)
    course = Course(client, job.name, job.by, moment, {target.name: job.to}, wait_s)
    if left is not None:
        course = Course(left.id, left.job, left.by, left.started_at, left.wanted, wait_s, client)
    with lines([target]) as ways:
        place = Place(target, ways[target.name], Children())
        found = turn(job, place, course, 1, lambda _sources: contextlib.nullcontext())
    text = io.StringIO()
    page.show_host(found, terminal.console(text))
    click.echo(text.getvalue(), nl=False, err=True)
    if found.end in WRONG:
        _failed[state] = target.name
        return False
    return True

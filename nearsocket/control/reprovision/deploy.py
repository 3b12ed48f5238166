"""A driver upgrade inside a pyinfra run: every host looked at while pyinfra prepares, host after host while it executes."""

from __future__ import annotations

import contextlib
import io
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
from nearsocket.control.target import Target
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout.report import WRONG
from nearsocket.report import rollout as page
from nearsocket.report import terminal

#: The host that failed in a run of pyinfra's, by the run: none is begun behind it.
_failed: WeakKeyDictionary[State, str] = WeakKeyDictionary()
#: One upgrade's id for all hosts of a run.
_ids: WeakKeyDictionary[State, str] = WeakKeyDictionary()


def reprovision_host(host: PyinfraHost, checks_folder: Path) -> None:
    """Look at the host now, upgrade it when its turn comes. Data: driver, reboot_limit, disturb, accept_unknown.

    A host that is refused fails with one line and stops every other before anything is changed.
    """
    with deploy.failing_alone(host), _stopping_all(host):
        target, options, _ = deploy.target_of(host)
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
        )
        if _looked(host, target, job, options.lock_wait):
            _upgrade(name=f"Nearsocket: driver {job.to}", target=target, job=job, wait_s=options.lock_wait, _serial=True)


@contextlib.contextmanager
def _stopping_all(host: PyinfraHost) -> Iterator[None]:
    """A host that may not be begun keeps every other from being begun."""
    try:
        yield
    except Exception:
        _failed[host.state] = host.name
        raise


def _looked(host: PyinfraHost, target: Target, job: Reprovision, wait_s: float) -> bool:
    """Whether there is anything to do. Raises NearsocketError where it may not be begun."""
    children = Children()
    with lines([target]) as ways:
        found = look(job, [target], ways, wait_s, 1, children)[target.name]
    if found.ready is None:
        raise NearsocketError(found.reason or "the host could not be looked at", found.hint)
    for note in found.ready.notes:
        deploy.say(host, f"note: {note}")
    for change in found.ready.changes:
        deploy.say(host, change)
    if not found.ready.pending:
        deploy.say(host, f"the driver is {found.ready.current} everywhere; 0 changes")
    return found.ready.pending


@operation(is_idempotent=True)
def _upgrade(target: Target, job: Reprovision, wait_s: float) -> Generator[FunctionCommand, None, None]:
    """The host's turn."""
    yield FunctionCommand(_turn, (target, job, wait_s), {})


def _turn(state: State, host: PyinfraHost, target: Target, job: Reprovision, wait_s: float) -> bool:
    """pyinfra's way of calling: whether it went well."""
    if state in _failed:
        deploy.say(host, f"not touched: {_failed[state]} failed")
        return False
    moment = datetime.now(UTC).strftime(earlier.FORMAT)
    course = Course(_ids.setdefault(state, uuid.uuid4().hex[:12]), job.name, job.by, moment, {target.name: job.to}, wait_s)
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

"""Converging inside a pyinfra run: one exec reads a host, a second one applies, and only where something changes."""

from __future__ import annotations

import contextlib
import glob
import io
import sys
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import click
from pyinfra.api.command import FunctionCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host as PyinfraHost
from pyinfra.api.operation import operation
from pyinfra.api.state import State

from nearsocket.control import checks, converge, pyinfra_inventory, schema
from nearsocket.control.converge import Leave
from nearsocket.control.firstlook import FirstLook
from nearsocket.control.record import record
from nearsocket.control.target import Target
from nearsocket.control.through_pyinfra import OpenConnection
from nearsocket.control.waivers import Waiver
from nearsocket.model.errors import NearsocketError
from nearsocket.model.order import Order, Part
from nearsocket.model.outcome import Outcome
from nearsocket.model.probe.path import Result
from nearsocket.model.text import fault, one_line, visible


def converge_host(host: PyinfraHost, templates: Path, part: Part | None = None, checks_folder: Path | None = None) -> None:
    """Take the host to what the inventory says (`part`: that part of it), by the templates of that folder; nothing where it is so.

    `checks_folder`: a host that has nothing of ours yet is audited by these checks before, and refused where they find what a
    deploy does not cure (docs/apply.md). Hosts are changed one after another; the first that fails stops those behind it.
    Data: nearsocket_serve, nearsocket_replicas, nearsocket_tune (docs/fleet.md), nearsocket_timeout; allow_removals,
    accept_reload_risk, force. A host that is refused fails with one line and nothing written; the others go on.
    """
    with failing_alone(host):
        target, options, waivers = target_of(host)
        leave = leave_of(options)
        first = FirstLook(checks.load([checks_folder, *options.nearsocket_checks]), waivers) if checks_folder else None
        snapshot = converge.survey(target, OpenConnection(host), options.nearsocket_timeout)
        made_by = record(options.nearsocket_inventory or _inventory(host.state), datetime.now(UTC))
        ready = converge.prepare(target, snapshot, made_by, leave, templates, part, first)
        if ready.order is None:
            say(host, f"generation {ready.installed.number} is in force and as it should be; 0 changes")
        elif _shown(host, target, ready.order) or not ready.installed.clean:  # an apply that was cut short is to be ended too
            serial = part in (None, Part.ENGINE)
            _carry_out(name=f"Nearsocket: {_title(part)}", target=target, order=ready.order, serial=serial, _serial=serial)


def roll_back_host(host: PyinfraHost) -> None:
    """Go back to the generation before, or to `--data generation=N`, after the host saw that its images and models are there."""
    _one_order(host, "Nearsocket: go back to an earlier generation", lambda options: Order(number=options.generation), serial=True)


def remove_host(host: PyinfraHost) -> None:
    """Leave the host: everything off, old values and files back; `--data keep_engines=true` leaves the engines running on."""
    _one_order(host, "Nearsocket: leave this host", lambda options: Order(remove=True, keep_engines=options.keep_engines))


def _one_order(host: PyinfraHost, name: str, order_of: Callable[[schema.HostData], Order], serial: bool = False) -> None:
    """Carry out an order that rests on the data alone, shown before where a person is to see it."""
    with failing_alone(host):
        target, options, _ = target_of(host)
        order = converge.with_leave(order_of(options), leave_of(options))
        if _shown(host, target, order):
            _carry_out(name=name, target=target, order=order, serial=serial, _serial=serial)


def leave_of(options: schema.HostData) -> Leave:
    """What `--data` gives leave for."""
    return Leave(options.allow_removals, options.accept_reload_risk, options.force, options.override_freeze, options.lock_wait)


@contextlib.contextmanager
def failing_alone(host: PyinfraHost) -> Iterator[None]:
    """An error about this host fails it with its line. pyinfra would end the run for every host, and show a traceback."""
    try:
        yield
        return
    except NearsocketError as error:
        line = _line(error.message, error.hint)
    except PyinfraError:
        raise
    except Exception as error:  # what nobody foresaw in a host's answer
        line = f"expected to plan for this host, found: {fault(error)}"
    say(host, line)
    host.state.fail_hosts({host})


def _shown(host: PyinfraHost, target: Target, order: Order) -> bool:
    """Show what the order would do where a person is to see it first; whether there is anything to carry out."""
    if not (_asks() or host.state.config.DIFF):
        return True
    shown = converge.apply(target, OpenConnection(host), order, dry=True)
    _tell(host, shown, host.state.config.DIFF)
    if shown.error:
        raise NearsocketError(shown.error, shown.hint)
    return bool(shown.changes)


@operation(is_idempotent=True)
def _carry_out(target: Target, order: Order, serial: bool) -> Generator[FunctionCommand, None, None]:
    """The one apply."""
    yield FunctionCommand(_apply, (target, order, serial), {})


#: The host that failed in a run of pyinfra's, by the run. pyinfra's own `_serial` goes on behind a failure.
_failed: WeakKeyDictionary[State, str] = WeakKeyDictionary()


def _apply(state: State, host: PyinfraHost, target: Target, order: Order, serial: bool) -> bool:
    """pyinfra's way of calling: whether it went well. `serial`: not at all where a host before it failed."""
    if serial and state in _failed:
        say(host, f"not touched: {_failed[state]} failed")
        return False
    good = _applied(host, target, order)
    if serial and not good:
        _failed[state] = target.name
    return good


def _applied(host: PyinfraHost, target: Target, order: Order) -> bool:
    try:
        outcome = converge.apply(target, OpenConnection(host), order)
    except NearsocketError as error:
        say(host, _line(error.message, error.hint))
        return False
    _tell(host, outcome, False)
    return outcome.error is None


def target_of(host: PyinfraHost) -> tuple[Target, schema.HostData, tuple[Waiver, ...]]:
    """The host, its data, and the waivers that it brings. Raises UsageError."""
    data: dict[str, Any] = host.data.dict()
    target, entries = pyinfra_inventory.member(host.name, "ssh", list(host.groups), data, "pyinfra data")
    waivers = tuple(entry.waiver(entry.host or glob.escape(target.name)) for entry in entries)
    return target, schema.read_data(data, "pyinfra data"), waivers


def _asks() -> bool:
    """Whether a person sees the plan before it is carried out, or sees nothing but it: then it has to be shown."""
    return not {"-y", "--yes"} & set(sys.argv) or dry()


def dry() -> bool:
    """Whether pyinfra only shows what it would do: then a deploy writes nothing on a host."""
    return "--dry" in sys.argv


def _inventory(state: State) -> Path:
    """The inventory's file: the first that pyinfra's command line names; the current folder where it names none."""
    named = (Path(word) for word in sys.argv[1:] if word.endswith((".py", ".yaml", ".yml")))
    return next((path.resolve() for path in named if path.is_file()), Path(state.cwd or "."))


def _tell(host: PyinfraHost, outcome: Outcome, diff: bool) -> None:
    """What was or would be changed, each host's lines together."""
    text = io.StringIO()
    for note in outcome.notes:
        text.write(f"    note: {one_line(note)}\n")
    for change in outcome.changes:
        text.write(f"    {change}\n")
    for probed in outcome.probes:
        if probed.result is not Result.UNKNOWN:  # a note says that one
            text.write(f"    probe: {one_line(str(probed))}\n")
    if diff and outcome.diff:
        text.write(visible(outcome.diff))
    count = len(outcome.changes)
    verb = "pending" if outcome.dry else "made" if outcome.error is None else "begun"
    summary = (
        f"{count} change{'' if count == 1 else 's'} {verb}, generation {outcome.previous or 'none'} to {outcome.number or 'none'}"
    )
    states = ", ".join(f"{unit} {now}" for unit, now in outcome.states.items())
    say(host, summary + (f"; {states}" if states and not outcome.dry else ""))
    click.echo(text.getvalue(), nl=False, err=True)
    if outcome.error and not outcome.dry:
        say(host, _line(outcome.error, outcome.hint))


def say(host: PyinfraHost, line: str) -> None:
    """One line about the host."""
    click.echo(f"{host.print_prefix}{one_line(line)}", err=True)


def _line(message: str, hint: str | None) -> str:
    return one_line(message + (f" ({hint})" if hint else ""))


def _title(part: Part | None) -> str:
    return {None: "make the generation real", Part.TUNE: "tune the host", Part.ENGINE: "serve", Part.IMAGE: "pull images"}[part]

"""The patched image on a host of a pyinfra run: the order from its data, sent with the program over the open connection."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyinfra.api.command import FunctionCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host as PyinfraHost
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host as current_host

from nearsocket import __version__
from nearsocket.control import audit, program, pyinfra_inventory, schema
from nearsocket.control.imagekit import kit_files
from nearsocket.control.through_pyinfra import OpenConnection
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.image.order import Order, Outcome, read_answer

#: The options of deploys/image.py as pyinfra data, and the order's name for each.
DATA = {
    "nearsocket_image_tag": "tag",
    "nearsocket_image_base": "base",
    "nearsocket_image_archive": "archive",
    "nearsocket_image_engine": "engine",
    "nearsocket_image_python": "python",
    "nearsocket_image_space_gib": "space_gib",
    "nearsocket_image_timeout": "timeout_s",
}
#: How long a host may take to say whether the image is there.
PRESENT_S = 120.0


def order_from_data(data: Mapping[str, Any], files: Mapping[str, bytes]) -> Order:
    """The order that a host's data spell out. Raises UsageError for data that cannot be used."""
    given = {name: data[key] for key, name in DATA.items() if data.get(key) is not None}
    unknown = sorted(key for key in data if key.startswith("nearsocket_image_") and key not in DATA)
    if unknown:
        raise UsageError(f"pyinfra data: expected one of {', '.join(DATA)}, found {unknown[0]}")
    if "tag" not in given:
        raise UsageError("pyinfra data: expected nearsocket_image_tag, found none", "--data nearsocket_image_tag=sglang-near:1")
    usual = Order("", (), "")
    return Order(
        tag=str(given["tag"]),
        files=tuple(sorted(files.items())),
        version=__version__,
        base=_text(given, "base"),
        archive=_text(given, "archive"),
        engine=_text(given, "engine"),
        python=_text(given, "python") or usual.python,
        space_gib=_number(given, "space_gib"),
        timeout_s=_number(given, "timeout_s") or usual.timeout_s,
    ).checked()


def _text(given: Mapping[str, Any], name: str) -> str | None:
    return str(given[name]) if name in given else None


def _number(given: Mapping[str, Any], name: str) -> float | None:
    try:
        return float(given[name]) if name in given else None
    except (TypeError, ValueError):
        raise UsageError(f"pyinfra data: expected a number for {name}, found {given[name]!r}") from None


def image_on_host(host: PyinfraHost, folder: Path) -> None:
    """Have the patched image on one host of a pyinfra run; `folder` is the kit's.

    Raises PyinfraError, one line, for data that cannot be used. What a host refuses fails that host, with a line of its own.
    """
    try:
        order = order_from_data(host.data.dict(), kit_files(folder))
    except NearsocketError as error:  # pyinfra shows its own errors as a line, any other with a traceback
        raise PyinfraError(error.message + (f" ({error.hint})" if error.hint else "")) from None
    patched_image(name="The patched SGLang image is there", order=order)


@operation()
def patched_image(order: Order) -> Generator[FunctionCommand, None, None]:
    """The image is there, built or loaded where it was not. Nothing to do where the right one exists."""
    try:
        there = _ask(current_host, "present", order, PRESENT_S)
    except NearsocketError as error:
        yield FunctionCommand(_refused, (error,), {})  # an exception here would be a traceback
        return
    if there is not None:
        current_host.noop(str(there))
        return
    yield FunctionCommand(_build, (order,), {})


def _refused(state: State, host: PyinfraHost, error: NearsocketError) -> bool:  # noqa: ARG001 - pyinfra passes both
    """Tell why, and fail the host."""
    sys.stdout.write(f"{host.name}: {error.message}\n" + (f"  {error.hint}\n" if error.hint else ""))
    return False


def _build(state: State, host: PyinfraHost, order: Order) -> bool:
    """Whether the host has the image now; what became of it goes to standard output, a refusal as one line."""
    try:
        outcome = _ask(host, "build", order, order.timeout_s + PRESENT_S)
    except NearsocketError as error:
        return _refused(state, host, error)
    sys.stdout.write(f"{host.name}: {outcome}\n")
    return outcome is not None


def _ask(host: PyinfraHost, action: str, order: Order, timeout_s: float) -> Outcome | None:
    target, _ = pyinfra_inventory.member(host.name, "ssh", list(host.groups), host.data.dict(), "pyinfra data")
    override = schema.read_data(host.data.dict(), "pyinfra data").override_freeze
    if action == "build" and target.freeze and not target.freeze.over(datetime.now(UTC).date().isoformat()) and not override:
        hint = 'wait, or say why not: --data override_freeze="..."'
        raise NearsocketError(f"expected a host that may be changed, found it {target.freeze}", hint)
    words = ["image", action, "--order", order.to_json(), *(["--override-freeze", override] if override else [])]
    sent = audit.password_line(target.sudo) + program.payload(words)
    given = OpenConnection(host).run(audit.command(target), sent, timeout_s, Children())
    return read_answer(given.stdout.decode("utf-8", "replace"), order.tag)

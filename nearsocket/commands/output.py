"""Where a report goes and in which form: `--format`, `--output`, and `--json` as the short word for one of them."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from nearsocket.control import whole
from nearsocket.model import measured
from nearsocket.model.errors import EXIT_NOT_WRITTEN, NearsocketError, UsageError
from nearsocket.model.measured import Measured
from nearsocket.report.formats import SUFFIXES, Format

STANDARD_OUTPUT = Path("-")
_LARGEST_PROBE_BYTES = 64 << 20


class NotWritten(NearsocketError):
    """The report could not be written where it was to go."""

    exit_code = EXIT_NOT_WRITTEN


@dataclass(frozen=True)
class Outlet:
    """A file that `option` names for a text: a link is followed, an older file's mode stays. What is there and no file, such as
    /dev/stdout or a named pipe, is written to and stays what it is."""

    option: str
    path: Path

    def prepare(self) -> None:
        """Raises UsageError, before any host is read, where no file can be written there."""
        found = None
        try:
            if self.path.is_dir():
                found = "a folder"
            elif not _is_stream(self.path):
                with tempfile.NamedTemporaryFile(prefix=".", suffix=".tmp", dir=self.path.resolve().parent):
                    pass
        except (OSError, ValueError) as error:
            found = getattr(error, "strerror", None) or str(error)
        if found:
            raise UsageError(f"{self.option}: expected a file in a folder to write in, found {str(self.path)!r}: {found}")

    def write(self, text: str, what: str) -> None:
        """The text (`what` it is), whole or not at all. Raises NotWritten."""
        try:
            if _is_stream(self.path):
                with self.path.open("w", encoding="utf-8") as stream:
                    stream.write(text)
                return
            path = self.path.resolve()
            whole.write(path, text, _mode(path))
        except OSError as error:
            raise NotWritten(f"{self.path}: expected to write {what} there, found: {error.strerror}") from None


@dataclass(frozen=True)
class Destination:
    """A form, and a file; None is standard output."""

    form: Format
    path: Path | None

    def prepare(self) -> None:
        """Raises UsageError, before any host is read, where no file can be written there."""
        if self.path is not None:
            Outlet("--output", self.path).prepare()

    def write(self, text: str) -> None:
        """The text, whole or not at all. Raises NotWritten."""
        if self.path is None:
            click.echo(text, nl=False)
        else:
            Outlet("--output", self.path).write(text, "the report")


def measured_in(files: Sequence[Path], form: Format) -> tuple[Measured, ...]:
    """What the probes in these files measured. Raises UsageError for a file that holds none, and where no HTML page is made."""
    if files and form is not Format.HTML:
        raise UsageError(
            f"--probe: expected an HTML report, found --format {form.value}", "add --format html, or name a .html file"
        )
    found: list[Measured] = []
    for path in files:
        text = whole.read(path, "a probe", _LARGEST_PROBE_BYTES)
        try:
            found += measured.from_json(text)
        except UsageError as error:
            raise UsageError(f"{path}: {error.message}", error.hint) from None
    return tuple(found)


def _is_stream(path: Path) -> bool:
    """Whether it is there and no regular file or folder: /dev/stdout, a named pipe."""
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


def _mode(path: Path) -> int:
    """The older file's mode, or what the shell would give a new one."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `form`, `output` and `as_json`."""
    forms = click.Choice([form.value for form in Format])
    suffixes = "the file's ending decides without it"
    for option in (
        click.option(
            "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the report there, whole or not at all."
        ),
        click.option("--json", "as_json", is_flag=True, help="Short for --format json."),
        click.option("--format", "form", type=forms, help=f"The report's form; {suffixes}, else terminal."),
    ):
        command = option(command)
    return command


def destination(form: str | None, as_json: bool, output: Path | None) -> Destination:
    """What the options ask for. Raises UsageError where they contradict each other."""
    if as_json and form not in (None, Format.JSON.value):
        raise UsageError(f"expected one form, found --json and --format {form}", "leave one of them out")
    if output is not None and str(output) in ("", "."):
        raise UsageError("--output: expected a file, found an empty name")
    path = None if output == STANDARD_OUTPUT else output
    if form or as_json:
        return Destination(Format(form) if form else Format.JSON, path)
    return Destination(SUFFIXES.get(path.suffix.lower(), Format.TERMINAL) if path else Format.TERMINAL, path)

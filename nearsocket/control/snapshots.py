"""Snapshots as files and as answers: read with a cap, written whole or not at all, under names that no host can choose freely."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nearsocket.control import whole
from nearsocket.control.targets import SNAPSHOT_SUFFIX
from nearsocket.control.transport import LARGEST_ANSWER_BYTES, Answer, TransportError, Trouble
from nearsocket.model import read
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.host import Host
from nearsocket.model.snapshot import Snapshot, SnapshotError, from_json
from nearsocket.model.text import fault, one_line

_LONGEST_NAME = 200
#: How every snapshot that the program writes begins; what a login shell says before it is not ours.
_BEGINNING = b'{"schema": "nearsocket.snapshot/'
_MOST_TRIED = 32


def from_answer(answer: Answer, host: str) -> Snapshot:
    """The snapshot that the program on `host` wrote. Raises TransportError where it is cut or something else.

    The program repeats the name that it was given. An answer under another name is no answer of ours: it would take
    another host's waivers and its file.
    """
    fault: TransportError | None = None
    for line in _candidates(answer.stdout):
        try:
            snapshot = from_json(line.decode("utf-8", "replace"))
        except SnapshotError as error:
            hint = (
                "the answer was cut or is another program's: audit it again, and look at what the login shell of that host writes"
            )
            fault = fault or TransportError(Trouble.ANSWER, error.message, hint, answer.stderr)
            continue
        if snapshot.host == host:
            return snapshot
        message = f"expected the snapshot of {host!a}, found one that names itself {snapshot.host[:100]!a}"
        fault = fault or TransportError(Trouble.ANSWER, message, "look at what answers under that name", answer.stderr)
    message, hint = "expected a snapshot, found an empty answer", "look at what the login shell of that host does"
    raise fault or TransportError(Trouble.ANSWER, message, hint, answer.stderr)


def asked(ask: Callable[[], Answer], host: str) -> Snapshot:
    """The snapshot that comes of asking that host. Raises TransportError.

    One that is whole counts whatever end the program or the connection then had.
    """
    try:
        answer = ask()
    except TransportError as error:
        if not error.partial:
            raise
        try:
            return from_answer(Answer(error.partial, error.evidence, 0.0), host)
        except TransportError:
            raise error from None  # the end is the reason why it is not whole
    return from_answer(answer, host)


def parsed(snapshot: Snapshot, near: frozenset[int] | None) -> Host:
    """The host of that snapshot. Raises TransportError where what it says is so odd that no parser foresaw it.

    A snapshot is outside text: one such host must not end what is done for the others.
    """
    try:
        return read.host(snapshot, near)
    except Exception as error:
        found = one_line(f"expected a snapshot that can be parsed, found one that cannot ({fault(error)})", 300)
        hint = "report it with the snapshot: nearsocket audit --save DIR --scrub"
        raise TransportError(Trouble.ANSWER, found, hint) from None


def _candidates(stdout: bytes) -> Iterator[bytes]:
    """What may be the snapshot, the likeliest first: the program's line is the last that begins so.

    A login shell may say the like before it, on lines of its own or in front of the line, and anything after it.
    """
    tried, end = 0, len(stdout)
    while tried < _MOST_TRIED and (start := stdout.rfind(_BEGINNING, 0, end)) >= 0:
        line_end = stdout.find(b"\n", start)
        yield stdout[start : line_end if line_end >= 0 else len(stdout)]
        tried, end = tried + 1, start
    if not tried and stdout.strip():
        yield stdout.strip()


def from_file(path: Path) -> Snapshot:
    """The snapshot in that file. Raises UsageError, one line that names the file, for anything else."""
    text = whole.read(path, "a snapshot", LARGEST_ANSWER_BYTES)
    try:
        return from_json(text)
    except SnapshotError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from None


def file_name(host: str) -> str:
    """The file name for a host: letters, digits and `._-` stay, anything else becomes `_`; never hidden, never long."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", host)[:_LONGEST_NAME]
    return (f"_{plain}" if not plain or plain[0] in ".-" else plain) + SNAPSHOT_SUFFIX


def prepare(folder: Path, hosts: Iterable[str]) -> None:
    """Make the folder and see that every host can be saved there. Raises UsageError, one line, where that is not so."""
    hosts = tuple(hosts)
    check_names(hosts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".", suffix=".tmp", dir=folder):
            pass
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or error
        raise UsageError(f"--save: expected a folder to write in, found {str(folder)!r}: {found}") from None
    for host in hosts:
        path = folder / file_name(host)
        if path.exists():
            try:
                _must_be_of(host, path)
            except NearsocketError as error:
                raise UsageError(f"--save: {error.message}", error.hint) from None


def check_names(hosts: Iterable[str]) -> None:
    """Raises UsageError where two hosts would be written to one file."""
    owners: dict[str, str] = {}
    for host in hosts:
        other = owners.setdefault(file_name(host).lower(), host)
        if other is not host:
            raise UsageError(
                f"--save: expected a file for each host, found {file_name(host)} for {other!r} and {host!r}",
                "audit them one by one",
            )


def save(snapshot: Snapshot, folder: Path) -> Path:
    """Write `folder/<host>.snapshot.json`, whole or not at all, for its owner alone; an older one of the host is replaced.

    Raises NearsocketError where the file there is another host's, and where it cannot be written.
    """
    path = folder / file_name(snapshot.host)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _must_be_of(snapshot.host, path)
        whole.write(path, snapshot.to_json() + "\n", 0o600)
    except OSError as error:
        raise NearsocketError(f"{path}: expected to write a snapshot there, found: {error.strerror}") from None
    return path


def _must_be_of(host: str, path: Path) -> None:
    try:
        other = from_file(path).host
    except UsageError:
        other = None
    if other != host:
        found = f"the snapshot of {other!r}" if other is not None else "another file"
        raise NearsocketError(
            f"{path}: expected no file or an older snapshot of {host!r}, found {found}", "choose another folder, or remove it"
        )

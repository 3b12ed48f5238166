"""Reading hosts, or saved snapshots, for an import: side by side, each once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from nearsocket.control import snapshots
from nearsocket.control.audit import collect
from nearsocket.control.importing.engines import read_engines
from nearsocket.control.importing.values import Import
from nearsocket.control.target import Target
from nearsocket.control.transport import TransportError
from nearsocket.control.transport.process import Children
from nearsocket.model import read


def imports(targets: Sequence[Target], timeout_s: float, parallel: int) -> tuple[list[tuple[Target, Import]], dict[str, str]]:
    """What each host has, in the order of the targets; and why a host could not be read, by its name.

    Raises SnapshotError for a file that is no snapshot.
    """
    children = Children()
    pool = ThreadPoolExecutor(max_workers=max(1, min(parallel, len(targets))), thread_name_prefix="import")
    found: list[tuple[Target, Import]] = []
    failed: dict[str, str] = {}
    try:
        jobs = [(target, pool.submit(_one, target, timeout_s, children)) for target in targets]
        for target, job in jobs:
            try:
                found.append((target, job.result()))
            except TransportError as error:
                failed[target.name] = error.message + (f" ({error.hint})" if error.hint else "")
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        children.end_all()
        raise
    finally:
        pool.shutdown(wait=False)
    return found, failed


def _one(target: Target, timeout_s: float, children: Children) -> Import:
    snapshot = snapshots.from_file(target.file) if target.file is not None else collect(target, timeout_s, children)
    return read_engines(read.host(snapshot, target.near))

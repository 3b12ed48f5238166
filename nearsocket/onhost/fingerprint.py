"""ExecStartPre of a replica: is this still the host that the plan was made for? Then prepare the start: GPUs, folder, secrets.

Exit 0: start, bound or (nodes changed) unbound and loud; 2: refused. What it says goes to the unit's journal.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from nearsocket.model import env_file, programs, read, start
from nearsocket.model.errors import EXIT_FAILURES, NearsocketError, UsageError
from nearsocket.model.host import Host
from nearsocket.model.places import FINGERPRINT
from nearsocket.model.plan.fingerprint import Fingerprint, StartDecision, Verdict, decide, from_json, of_host
from nearsocket.model.plan.values import Gate
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.start import Start
from nearsocket.model.text import in_words
from nearsocket.onhost import options
from nearsocket.onhost.apply import disk, mounting
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.files import Context
from nearsocket.onhost.collect.runner import run_jobs
from nearsocket.onhost.collect.sources import JOBS
from nearsocket.onhost.startfile import load_start
from nearsocket.onhost.tell import tell
from nearsocket.onhost.verify import publish

#: What tells nodes and GPUs; the rest of a snapshot would only take time before a start.
SOURCES = ("nvml", "nodes", "cpus", "pci", "meminfo", "numactl", "nvidia.topo", "driver.files")
#: Of the unit's 120: beside another replica's start NVML alone has taken 20 s (seen on a slow machine).
_READ_S = 110.0
#: How many starts' folders stay, this one included.
KEPT = 5
_LARGEST_SECRET = 64 << 10


def main(words: Sequence[str], tree: Tree = Tree()) -> int:  # noqa: B008 - a frozen value
    """The whole program; its exit code."""
    given = options.parse(words, ("replica",))
    if "replica" not in given:
        raise UsageError("expected --replica NAME, found none")
    try:
        entry, expected = load(tree, given["replica"])
        for line in _begun(tree, entry):
            tell(line)
        decision = decide(expected, of_host(host_now(tree)), entry.gpus, entry.on_change)
        for line in prepare(tree, entry, decision, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())):
            tell(line)
    except NearsocketError as error:
        tell(f"not started: {error.message}" + (f" ({error.hint})" if error.hint else ""))
        return EXIT_FAILURES
    except OSError as error:
        tell(f"not started: {in_words(error)}")
        return EXIT_FAILURES
    return 0


def _begun(tree: Tree, entry: Start) -> tuple[str, ...]:
    """What the last start left goes: that its policy stopped it, its metrics in a folder that is another one now. Never fatal."""
    try:
        publish.forget(tree.root, entry.replica)
        publish.unmark(tree.root, entry.replica, entry.verify.metrics)
    except OSError as error:
        return (f"what the last start left was not removed: {in_words(error)}",)
    return ()


def load(tree: Tree, replica: str) -> tuple[Start, Fingerprint]:
    """The replica's start record and the plan's fingerprint, of the generation in force. Raises NearsocketError, OSError."""
    entry = load_start(tree, replica)
    try:
        value = json.loads(disk.read(tree.current / FINGERPRINT))
    except ValueError:
        raise NearsocketError("expected a fingerprint in the generation in force, found other text") from None
    return entry, from_json(value)


def host_now(tree: Tree) -> Host:
    """Nodes and GPUs as they are at this moment."""
    jobs = [job for job in JOBS if job.name in SOURCES]
    sources = run_jobs(jobs, Context(tree.root), time.monotonic() + _READ_S)
    taken_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return read.host(Snapshot("this host", taken_at, None, {"uid": os.geteuid()}, {}, sources))


def prepare(tree: Tree, entry: Start, decision: StartDecision, moment: str) -> tuple[str, ...]:
    """Make the start's folder, start.env and secrets.env; the lines to say. Raises NearsocketError where the start is refused."""
    if decision.verdict is Verdict.REFUSE:
        raise NearsocketError("; ".join(decision.warnings), "run deploys/site.py again: it plans for the host as it is now")
    unbound = decision.verdict is Verdict.UNBOUND
    if not unbound:
        _insist_on_mount(tree, entry)
    values = secrets(tree, entry)
    folder = tree.at(programs.replica_folder(entry.replica))
    own, said_of_it = _folder(tree, folder, moment)
    disk.replace(tree.at(programs.secrets_env(entry.replica)), values, 0o600)
    text = start.start_env(entry, names(entry, decision.uuids, tree), f"{programs.replica_folder(entry.replica)}/{own}", unbound)
    disk.replace(tree.at(programs.start_env(entry.replica)), text.encode(), 0o644)
    if not unbound:
        return (*decision.warnings, *said_of_it, "this is the host of the plan; the start is bound as planned")
    return (
        "WARNING: THE NODES ARE NOT THOSE OF THE PLAN; THIS START IS UNBOUND and its memory may lie far",
        *decision.warnings,
        *said_of_it,
        "run deploys/site.py again: it plans for the host as it is now",
    )


def names(entry: Start, uuids: Mapping[str, Optional[str]], tree: Tree) -> tuple[str, ...]:
    """How the replica's GPUs are called now, in rank order. Raises NearsocketError where one has no such name."""
    if entry.gate is Gate.CDI_INDEX:
        return start.named(entry, start.called(entry, host_now(tree).gpus))
    return start.named(entry, uuids)


def secrets(tree: Tree, entry: Start) -> bytes:
    """The content of secrets.env, in Docker's grammar. Raises NearsocketError, without the value, where one cannot be used."""
    values = {}
    for name in sorted(entry.secrets):
        path = entry.secrets[name]
        try:
            data = disk.read(tree.at(path), _LARGEST_SECRET)
            values[name] = data.decode("utf-8").rstrip("\r\n")
        except OSError as error:
            raise NearsocketError(f"secret {name}: expected a file at {path}, found: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise NearsocketError(f"secret {name}: expected a text in {path}, found bytes that are none") from None
    return "".join(f"{line}\n" for line in env_file.lines(values, entry.runtime)).encode()


def _insist_on_mount(tree: Tree, entry: Start) -> None:
    if entry.shm_point is None:
        return
    found = [(kind, choices) for point, kind, choices in mounting.mounts(tree) if point == entry.shm_point]
    policy = f"mpol={entry.shm_policy}"
    if not found or found[-1][0] != "tmpfs" or policy not in _parts(found[-1][1]):
        raise NearsocketError(
            f"expected a tmpfs with {policy} at {entry.shm_point}, found {found[-1][1] if found else 'no mount'}",
            "systemctl status of its mount unit says why",
        )


def _parts(choices: str) -> list[str]:
    """The options of a mount; a node list has commas of its own (`mpol=bind:0,2`), and its parts begin with a digit."""
    parts: list[str] = []
    for part in choices.split(","):
        if parts and part[:1].isdigit():
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def _folder(tree: Tree, folder: Path, moment: str) -> tuple[str, tuple[str, ...]]:
    """Make this start's folder, which the container may write to, and remove the oldest ones; its name, and what went wrong.

    What containers left there must not keep the next start from being one. A folder under another root is in nobody's /run.
    """
    disk.make_folders(folder, 0o711)
    name = f"{moment}-{os.getpid()}"
    (folder / name).mkdir(0o700)
    told: list[str] = []
    problem = mounting.small(folder / name) if tree.root == Path("/") else None
    if problem:
        told.append(f"the folder of NCCL's logs has no limit of its own: {problem}")
    (folder / name).chmod(0o1777)
    others = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink() and path.name != name)
    for path in others[: -(KEPT - 1)]:
        try:
            mounting.release(tree, path)
            disk.remove_tree(path)
        except OSError as error:
            told.append(f"the folder of an earlier start was not removed: {in_words(error)}")
    return name, tuple(told)

"""ExecStartPre of a replica: take page cache off the near nodes, so that the start's memory finds room there.

Policies (model/settings.py): `drop` the whole host's clean page cache; `near` the near nodes' (kernel 6.17 and newer); `weights`
the model's own files; `auto`: drop where there is no neighbour, else near, else weights; `none`. It never fails a start: exit 1
warns.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.settings import Relief
from nearsocket.model.text import in_words, one_line
from nearsocket.onhost import neighbours, options
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.startfile import load_start
from nearsocket.onhost.tell import tell

_LINE = re.compile(r"^Node \d+ (\w+(?:\(\w+\))?):\s+(\d+) kB$", re.MULTILINE)
_GIB = 1 << 30


def main(words: Sequence[str], tree: Tree = Tree()) -> int:  # noqa: B008 - a frozen value
    """The whole program; its exit code: 0, or 1 with a warning."""
    given = options.parse(words, ("replica", "policy", "nodes", "timeout"))
    if "replica" not in given:
        raise UsageError("expected --replica NAME, found none")
    try:
        entry = load_start(tree, given["replica"])
        policy = Relief(given.get("policy", entry.relief.value))
        nodes = cpulist.parse(given.get("nodes", entry.near))
        limit_s = options.seconds(given.get("timeout", str(entry.relief_timeout_s)), 1, 3600)
        neighbour = neighbours.find(entry.container) if policy is Relief.AUTO else None
        warnings = relieve(tree, policy, nodes, entry.model, limit_s, neighbour)
    except (NearsocketError, OSError, ValueError) as error:
        warnings = [
            error.message if isinstance(error, NearsocketError) else in_words(error) if isinstance(error, OSError) else str(error)
        ]
    for warning in warnings:
        tell(f"warning: {warning}; the start goes on")
    return 1 if warnings else 0


def relieve(tree: Tree, policy: Relief, nodes: frozenset[int], model: str, limit_s: float, neighbour: Optional[str]) -> list[str]:
    """Carry out the policy within the limit and say free memory before and after; the warnings. `neighbour`: who it is, if any."""
    end = time.monotonic() + limit_s
    before = free(tree, nodes)
    tell(f"before relief: {shown(before)}")
    chosen = choose(tree, policy, nodes, neighbour)
    if neighbour and policy is Relief.AUTO:
        tell(f"relief {chosen.value}, not drop, which would cost others their page cache: {neighbour}")
    if chosen is Relief.NONE:
        return []
    warnings = []
    for what, run in _steps(tree, chosen, nodes, model):
        left_s = end - time.monotonic()
        problem = bounded(run, left_s) if left_s > 0 else "no time left"
        if problem:
            warnings.append(f"{what}: {problem}")
    after = free(tree, nodes)
    tell(f"after relief ({chosen.value}): {shown(after)}")
    arc = _arc_bytes(tree)
    if arc:
        tell(f"ZFS keeps {arc / _GIB:.1f} GiB in its own cache, which no relief empties; its cap is zfs_arc_max")
    return warnings


def choose(tree: Tree, policy: Relief, nodes: frozenset[int], neighbour: Optional[str]) -> Relief:
    """What `auto` comes to here; another policy is itself."""
    if policy is not Relief.AUTO:
        return policy
    if neighbour is None:
        return Relief.DROP
    return Relief.NEAR if nodes and all(_reclaim(tree, node).exists() for node in nodes) else Relief.WEIGHTS


def _steps(tree: Tree, policy: Relief, nodes: frozenset[int], model: str) -> list[tuple[str, Callable[[], None]]]:
    """What is done, each with its name. Only clean pages can go, so the model's file system is written back first."""
    steps: list[tuple[str, Callable[[], None]]] = [(f"syncfs of {model}", lambda: sync_file_system(tree.at(model)))]
    if policy is Relief.DROP:
        steps.append(("drop_caches", lambda: put(tree.at("/proc/sys/vm/drop_caches"), "1")))
    elif policy is Relief.NEAR:
        for node in sorted(nodes):
            steps.append((f"reclaim on node {node}", lambda node=node: reclaim(tree, node)))  # type: ignore[misc]
    elif policy is Relief.WEIGHTS:
        steps.append((f"fadvise of {model}", lambda: forget(tree.at(model))))
    return steps


def bounded(run: Callable[[], None], limit_s: float) -> Optional[str]:
    """Run it in a child that is left behind where it does not end in time (a dead NFS mount never lets go); the problem, if any."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        message = ""
        try:
            run()
        except Exception as error:
            message = in_words(error)
        finally:  # nothing of the parent may run on in the child
            os.write(writing, message.encode("utf-8", "replace")[:2000] or b"\0")
            os._exit(0)
    os.close(writing)
    end = time.monotonic() + limit_s
    try:
        while time.monotonic() < end:
            done, _ = os.waitpid(child, os.WNOHANG)
            if done:
                answer = os.read(reading, 4096)
                return None if answer == b"\0" else one_line(answer.decode("utf-8", "replace"), 200) or "it ended without a word"
            time.sleep(0.01)
    finally:
        os.close(reading)
    os.kill(child, signal.SIGKILL)
    return f"not done in {limit_s:.0f} s"


def sync_file_system(path: Path) -> None:
    """Write back the one file system that the path is on. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(fd)


def put(path: Path, text: str) -> None:
    """One write into a kernel's file. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def reclaim(tree: Tree, node: int) -> None:
    """Ask the node for all of its clean file pages. EAGAIN is the kernel's word that it gave what it had. Raises OSError."""
    facts = meminfo(tree, node)
    file_bytes = facts.get("Active(file)", 0) + facts.get("Inactive(file)", 0)
    if file_bytes:
        try:
            put(_reclaim(tree, node), str(file_bytes))
        except BlockingIOError:
            return


def forget(model: Path) -> None:
    """Drop the page cache of the model's files, links followed (a hub's cache is a folder of links). Raises OSError."""
    files = [model] if model.is_file() else [Path(top) / name for top, _, names in os.walk(model) for name in names]
    for path in files:
        if path.is_file():
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def free(tree: Tree, nodes: frozenset[int]) -> Mapping[int, Mapping[str, int]]:
    """Each node's meminfo in bytes."""
    return {node: meminfo(tree, node) for node in sorted(nodes)}


def meminfo(tree: Tree, node: int) -> Mapping[str, int]:
    """The node's meminfo in bytes; empty where it cannot be read."""
    try:
        text = tree.at(f"/sys/devices/system/node/node{node}/meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    return {name: int(count) * 1024 for name, count in _LINE.findall(text)}


def shown(nodes: Mapping[int, Mapping[str, int]]) -> str:
    """`node 0: 12.3 GiB free, 40.1 GiB page cache`."""
    parts = []
    for node, facts in nodes.items():
        if "MemFree" not in facts:
            parts.append(f"node {node}: not known")
            continue
        cache = facts.get("Active(file)", 0) + facts.get("Inactive(file)", 0)
        parts.append(f"node {node}: {facts['MemFree'] / _GIB:.1f} GiB free, {cache / _GIB:.1f} GiB page cache")
    return "; ".join(parts) or "no node named"


def _reclaim(tree: Tree, node: int) -> Path:
    return tree.at(f"/sys/devices/system/node/node{node}/reclaim")


def _arc_bytes(tree: Tree) -> int:
    try:
        text = tree.at("/proc/spl/kstat/zfs/arcstats").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    found = re.search(r"^size\s+\d+\s+(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0

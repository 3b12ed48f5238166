"""A pair of ranks that make host buffers as NCCL's shared-memory transport does, without a GPU. Plain Python 3.9+.

What is as in NCCL (src/misc/shmutils.cc, src/transport/shm.cc, src/proxy.cc): files made by mkstemp in /dev/shm called
nccl-XXXXXX, sized by fallocate, mapped shared, attached by the peer, unlinked once attached; ring buffers of 9,637,888 bytes
plus 4 for the count of attachments, send sides of two pages, one proxy pool of 8,354 pages for each process. The title
`sglang::scheduler_TPn` is written over arguments and environment, as setproctitle does.
What is not: no cudaHostRegister pins the pages (they could be migrated), nothing is computed, and the main thread allocates
where NCCL's proxy thread does.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import secrets
import signal
import socket
import string
import sys
from typing import Any, List, NoReturn, Tuple

PAGE = 4096
RING_BYTES = 9637888 + 4
SEND_BYTES = 2 * PAGE
POOL_BYTES = 8354 * PAGE
MAP_POPULATE = 0x8000
LETTERS = string.ascii_letters + string.digits


def title(text: str) -> None:
    """Give this process a title the way setproctitle does: over its arguments and environment, and its short name."""
    with open("/proc/self/stat") as source:
        fields = source.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[48])  # arg_start, env_end: fields 48 and 51 of proc(5)
    if start and end > start:
        data = text.encode()[: end - start - 1]
        ctypes.memmove(start, data + b"\0" * (end - start - len(data)), end - start)
    ctypes.CDLL(None).prctl(15, text.encode()[:15], 0, 0, 0)  # PR_SET_NAME


def attach(handle: int, size: int) -> mmap.mmap:
    """Map a buffer and touch every page, as registering it with the driver does."""
    return mmap.mmap(handle, size, mmap.MAP_SHARED | MAP_POPULATE, mmap.PROT_READ | mmap.PROT_WRITE)


def create(size: int) -> Tuple[str, mmap.mmap]:
    """Make one buffer as ncclShmOpen does; returns its path and mapping."""
    while True:  # mkstemp(3) takes six letters; Python's takes eight
        path = "/dev/shm/nccl-" + "".join(secrets.choice(LETTERS) for _ in range(6))
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            break
        except FileExistsError:
            continue
    try:
        os.posix_fallocate(handle, 0, size)
        return path, attach(handle, size)
    finally:
        os.close(handle)


def receive(link: socket.socket) -> Any:
    """One message of the peer."""
    data = b""
    while not data.endswith(b"\n"):
        part = link.recv(1)  # no more than this message: on a busy machine the next one may be there already
        if not part:
            raise SystemExit("rank: the peer is gone")
        data += part
    return json.loads(data)


def rank(number: int, channels: int, peer: socket.socket, ready: socket.socket) -> NoReturn:
    """One rank: make buffers, tell the peer, attach the peer's, unlink ours once attached, then wait for the end."""
    title(f"sglang::scheduler_TP{number}")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    own: List[Tuple[str, int]] = []
    kept: List[mmap.mmap] = []
    for size in [RING_BYTES] * channels + [SEND_BYTES] * channels:
        path, view = create(size)
        own.append((path, size))
        kept.append(view)
    pool, view = create(POOL_BYTES)  # the proxy's own: no peer attaches
    kept.append(view)
    os.unlink(pool)
    peer.sendall(json.dumps(own).encode() + b"\n")
    for path, size in receive(peer):
        handle = os.open(path, os.O_RDWR)
        kept.append(attach(handle, size))
        os.close(handle)
    peer.sendall(b'"attached"\n')
    receive(peer)
    for path, _ in own:
        os.unlink(path)
    ready.sendall(json.dumps(os.getpid()).encode() + b"\n")
    while True:
        signal.pause()


def notify(text: str) -> None:
    """Tell systemd, where it asked (Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.connect("\0" + address[1:] if address.startswith("@") else address)
        link.sendall(text.encode())


def main() -> None:
    """Start two ranks, wait until both are ready, print their process numbers, stay until they end."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--channels", type=int, default=8, help="ring buffers for each rank (NCCL: one a channel)")
    options.add_argument("--ready", help="write the ranks' process numbers to this file as well")
    chosen = options.parse_args()
    first, second = socket.socketpair()
    links: List[socket.socket] = []
    pids: List[int] = []
    for number, peer in enumerate((first, second)):
        mine, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                rank(number, chosen.channels, peer, theirs)
            except OSError as error:
                print(f"rank {number}: {error.strerror}: {error.filename}", file=sys.stderr)
            finally:
                os._exit(1)
        theirs.close()
        links.append(mine)
        pids.append(pid)
    first.close()
    second.close()

    def leave(*_: object) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    ranks = [receive(link) for link in links]
    if chosen.ready:
        with open(chosen.ready + ".new", "w") as out:
            out.write(" ".join(map(str, ranks)) + "\n")
        os.rename(chosen.ready + ".new", chosen.ready)
    print("ranks ready:", *ranks, flush=True)
    notify("READY=1")
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()

"""A small load balancer in front of a lab's replicas, driven by their drain hooks, and a client that asks it all the time.

It stands on this machine. SSH carries requests to the machines' engines, and the hooks' word from the machines back to it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from lab import ssh
from lab.state import LabRecord

#: On the machines: where a hook reaches the balancer.
HOOK_PORT = 7999
HOOK_PATH = "/usr/local/bin/lab-drain"
#: lab-drain drain|undrain MACHINE REPLICA: returns once the balancer has heard it.
HOOK = f"""#!/bin/sh
exec python3 -c 'import sys, urllib.request
said = "do=%s&machine=%s&replica=%s" % tuple(sys.argv[1:4])
urllib.request.urlopen("http://127.0.0.1:{HOOK_PORT}/hook?" + said, timeout=20).read()' "$@"
"""
_PATIENCE_S = 240
_BODY = json.dumps({"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 2}).encode()


class Balancer:
    """The replicas by machine and name; which are drained; how many were at most at a time, and on one machine."""

    def __init__(self, ports: dict[tuple[str, str], int]) -> None:
        self.ports, self.lock = ports, threading.Lock()
        self.drained: set[tuple[str, str]] = set()
        self.history: list[tuple[str, str, str]] = []
        self.most_drained = 0
        self.turn = 0

    def hook(self, do: str, replica: tuple[str, str]) -> None:
        """A hook's word."""
        with self.lock:
            self.history.append((do, *replica))
            (self.drained.add if do == "drain" else self.drained.discard)(replica)
            self.most_drained = max(self.most_drained, len(self.drained))

    def next(self) -> int:
        """The port of the replica whose turn it is."""
        with self.lock:
            open_ = [replica for replica in sorted(self.ports) if replica not in self.drained]
            self.turn += 1
            return self.ports[open_[self.turn % len(open_)]]

    def forget(self) -> None:
        """Begin to count anew."""
        with self.lock:
            self.history, self.most_drained = [], len(self.drained)


class _Face(BaseHTTPRequestHandler):
    balancer: Balancer

    def do_GET(self) -> None:
        said = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self.balancer.hook(said["do"], (said["machine"], said["replica"]))
        self._answer(200, b"{}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        back = http.client.HTTPConnection("127.0.0.1", self.balancer.next(), timeout=_PATIENCE_S)
        try:
            back.request("POST", self.path, body, {"Content-Type": "application/json", "Connection": "close"})
            answer = back.getresponse()
            self._answer(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            self._answer(502, repr(error).encode())
        finally:
            back.close()

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the client counts."""


@contextlib.contextmanager
def balancing(record: LabRecord, replicas: dict[str, int]) -> Iterator[tuple[Balancer, int]]:
    """A balancer over these replicas (name to port) of every machine, and its port; its hooks can be called on the machines."""
    ports = {(machine.name, name): _free() for machine in record.machines for name in replicas}
    balancer = Balancer(ports)
    face = type("Face", (_Face,), {"balancer": balancer})
    server = ThreadingHTTPServer(("127.0.0.1", 0), face)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    carriers = []
    try:
        for machine in record.machines:
            options = ["-N", "-o", "ExitOnForwardFailure=yes", "-R", f"{HOOK_PORT}:127.0.0.1:{server.server_address[1]}"]
            for name, port in replicas.items():
                options += ["-L", f"{ports[machine.name, name]}:127.0.0.1:{port}"]
            args = ssh.command(record.name, machine.name, [], options=options)
            carriers.append(subprocess.Popen(args, stdin=subprocess.DEVNULL))
        yield balancer, int(server.server_address[1])
    finally:
        for carrier in carriers:
            carrier.terminate()
            carrier.wait(10)
        server.shutdown()
        thread.join()
        server.server_close()


def _free() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Client:
    """Asks all the time while its block runs: how often it was answered, and what went wrong."""

    def __init__(self, port: int) -> None:
        self.port, self.answered, self.wrong = port, 0, list[str]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        while not self._over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)
            try:
                connection.request("POST", "/v1/chat/completions", _BODY, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                said = answer.read()
                if answer.status == 200:
                    self.answered += 1
                else:
                    self.wrong.append(f"{answer.status} {said[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                self.wrong.append(repr(error))
            finally:
                connection.close()
            self._over.wait(1)  # emulated machines are to have time for more than its questions

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

"""Hosts through pyinfra's API: one inventory and State a batch, each host connected when it is first asked, and again where the
connection went in between.

Hosts work side by side in threads of our own, as everywhere in nearsocket: pyinfra's `connect_all` and `run_ops` would need
gevent's patches over the whole process. paramiko, which pyinfra's SSH is, is made for threads.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nearsocket.control.target import Ssh, Target, Way
from nearsocket.control.through_pyinfra import OpenConnection
from nearsocket.control.transport import Answer, Transport, TransportError, Trouble
from nearsocket.control.transport.local import Local
from nearsocket.control.transport.openssh import DEFAULT_CONNECT_TIMEOUT_S
from nearsocket.control.transport.paramiko import connect_error, host_data
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import UsageError
from nearsocket.model.text import one_line

#: An apply says nothing for as long as models load; what stands between would drop a silent connection.
_KEEPALIVE_S = 30


class _Line(Transport):
    """One host of a State."""

    def __init__(self, host: Any, ssh: Ssh) -> None:
        self.host, self.ssh = host, ssh
        self.lock = threading.Lock()

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Answer:
        """Run the command once, on a connection that lives. Raises TransportError, one line, where there is no answer."""
        if children.closed:
            raise TransportError(Trouble.HERE, "expected to ask the host, found the rollout interrupted", "--resume goes on")
        with self.lock:  # who waits for the host and its sign of life ask at once
            self._connect()
        return OpenConnection(self.host).run(command, stdin, timeout_s, children)

    def _connect(self) -> None:
        from pyinfra.api.exceptions import PyinfraError

        client = self.host.connector.client
        if client is not None and (transport := client.get_transport()) is not None and transport.is_active():
            return
        self.close()
        try:
            self.host.connect(show_errors=False, raise_exceptions=True)
        except (PyinfraError, OSError) as error:
            raise connect_error(str(error), self.ssh) from None
        transport = self.host.connector.client.get_transport()
        if transport is not None:
            transport.set_keepalive(_KEEPALIVE_S)

    def close(self) -> None:
        """Let the connection go."""
        with contextlib.suppress(Exception):  # it may be dead already
            if self.host.connector.client is not None:
                self.host.connector.client.close()
        self.host.connected = False


@contextlib.contextmanager
def lines(targets: Sequence[Target]) -> Iterator[Mapping[str, Transport]]:
    """A way to each target by its name, for one batch; all connections are closed at the end.

    Raises UsageError for a saved snapshot.
    """
    for target in targets:
        if target.way is Way.FILE:
            raise UsageError(f"{one_line(target.name, 80)}: expected a host, found a saved snapshot")
    remote = _hosts([target for target in targets if target.way is Way.SSH])
    made: dict[str, Transport] = {target.name: remote.get(target.name) or Local() for target in targets}
    try:
        yield made
    finally:
        for line in remote.values():
            line.close()


def _hosts(targets: Sequence[Target]) -> dict[str, _Line]:
    from pyinfra.api.config import Config
    from pyinfra.api.inventory import Inventory
    from pyinfra.api.state import State

    for name in ("pyinfra", "paramiko"):  # their warnings come back as one line here
        logging.getLogger(name).addHandler(logging.NullHandler())
    known = [(target, target.ssh) for target in targets if target.ssh is not None]
    names = [(f"@nearsocket/{target.name}", host_data(ssh)) for target, ssh in known]
    limits = [ssh.connect_timeout_s or DEFAULT_CONNECT_TIMEOUT_S for _, ssh in known]
    inventory = Inventory((names, {}))
    State(inventory, Config(CONNECT_TIMEOUT=max(1, round(max(limits, default=DEFAULT_CONNECT_TIMEOUT_S)))))
    ways = {target.name: ssh for target, ssh in known}
    hosts = {host.name.removeprefix("@nearsocket/"): host for host in inventory}
    return {name: _Line(host, ways[name]) for name, host in hosts.items()}

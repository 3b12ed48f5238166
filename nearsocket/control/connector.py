"""pyinfra's SSH, faster and stricter: `@nearsocket/host` in an inventory, an entry point of the group `pyinfra.connectors`.

Two things differ from `@ssh/host`. TCP_NODELAY: paramiko leaves Nagle's algorithm on, and each command then waits some
40 ms for a delayed acknowledgement. Host keys: an unknown one is refused, where pyinfra's default adds it unasked.
"""

from __future__ import annotations

import socket
from typing import Any

from pyinfra.connectors.base import DataMeta
from pyinfra.connectors.ssh import SSHConnector


class NearsocketConnector(SSHConnector):
    """SSH with TCP_NODELAY and strict host keys; everything else is pyinfra's, its `ssh_*` data included."""

    data_meta = {  # noqa: RUF012 - the form that pyinfra's connectors have
        **SSHConnector.data_meta,
        "ssh_strict_host_key_checking": DataMeta("SSH strict host key checking", "yes"),
    }

    @staticmethod
    def make_names_data(name: str) -> Any:
        """The one host that `@nearsocket/NAME` is."""
        yield f"@nearsocket/{name}", {"ssh_hostname": name}, []

    def connect(self) -> None:
        """Connect as pyinfra does, then stop waiting for acknowledgements."""
        super().connect()
        transport = self.client.get_transport() if self.client else None
        if transport is not None and isinstance(transport.sock, socket.socket):  # behind a jump host it is a channel
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

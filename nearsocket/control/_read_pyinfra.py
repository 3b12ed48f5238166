"""Run as a file, not imported: load one pyinfra inventory with pyinfra's own loader and print what an audit needs as JSON.

A process of its own, because importing `pyinfra_cli` patches the standard library for gevent, and because an inventory is a
person's code: it may print, change directory or exit. It gets the working directory appended to sys.path, as under pyinfra.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

KEYS = ("ssh_", "_sudo", "nearsocket_")


def main() -> int:
    """Print `{"hosts": [{name, connector, groups, data}]}` or `{"error": text}` on the standard output that the parent gave."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the inventory prints is not the answer
    path = sys.argv[1]
    sys.path.append(str(Path.cwd()))
    try:
        from pyinfra.api.config import Config
        from pyinfra.api.state import State
        from pyinfra.context import ctx_config, ctx_state
        from pyinfra_cli.inventory import make_inventory  # first: it patches the standard library

        ctx_state.set(State())
        ctx_config.set(Config())
        logging.getLogger("pyinfra").addHandler(logging.NullHandler())
        result: dict[str, Any] = {"hosts": [_host(host) for host in make_inventory(path, cwd=str(Path.cwd()))]}
    except BaseException as error:  # a person's code: SystemExit and all
        result = {"error": _say(error, path)}
    json.dump(result, answer, default=lambda value: value.isoformat() if hasattr(value, "isoformat") else str(value))
    answer.close()
    return 0


def _host(host: Any) -> dict[str, Any]:
    data = {key: value for key, value in host.data.dict().items() if key.startswith(KEYS)}
    return {"name": host.name, "connector": connector(host.connector_cls), "groups": sorted(set(host.groups)), "data": data}


def connector(kind: type) -> str:
    """`ssh` for pyinfra's SSH and what is made from it, `local`, or the class's name."""
    from pyinfra.connectors.local import LocalConnector
    from pyinfra.connectors.ssh import SSHConnector

    if issubclass(kind, SSHConnector):
        return "ssh"
    return "local" if issubclass(kind, LocalConnector) else kind.__name__


def _say(error: BaseException, path: str) -> str:
    """The innermost error, with the line of the inventory that it came from."""
    inner = getattr(error, "exception", None) or error
    line = None
    trace = inner.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(inner, SyntaxError):
        line, inner = inner.lineno, SyntaxError(inner.msg)
    what = f"{type(inner).__name__}: {inner}"
    if isinstance(inner, SystemExit) and isinstance(inner.code, str):  # an inventory that says itself what is wrong
        return inner.code.removeprefix("nearsocket: ")
    return f"line {line}: {what}" if line else what


if __name__ == "__main__":
    sys.exit(main())

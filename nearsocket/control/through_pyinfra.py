"""The audit inside a pyinfra run: one exec over the connection that pyinfra has open, through any of its connectors."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host as PyinfraHost

from nearsocket.control import audit, checks, pyinfra_inventory, schema, snapshots, verify
from nearsocket.control.audit import Manner
from nearsocket.control.snapshots import asked
from nearsocket.control.transport import LARGEST_ANSWER_BYTES, Answer, Transport, TransportError, reasons
from nearsocket.control.transport.openssh import answer
from nearsocket.control.transport.paramiko import execute
from nearsocket.control.transport.process import Children, Ended
from nearsocket.model.errors import EXIT_FAILURES, EXIT_UNKNOWN, NearsocketError
from nearsocket.model.exitcode import exit_code
from nearsocket.model.report import HostReport, Report
from nearsocket.report import terminal, verdicts


class OpenConnection(Transport):
    """The connection that pyinfra has open to a host."""

    def __init__(self, host: PyinfraHost) -> None:
        self.host = host

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Answer:
        """Run the command once. Raises TransportError, one line, where there is no answer."""
        client = getattr(self.host.connector, "client", None)
        if client is not None and hasattr(client, "get_transport"):
            ssh = pyinfra_inventory.reached(self.host.name, self.host.data.dict())
            return execute(client.get_transport(), command, stdin, timeout_s, children, ssh)
        return self._encoded(command, stdin, timeout_s)

    def _encoded(self, command: str, stdin: bytes, timeout_s: float) -> Answer:
        """By pyinfra's own call, which knows text alone: the program goes as base64."""
        try:
            good, output = self.host.connector.run_shell_command(
                StringCommand("base64 -d |", command),
                False,
                False,
                _stdin=base64.b64encode(stdin).decode(),
                _timeout=max(1, round(timeout_s)),
            )
        except OSError as error:  # pyinfra's time limit is one
            raise reasons.timed_out(timeout_s, False, str(error)) from None
        stdout, stderr = output.stdout.encode(), output.stderr.encode()
        # The call tells success from failure and no more; the shell's words on standard error say which failure.
        return answer(Ended(0 if good else 1, stdout, stderr, len(stdout) > LARGEST_ANSWER_BYTES, 0.0), timeout_s, None)


def audit_host(host: PyinfraHost, folder: Path) -> None:
    """Audit one host of a pyinfra run by the checks of that folder; at the codes 2 and 3 it counts as failed.

    Data (`--data NAME=VALUE`, host or group): nearsocket_strict, nearsocket_only, nearsocket_checks, nearsocket_near,
    nearsocket_timeout, nearsocket_save, nearsocket_waivers, nearsocket_maintenance; `_sudo`, `_sudo_user`, `_sudo_password`.
    Raises PyinfraError, one line, for values that cannot be used.
    """
    try:
        report, code = read_and_judge(host, folder)
    except NearsocketError as error:  # pyinfra shows its own errors as a line, any other with a traceback
        raise PyinfraError(error.message + (f" ({error.hint})" if error.hint else "")) from None
    _print(report, code)
    if code in (EXIT_FAILURES, EXIT_UNKNOWN):
        host.state.fail_hosts({host})


def verify_host(host: PyinfraHost) -> None:
    """Prove one host's running replicas; at the codes 2 and 3 it counts as failed.

    Data: nearsocket_strict, nearsocket_timeout; `_sudo`, `_sudo_user`, `_sudo_password`. Raises PyinfraError, one line.
    """
    data: dict[str, Any] = host.data.dict()
    try:
        target, _ = pyinfra_inventory.member(host.name, "ssh", list(host.groups), data, "pyinfra data")
        options = schema.read_data(data, "pyinfra data")
    except NearsocketError as error:
        raise PyinfraError(error.message + (f" ({error.hint})" if error.hint else "")) from None
    found = verify.one(target, OpenConnection(host), options.nearsocket_timeout, None, Children())
    text = io.StringIO()
    verdicts.show([verify.page(found)], terminal.console(text))
    sys.stdout.write(text.getvalue())
    sys.stdout.flush()
    if found.code(options.nearsocket_strict) in (EXIT_FAILURES, EXIT_UNKNOWN):
        host.state.fail_hosts({host})


def read_and_judge(host: PyinfraHost, folder: Path) -> tuple[HostReport, int]:
    """The report on the host that pyinfra is connected to, and its code. Raises UsageError for data that cannot be used."""
    data: dict[str, Any] = host.data.dict()
    target, entries = pyinfra_inventory.member(host.name, "ssh", list(host.groups), data, "pyinfra data")
    options = schema.read_data(data, "pyinfra data")
    manner = Manner(
        checks=checks.select(checks.load([folder, *options.nearsocket_checks]), options.nearsocket_only),
        waivers=tuple(entry.waiver(entry.host or "*") for entry in entries),
        timeout_s=options.nearsocket_timeout,
        strict=options.nearsocket_strict,
        save=options.nearsocket_save,
    )
    if manner.save:
        snapshots.prepare(manner.save, [target.name])
    try:
        words, sent = audit.command(target), audit.stdin(target, manner.timeout_s)
        snapshot = asked(lambda: OpenConnection(host).run(words, sent, manner.timeout_s, Children()), target.name)
        report = audit.judged(target, snapshot, manner)
    except TransportError as error:
        report = audit.not_read_report(target, error, manner)
    code = 0 if report.maintenance else exit_code(report.findings, manner.strict)
    return report, code


def _print(report: HostReport, code: int) -> None:
    """The whole report at once: hosts are audited side by side, and their lines must not mix."""
    text = io.StringIO()
    console = terminal.console(text)
    terminal.show(Report((report,), report.status, code), console)
    sys.stdout.write(text.getvalue())
    sys.stdout.flush()

"""Audit every host of an inventory: `pyinfra INVENTORY deploys/audit.py -y`.

Reads each host by one command over the connection that pyinfra has open, writes nothing there, prints a report for each host.
A host with failures, or with a core finding that is unknown, counts as failed; pyinfra then ends with 1. Finer exit codes and
JSON: `nearsocket audit INVENTORY`. Options are data: `--data nearsocket_strict=true --data nearsocket_only=nccl`.

There is nothing to apply: -y only spares the question that pyinfra asks before it applies nothing.
"""

from pyinfra import host

from nearsocket import paths
from nearsocket.control.through_pyinfra import audit_host

audit_host(host, paths.checks_folder())

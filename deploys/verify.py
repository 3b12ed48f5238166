"""Prove where the buffers of each host's running replicas lie now: `pyinfra INVENTORY deploys/verify.py -y`.

Judges each replica as its start was judged, by one command over the connection that pyinfra has open, and writes nothing there. A
host with a failure, or without a proof, counts as failed; pyinfra then ends with 1. Finer exit codes and JSON: `nearsocket verify
INVENTORY`. Options are data: `--data nearsocket_strict=true --data nearsocket_timeout=120`.

There is nothing to apply: -y only spares the question that pyinfra asks before it applies nothing.
"""

from pyinfra import host

from nearsocket.control.through_pyinfra import verify_host

verify_host(host)

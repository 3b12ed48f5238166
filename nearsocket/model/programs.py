"""The commands that units call on the server, and the places that they and the apply share: one module, so that all agree.

`PROGRAM fingerprint`, `PROGRAM relief`, `PROGRAM wait-health`, each with `--replica=NAME`, which names
`/etc/nearsocket/current/replicas/NAME.json` (`nearsocket.start/1`, see model/start.py). What stands in the unit beside it is for
people; the file has the same values.

- fingerprint: reads the host, compares it with current/fingerprint.json, resolves the GPUs, makes the start's folder, writes
  start.env and secrets.env. Exit 0 start (bound or not), 2 refused.
- relief: frees page cache by the policy and logs free memory per node before and after. Exit 0, or 1
  with a warning; the unit goes on.
- verify: proves where the start's memory lies, behind health; `--policy` is for people, the file has it. Exit 0; where the policy
  stops or restarts a start that is proven far it asks systemd for that. `watch` looks at all running replicas again, by a timer.
  Exit 0.
- wait-health: asks the engine's health address until it answers 200. Exit 0, or 2 when the time is over or the container is gone.
- hook: runs the drain or undrain hook under a time limit, and keeps what it failed with. Exit 0, or 1 with a warning.
- wait-idle: behind the drain hook, until the engine has no request left. Exit 0, or 1 when the time is over; the stop goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearsocket.model.places import CURRENT, ETC, LIB, RUN, acted_marker, metrics_file, replica_folder, start_env
from nearsocket.model.settings import Relief, Verify

__all__ = ["CURRENT", "ETC", "LIB", "RUN", "metrics_file", "replica_folder", "start_env"]

#: The program as one file, and the interpreter that runs it: isolated, writing no bytecode.
PROGRAM = f"{LIB}/nearsocket.pyz"
PYTHON = ("/usr/bin/python3", "-I", "-B")
#: Above the slices of all replicas and of probes; systemd makes it by itself.
ALL_SLICE = "nearsocket.slice"
#: The slice of probes' containers: in a replica's own, whoever looks at the replica would take their ranks for the engine's.
PROBE_SLICE = "nearsocket-probe.slice"
#: Inside the container: where NCCL's log of this start goes.
LOG_TARGET = "/run/nearsocket/log"
#: Variables of a start that the unit's command line uses and that start.env may set anew.
GPUS, RUN_BINDING, NUMACTL, ENGINE_BINDING, START_DIR = "GPUS", "RUN_BINDING", "NUMACTL", "ENGINE_BINDING", "START_DIR"


def secrets_env(replica: str) -> str:
    """The replica's secrets, in Docker's grammar, 0600; made by `fingerprint`, removed when the unit stops."""
    return f"{RUN}/{replica}/secrets.env"


def fingerprint(replica: str) -> tuple[str, ...]:
    """ExecStartPre: judge the host, prepare the start."""
    return (*PYTHON, PROGRAM, "fingerprint", f"--replica={replica}")


def relief(replica: str, policy: Relief, nodes: str, timeout_s: int) -> tuple[str, ...]:
    """ExecStartPre: free page cache on `nodes` (a list text)."""
    return (
        *PYTHON,
        PROGRAM,
        "relief",
        f"--replica={replica}",
        f"--policy={policy.value}",
        f"--nodes={nodes}",
        f"--timeout={timeout_s}",
    )


def wait_health(replica: str, url: str, timeout_s: int) -> tuple[str, ...]:
    """ExecStartPost: wait until the engine answers at `url`."""
    return (*PYTHON, PROGRAM, "wait-health", f"--replica={replica}", f"--url={url}", f"--timeout={timeout_s}")


def wait_idle(replica: str, host: str, port: int, timeout_s: int) -> tuple[str, ...]:
    """ExecStop behind the drain hook: wait until the engine has answered what it was asked."""
    return (*PYTHON, PROGRAM, "wait-idle", f"--replica={replica}", f"--host={host}", f"--port={port}", f"--timeout={timeout_s}")


def hook(replica: str, name: str, timeout_s: int, words: Sequence[str]) -> tuple[str, ...]:
    """ExecStop and ExecStartPost: the replica's own `drain` or `undrain`; nothing where there is none."""
    options = (f"--replica={replica}", f"--hook={name}", f"--timeout={timeout_s}")
    return (*PYTHON, PROGRAM, "hook", *options, "--", *words) if words else ()


def verify(replica: str, settings: Verify) -> tuple[str, ...]:
    """ExecStartPost: prove where this start's memory lies."""
    options = (f"--replica={replica}", f"--policy={settings.policy.value}", f"--timeout={settings.timeout_s}")
    return (*PYTHON, PROGRAM, "verify", *options)


def watch() -> tuple[str, ...]:
    """The timer's service: look at every running replica again."""
    return (*PYTHON, PROGRAM, "watch")


def forget_metrics(replica: str, settings: Verify) -> tuple[str, ...]:
    """ExecStopPost: values of an engine that is gone must not stay."""
    return ("/usr/bin/rm", "-f", metrics_file(settings.metrics, replica))


def not_acted(replica: str) -> tuple[str, ...]:
    """It fails where the policy has stopped or restarted this start: before traffic is let in, and, for `failed`, as the last
    ExecStopPost under `fail`."""
    return ("/usr/bin/test", "!", "-e", acted_marker(replica))


def remove_container(runtime: Sequence[str], name: str) -> tuple[str, ...]:
    """ExecStartPre and ExecStopPost: no container of that name is left."""
    return (*runtime, "rm", "--force", "--volumes", name)

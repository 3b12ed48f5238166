"""Where things stand on a server. No imports: the watch reads this every few minutes."""

from __future__ import annotations

ETC = "/etc/nearsocket"
CURRENT = f"{ETC}/current"
#: In a generation: what its plan rests on (`nearsocket.fingerprint/1`).
FINGERPRINT = "fingerprint.json"
RUN = "/run/nearsocket"
LIB = "/usr/local/lib/nearsocket"
VAR = "/var/lib/nearsocket"
#: The last verdict of each replica (`nearsocket.verdict/1`), and what its policy did.
VERDICTS = f"{VAR}/verdicts"
SUFFIX, SCHEMA = ".verdict.json", "nearsocket.verdict/1"
#: A host's own earlier figures, one file a key (`nearsocket.baseline/1`).
BASELINES = f"{VAR}/baselines"
#: What a driver's upgrade keeps on the host, and the folder with a file for each replica that may not start: it is not proven yet.
#: There is no such folder where no replica is held.
REPROVISION = f"{VAR}/reprovision"
HOLD_STARTS = f"{REPROVISION}/hold-starts"
#: Where Prometheus text goes unless the fleet file names node_exporter's folder.
METRICS = f"{VAR}/metrics"


def reserved(name: str) -> bool:
    """Whether a folder or a slice of Nearsocket's own has that name, so that no replica can: `shm`, and the probes' own."""
    return name in ("shm", "probe") or name.startswith("probe-")


def replica_folder(replica: str) -> str:
    """The replica's folder of this boot."""
    return f"{RUN}/{replica}"


def start_env(replica: str) -> str:
    """What `fingerprint` decided for this start, in systemd's grammar."""
    return f"{replica_folder(replica)}/start.env"


def start_folder(start_env_text: str, replica: str) -> str:
    """The folder of the replica's newest start, as start.env names it; empty where it names none, or another place than its own."""
    named = [line.partition("=")[2].strip('"') for line in start_env_text.splitlines() if line.startswith("START_DIR=")]
    above, _, name = named[-1].rpartition("/") if named else ("", "", "")
    return named[-1] if above == replica_folder(replica) and name not in ("", ".", "..") else ""


def verdict_file(replica: str) -> str:
    """The replica's last verdict."""
    return f"{VERDICTS}/{replica}{SUFFIX}"


def history_file(replica: str) -> str:
    """When the replica was restarted or stopped for a far verdict."""
    return f"{VERDICTS}/{replica}.history.json"


def proven_file(replica: str) -> str:
    """What the last proof of the path between the replica's GPUs rests on (`nearsocket.proven/1`)."""
    return f"{VAR}/proven/{replica}.json"


def probing_file(replica: str) -> str:
    """There while the path is probed: what is left to end where the apply was cut short."""
    return f"{VAR}/proven/{replica}.probing"


def metrics_file(folder: str, replica: str) -> str:
    """The replica's Prometheus text."""
    return f"{folder}/nearsocket-{replica}.prom"


def stopped_file(folder: str, replica: str) -> str:
    """The Prometheus text of a replica that its policy stopped; a name that no replica's own text can have."""
    return f"{folder}/nearsocket_stopped-{replica}.prom"


def hold_file(replica: str) -> str:
    """While it is there systemd skips the replica's starts, those of a boot too: a driver's upgrade has not proven it yet."""
    return f"{HOLD_STARTS}/{replica}"


def let_start(replica: str) -> str:
    """While it is there the replica may start though it is held: for the upgrade's own start, and never beyond this boot."""
    return f"{replica_folder(replica)}/let-start"


def acted_marker(replica: str) -> str:
    """It is there from the moment at which a policy stops or restarts a far start until the next start."""
    return f"{replica_folder(replica)}/acted-far"


def hook_failed(replica: str, hook: str) -> str:
    """There where the last run of that hook (`drain`, `undrain`) failed; it says why."""
    return f"{replica_folder(replica)}/{hook}-failed"

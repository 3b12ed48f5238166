"""Where a verdict goes on the server: the report, the metrics. Each is whole or not there; a reader never sees half of one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from nearsocket.model import metrics, places
from nearsocket.onhost.apply import disk


def write(root: Path, replica: str, text: str) -> None:
    """The replica's last verdict. Raises OSError."""
    path = _at(root, places.verdict_file(replica))
    disk.make_folders(path.parent)
    disk.replace(path, text.encode("ascii"), 0o644)


def write_metrics(root: Path, value: Mapping[str, Any], judged: bool = True) -> None:
    """The verdict's Prometheus text; `judged` False: only that the engine started. Raises OSError.

    Only our own folder is made: one that the fleet file names belongs to a collector, which may not be installed.
    """
    folder = str(value["metrics"] or places.METRICS)
    if folder == places.METRICS:
        disk.make_folders(_at(root, folder))
    moment = seconds(value["confirmed_at"] or value["judged_at"]) if judged else 0
    text = metrics.text(value, seconds(value["started_at"]), moment)
    disk.replace(_at(root, places.metrics_file(folder, str(value["replica"]))), text.encode(), 0o644)


def remove_metrics(root: Path, folder: str, replica: str) -> None:
    """The engine does not run: its values go. Raises OSError."""
    disk.remove(_at(root, places.metrics_file(folder or places.METRICS, replica)))


def write_stopped(root: Path, folder: str, replica: str) -> None:
    """The metrics say that its policy stopped the replica, until its next start. Raises OSError."""
    if not folder:
        disk.make_folders(_at(root, places.METRICS))
    disk.replace(_at(root, places.stopped_file(folder or places.METRICS, replica)), metrics.stopped(replica).encode(), 0o644)


def unmark(root: Path, replica: str, folder: str) -> None:
    """Its policy did not stop the replica, or it is started again. Raises OSError."""
    disk.remove(_at(root, places.acted_marker(replica)))
    disk.remove(_at(root, places.stopped_file(folder or places.METRICS, replica)))


def forget(root: Path, replica: str) -> None:
    """Nothing of the replica's last start stays where the metrics were then: the folder may be another one now. Raises OSError."""
    folder = str((last(root, replica) or {}).get("metrics") or places.METRICS)
    if folder.startswith("/"):
        remove_metrics(root, folder, replica)
        unmark(root, replica, folder)


def last(root: Path, replica: str) -> Optional[dict[str, Any]]:
    """The last verdict's value; None where there is none that can be read."""
    try:
        value = json.loads(disk.read(_at(root, places.verdict_file(replica))))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("schema") == places.SCHEMA else None


def now() -> str:
    """This moment as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def seconds(moment: str) -> int:
    """Unix time of an ISO 8601 moment in UTC; 0 where it is none."""
    try:
        # calendar and strptime cost the watch more than all that it looks at: days since 1970-01-01 by the Gregorian rule.
        date, clock = moment.rstrip("Z").split("T")
        year, month, day = map(int, date.split("-"))
        hour, minute, second = map(int, clock.split(":"))
        year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
        days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469
        return ((days * 24 + hour) * 60 + minute) * 60 + second
    except (ValueError, AttributeError):
        return 0


def _at(root: Path, absolute: str) -> Path:
    return root / absolute.lstrip("/")

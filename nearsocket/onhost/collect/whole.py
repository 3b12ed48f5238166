"""Reading one server once: every source of docs/snapshot.md, nothing judged, nothing written."""

from __future__ import annotations

import datetime
import os
import platform
import pwd
import re
import time
from pathlib import Path
from typing import Any, Optional

import nearsocket
from nearsocket.model.snapshot import Snapshot, Source
from nearsocket.onhost.collect.files import Context, ok_text, text_or_none
from nearsocket.onhost.collect.runner import Job, run_jobs
from nearsocket.onhost.collect.sources import JOBS

#: The last seconds of the limit are for printing.
_RESERVE_S = 0.5


def collect(
    timeout_s: float, host: Optional[str] = None, root: Path = Path("/"), only: Optional[frozenset[str]] = None
) -> Snapshot:
    """This machine's snapshot. `host` is the name it goes by, its own host name where None; `root` is for tests.

    `only`: the sources that are asked for, all where None.
    """
    started = time.monotonic()
    taken_at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    asked = [job for job in JOBS if only is None or job.name in only]
    sources = run_jobs((*asked, _USER), Context(root), started + max(0.5, timeout_s - _RESERVE_S))
    user = sources.pop(_USER.name).text
    return Snapshot(
        host=host or platform.node(),
        taken_at=taken_at,
        boot_id=text_or_none("/proc/sys/kernel/random/boot_id"),
        privilege=_privilege(user),
        program={
            "version": nearsocket.__version__,
            "python": platform.python_version(),
            "took_s": round(time.monotonic() - started, 3),
        },
        sources=sources,
    )


def _user(_context: Context) -> Source:
    """This user's name. The directory that knows it may be on the network and hang, so it is asked like any other source."""
    return ok_text(pwd.getpwuid(os.geteuid()).pw_name)


_USER = Job("privilege.user", _user, 3)


def _privilege(user: Optional[str]) -> dict[str, Any]:
    """Who reads, by number where the name was not told in time."""
    uid = os.geteuid()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", text_or_none("/proc/self/status") or "", re.MULTILINE)
    return {"uid": uid, "user": user or str(uid), "cap_eff": found[1] if found else None}

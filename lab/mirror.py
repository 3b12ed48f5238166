"""Where Debian's packages come from: what apt on this host is configured with, else mmdebstrap's own default."""

from __future__ import annotations

import os
import subprocess

from lab.tools import find

#: apt's settings that say how the network is reached or how a mirror's dates are judged: the guest's packages take the same way.
KEPT_SETTINGS = ("Acquire::http::", "Acquire::https::", "Acquire::Check-Valid-Until", "Acquire::Check-Date", "Acquire::Retries")


def _said(*argv: str) -> str:
    if find(argv[0]) is None:
        return ""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, timeout=60)
    return done.stdout if done.returncode == 0 else ""


def choose(index_targets: str) -> str | None:
    """The Debian mirror named in apt's list of index targets (`label|site|component` a line); None where none is named."""
    for line in index_targets.splitlines():
        label, _, rest = line.partition("|")
        site, _, component = rest.partition("|")
        if label == "Debian" and component == "main" and site:
            return site
    return None


def mirror() -> str | None:
    """NEARSOCKET_LAB_MIRROR, else the host's own Debian mirror, else None: mmdebstrap's default."""
    named = os.environ.get("NEARSOCKET_LAB_MIRROR")
    return named or choose(_said("apt-get", "indextargets", "--format", "$(LABEL)|$(SITE)|$(COMPONENT)", "Created-By: Packages"))


def kept(dump: str) -> str:
    """The lines of `apt-config dump` that matter for fetching, as an apt configuration."""
    lines = [line for line in dump.splitlines() if line.startswith(KEPT_SETTINGS) and not line.endswith(' "";')]
    return "".join(line + "\n" for line in lines)


def settings() -> str:
    """The host's apt settings for fetching (proxies may carry passwords: goes into a file that only its owner reads)."""
    return kept(_said("apt-config", "dump"))

"""apt, dpkg and apt-mark by their command lines: no questions asked, every call with a limit, faults as the one line that tells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nearsocket.model.driver.names import COMPANION, plain
from nearsocket.model.driver.preflight import Size
from nearsocket.model.host import Package
from nearsocket.model.parsers import packages
from nearsocket.model.text import one_line
from nearsocket.onhost.collect import command
from nearsocket.onhost.collect.command import Output

#: apt reads its lists at each call: seconds on a server, minutes on an emulated one.
ASK_S = 300.0
#: A driver's archives are some 400 MB, its module takes minutes to build for each kernel.
FETCH_S, CHANGE_S = 1800.0, 3600.0
_LOCK_S = 120
#: Both streams of a command as one: dpkg, DKMS, a package's scripts and runtimes of containers say what is wrong on either.
JOINED = ("sh", "-c", 'exec "$@" 2>&1', "sh")
#: needrestart must not restart engines behind our back; debconf must not ask.
_QUIET = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1", "NEEDRESTART_MODE=l", "APT_LISTCHANGES_FRONTEND=none")
_APT = (
    *("apt-get", "-q", "-y", "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
    *("-o", f"DPkg::Lock::Timeout={_LOCK_S}", "-o", "Dpkg::Use-Pty=0"),
)
#: A way back goes down, and members are held; what else would change by that is judged from a simulation before.
_LEAVE = ("--allow-change-held-packages", "--allow-downgrades")
#: Which line of many to show, the most telling first.
_TELLING = (
    re.compile(r"^.*No space left on device.*$", re.MULTILINE),
    re.compile(r"^E: Could not get lock.*$", re.MULTILINE),
    re.compile(r"^Error! .*$", re.MULTILINE),
    re.compile(r"^E: Held packages.*$", re.MULTILINE),
    re.compile(r"^ *\S+ : (?:Breaks|Conflicts|Depends|PreDepends): .*$", re.MULTILINE),  # behind "unmet dependencies:"
    re.compile(r"^E: (?:Version|Unable to|Failed to fetch|dpkg was interrupted).*$", re.MULTILINE),
    re.compile(r"^.*subprocess returned error exit status \d+.*$", re.MULTILINE),
    re.compile(r"^dpkg: error.*$", re.MULTILINE),
    re.compile(r"^E: .*$", re.MULTILINE),
)
#: Names among which a driver's packages are.
_NVIDIAS = re.compile(r"nvidia|cuda|nvcuvid|nvoptix|nvsdm|xnvctrl|nvlink5|nvlsm")
_SHOWN = re.compile(r"^(Package|Version|Size|Installed-Size): *(\S+)", re.MULTILINE)

Runner = Callable[[Sequence[str], float], Output]


@dataclass(frozen=True)
class Apt:
    """The calls. `archives`: where packages are fetched to and installed from, a folder of our own."""

    archives: str
    run: Runner = command.run

    def installed(self) -> tuple[Package, ...]:
        """Every package of NVIDIA's and for NVIDIA's, as dpkg has it. Raises OSError, CommandTimeout."""
        form = "${binary:Package}\\t${Version}\\t${db:Status-Abbrev}\\n"
        output = self.run(["dpkg-query", "-W", "-f", form], ASK_S)
        if output.code:
            raise OSError(f"dpkg-query: exit code {output.code}: {output.error}")
        return tuple(package for package in packages.packages(output.text, COMPANION) if _NVIDIAS.search(package.name))

    def audit(self) -> str:
        """What dpkg finds half done; empty where all is well. Raises OSError, CommandTimeout."""
        return self.run(["dpkg", "--audit"], ASK_S).text

    def holds(self) -> frozenset[str]:
        """Every package that is held. Raises OSError, CommandTimeout."""
        output = self.run(["apt-mark", "showhold"], ASK_S)
        if output.code:
            raise OSError(f"apt-mark showhold: exit code {output.code}: {output.error}")
        return packages.holds(output.text, COMPANION)

    def madison(self, names: Sequence[str]) -> str:
        """What repositories offer. Raises OSError, CommandTimeout."""
        return self.run(["apt-cache", "madison", "--", *names], ASK_S).text if names else ""

    def sizes(self, wanted: Sequence[tuple[str, str]]) -> tuple[Size, ...]:
        """How large the packages are. Raises OSError, CommandTimeout."""
        shown = self.run(["apt-cache", "show", "--", *(f"{name}={version}" for name, version in wanted)], ASK_S).text
        found = []
        for block in shown.split("\n\n"):
            said = dict(_SHOWN.findall(block))
            if "Package" in said:
                sizes = [int(said[key]) if said.get(key, "").isdigit() else 0 for key in ("Size", "Installed-Size")]
                found.append(Size(said["Package"], sizes[0], sizes[1] * 1024))
        return tuple(found)

    def simulate(self, words: Sequence[str]) -> Output:
        """What the transaction would do. Raises OSError, CommandTimeout."""
        return self.run([*JOINED, *_QUIET, *_APT, "-s", *_LEAVE, "install", "--", *words], ASK_S * 2)

    def fetch(self, words: Sequence[str]) -> Output:
        """Fetch the transaction's packages into our folder, install nothing. Raises OSError, CommandTimeout."""
        return self._change(["--download-only", *_LEAVE], words, FETCH_S)

    def install(self, words: Sequence[str]) -> Output:
        """The one transaction. Raises OSError, CommandTimeout."""
        return self._change(_LEAVE, words, CHANGE_S)

    def download(self, word: str, folder: str) -> Output:
        """One package into that folder. Raises OSError, CommandTimeout."""
        there = ("sh", "-c", 'cd "$1" && shift && exec "$@" 2>&1', "sh", folder)
        return self.run([*there, *_QUIET, "apt-get", "-q", "download", "--", word], FETCH_S)

    def mend(self) -> Output:
        """Bring what a kill left half configured to its end. Raises OSError, CommandTimeout."""
        return self.run([*JOINED, *_QUIET, "dpkg", "--force-confdef", "--force-confold", "--configure", "-a"], CHANGE_S)

    def mark(self, what: str, names: Sequence[str]) -> None:
        """`hold` or `unhold` these. Raises OSError, CommandTimeout."""
        if not names:
            return
        output = self.run(["apt-mark", what, "--", *names], ASK_S)
        if output.code:
            raise OSError(f"apt-mark {what}: exit code {output.code}: {output.error}")

    def _change(self, options: Sequence[str], words: Sequence[str], limit_s: float) -> Output:
        own = ("-o", f"Dir::Cache::Archives={self.archives}")
        return self.run([*JOINED, *_QUIET, *_APT, *own, *options, "install", "--", *words], limit_s)


def archives(folder: Path, name: str, version: str) -> list[Path]:
    """That package's archives in a folder, of its own architecture (`name:i386` has another archive than `name`)."""
    found = sorted(folder.glob(f"{plain(name)}_{version.replace(':', '%3a')}_*.deb"))
    return [path for path in found if path.stem.endswith(f"_{COMPANION[1:]}") is name.endswith(COMPANION)]


def problem(output: Output) -> str:
    """Why a command failed, in its most telling line."""
    text = output.text if output.text.strip() else output.error
    for pattern in _TELLING:
        found = pattern.search(text)
        if found:
            return one_line(found[0].strip(), 240)
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1].strip() if lines else f"exit code {output.code}", 240)

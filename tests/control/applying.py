"""A server for deploys: a login shell that runs the real program, its installation under a root of its own.

Run as `applying.py FOLDER` in place of each command that ssh asks for. `FOLDER/root` is what the program takes for `/`, systemd
and docker are stand-ins on PATH (tests/onhost/apply/fake.py), a systemd-run that mounts nothing keeps probes from running, and a
survey's sources are those of `FOLDER/snapshot.json` but `installed` and `rollout`. Each action is a line of `FOLDER/actions`.
`verdicts` is what the stand-in for systemd says.

An action waits before it begins while there is a file `FOLDER/hold-ACTION`, and says so by a file `FOLDER/held`; a dry apply never.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from nearsocket.control import program
from tests.onhost.apply.fake import FakeSystem

ROOT = Path(__file__).resolve().parents[2]


def prepare(folder: Path, snapshot: str) -> str:
    """Make the folder; the shell line that ForceCommand runs."""
    bin_ = folder / "bin"
    bin_.mkdir(parents=True)
    (folder / "root/etc/systemd/system").mkdir(parents=True)
    (folder / "snapshot.json").write_text(snapshot)
    for name in ("systemctl", "docker"):
        tool = bin_ / name
        tool.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.onhost.apply.fake {folder}/root {name} "$@"\n'
        )
        tool.chmod(0o755)
    holds = bin_ / "systemd-run"
    holds.write_text("#!/bin/sh\necho 'stand-in: nothing is mounted here' >&2\nexit 1\n")
    holds.chmod(0o755)
    return f"PYTHONPATH={ROOT} PATH={bin_}:$PATH exec {sys.executable} -m tests.control.applying {folder}"


def actions(folder: Path) -> list[str]:
    """The actions that ssh asked for so far."""
    return (folder / "actions").read_text().split() if (folder / "actions").exists() else []


def main(folder: Path) -> int:
    """One command of ssh."""
    given = sys.stdin.buffer.read()
    head, _, rest = given[given.index(program.MARKER) :].partition(b"\n")
    sizes = [int(word) for word in head.split()[1:]]
    parts, at = [], 0
    for size in sizes:
        parts.append(rest[at : at + size])
        at += size
    words = parts[1].decode().split("\0")
    with (folder / "actions").open("a") as log:
        log.write(f"{words[0]}\n")
    hold = folder / f"hold-{words[0]}"
    while hold.exists() and b'"dry": true' not in parts[3]:
        (folder / "held").touch()
        time.sleep(0.05)
    if words[0] == "verdicts":
        sys.stdout.write(json.dumps(FakeSystem(folder / "root").verdicts()) + "\n")
        return 0
    changed = "\0".join([*words, "--root", str(folder / "root")]).encode()
    header = b"%s %d %d %d %d\n" % (program.MARKER, sizes[0], len(changed), sizes[2], sizes[3])
    ended = subprocess.run(
        ["/bin/sh", "-c", os.environ["SSH_ORIGINAL_COMMAND"]],
        input=header + parts[0] + changed + parts[2] + parts[3],
        stdout=subprocess.PIPE,
        check=False,
    )
    answer = ended.stdout
    if words[0] == "survey" and ended.returncode == 0:
        said, saved = json.loads(answer), json.loads((folder / "snapshot.json").read_text())
        for name in ("installed", "rollout"):
            saved["sources"][name] = said["sources"][name]
        answer = json.dumps(saved).encode() + b"\n"
    sys.stdout.buffer.write(answer)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

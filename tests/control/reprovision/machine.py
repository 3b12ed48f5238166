"""A server whose driver can be upgraded: a login shell that takes the real steps on a stand-in machine (tests/onhost/reprovision).

Run as `machine.py FOLDER` in place of each command that ssh asks for.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

from nearsocket.model.driver import orders
from nearsocket.model.snapshot import Snapshot
from nearsocket.onhost.apply import beat, progress
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect import command
from nearsocket.onhost.reprovision import entry, facts, kept, stopping
from nearsocket.onhost.reprovision.apt import Apt
from tests.control.sent import taken_apart
from tests.onhost.reprovision.standin import Machine

ROOT = Path(__file__).resolve().parents[3]


def shell(folder: Path) -> str:
    """The line that ForceCommand runs."""
    return f"PYTHONPATH={ROOT} exec {sys.executable} -m tests.control.reprovision.machine {folder}"


def main(folder: Path) -> int:
    """One command of ssh."""
    words, given = taken_apart(sys.stdin.buffer.read())
    sys.stdout.buffer.write(answer(folder, words, given))
    return 0


def answer(folder: Path, words: list[str], given: bytes) -> bytes:
    """What the program would say."""
    tree, machine = Tree(folder), Machine(folder)
    if words[0] == "survey":
        name = words[words.index("--host") + 1]
        snapshot = Snapshot(name, "2026-01-01T00:00:00Z", machine.state["boot_id"], {}, {}, {"rollout": progress.source(tree)})
        return snapshot.to_json(indent=None).encode() + b"\n"
    if words[0] == "rollout-mark":
        progress.main([*words[1:], "--root", str(folder)], given)
        return b""
    if words[0] == "rollout-beat":
        beat.main([*words[1:], "--root", str(folder)], given)
        return b""
    if words[0] == "rollout-seen":
        return beat.answer([*words[1:], "--root", str(folder)])
    if words[0] == "verdicts":
        return json.dumps(machine.verdicts()).encode() + b"\n"
    facts.host_now = lambda *_: machine.host()
    command.run = machine
    stopping.collect = lambda _s, root: Snapshot("h", "2026-01-01T00:00:00Z", None, {}, {})  # type: ignore[assignment]
    order = orders.order_from_json(given.decode())
    with (folder / "asked").open("a") as log:
        log.write(f"{order.action.value} {os.environ.get('SSH_CONNECTION', '').split()[1]}\n")
    made = entry._locked(order, tree, Systemctl(machine), Apt(str(tree.at(kept.NEXT)), machine))
    if machine.state["rebooting"] and (folder / "instant").exists():
        machine.boot()  # for clients that are processes of their own: nobody is there to bring it back
    return dataclasses.replace(made, took_s=0.1).to_json().encode()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

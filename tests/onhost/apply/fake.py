"""A stand-in for systemd and the container runtimes that behaves as they do, its state on the disk so that a dead apply leaves it.

It loads unit files through the managed links, keeps what it loaded until a daemon-reload, starts only what it can load, gives each
start an invocation id, and writes down every call.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearsocket.model import places, programs
from nearsocket.model.finding import Evidence, Finding, Status
from nearsocket.model.settings import OnFar
from nearsocket.model.verdict import Held, Trigger, Verdict, Word
from nearsocket.onhost import hook
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import Output

UNITS = "/etc/systemd/system"


class FakeSystem:
    """`FakeSystem(root)(argv, limit)` answers as the command would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "fake-system.json"

    @property
    def state(self) -> dict[str, Any]:
        """`loaded`: unit to the text that systemd has in memory; `active`: unit to `{text, id, state}`; `broken`; `calls`."""
        if self.file.exists():
            value: dict[str, Any] = json.loads(self.file.read_text())
            return value
        return {"loaded": {}, "active": {}, "calls": [], "broken": [], "containers": [], "images": [], "next": 1}

    def change(self, **values: Any) -> None:
        """Set parts of the state from outside: what a neighbour or a fault does."""
        self._save({**self.state, **values})

    def _save(self, state: dict[str, Any]) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.rename(self.file)

    def calls(self, verb: str) -> list[list[str]]:
        """The calls of that systemctl verb (or runtime) so far."""
        return [words for words in self.state["calls"] if verb in words[:2]]

    def on_disk(self, unit: str) -> str | None:
        """The unit's text as systemd would read it now: the link, and through `current`."""
        path = self._path(unit)
        return path.read_text() if path is not None and path.exists() else None

    def time(self, unit: str) -> int:
        """When the unit's file was changed last, in nanoseconds; 0 where there is none."""
        path = self._path(unit)
        return path.stat().st_mtime_ns if path is not None and path.exists() else 0

    def _path(self, unit: str) -> Path | None:
        link = self.root / UNITS.lstrip("/") / unit
        if not link.is_symlink():
            return link if link.exists() else None
        target = str(link.readlink())
        if not target.startswith(programs.CURRENT + "/"):
            return None
        current = self.root / programs.CURRENT.lstrip("/")
        return current / target[len(programs.CURRENT) + 1 :]

    def __call__(self, argv: Sequence[str], limit_s: float) -> Output:
        words = [word for word in argv if word != "--"]
        state = self.state
        state["calls"].append(words)
        self._save(state)
        if words[0] != "systemctl":
            return self._runtime(words, state)
        if words[1] == "--version":
            return Output(0, f"systemd {state.get('version', 257)} (257.1-1)\n+PAM +AUDIT\n", "")
        return getattr(self, "_" + words[1].replace("-", "_"))(words[2:], state)

    def _load(self, unit: str, state: dict[str, Any]) -> str | None:
        """What systemd has of it; a unit that it does not have is read from the disk on first use."""
        if unit not in state["loaded"]:
            text = self.on_disk(unit)
            if text is not None:
                state["loaded"][unit] = text
                state.setdefault("times", {})[unit] = self.time(unit)
        loaded: str | None = state["loaded"].get(unit)
        return loaded

    def _show(self, words: list[str], state: dict[str, Any]) -> Output:
        blocks = []
        for unit in words[1:]:
            text, running = self._load(unit, state), state["active"].get(unit)
            active = running["state"] if running else ("failed" if unit in state["broken"] else "inactive")
            # As systemd does it: by the file's time, whatever its content.
            stale = text is not None and self.time(unit) > state.get("times", {}).get(unit, 0)
            blocks.append(
                f"Id={unit}\nLoadState={'loaded' if text is not None else 'not-found'}\nActiveState={active}\n"
                f"SubState={'running' if running else 'dead'}\nResult=success\nInvocationID={running['id'] if running else ''}\n"
                f"FragmentPath={f'{UNITS}/{unit}' if text is not None else ''}\nDropInPaths=\n"
                f"NeedDaemonReload={'yes' if stale else 'no'}\n"
            )
        self._save(state)
        return Output(0, "\n".join(blocks), "")

    def _daemon_reload(self, words: list[str], state: dict[str, Any]) -> Output:
        state["loaded"] = {
            unit: text
            for unit in {*state["loaded"], *state["active"]}
            for text in (self.on_disk(unit) if self.on_disk(unit) is not None else None,)
            if text is not None
        }
        state["times"] = {unit: self.time(unit) for unit in state["loaded"]}
        self._save(state)
        return Output(0, "", "")

    def _start(self, words: list[str], state: dict[str, Any]) -> Output:
        code, error = 0, ""
        for unit in words:
            running = state["active"].get(unit)
            if running:
                running["state"] = "active"
                continue
            text = self._load(unit, state)
            if text is None:
                code, error = 5, f"Failed to start {unit}: Unit {unit} not found."
            elif unit in state["broken"]:
                code, error = 1, f"Job for {unit} failed because the control process exited with error code."
            elif unit in state.get("vanishing", []):
                pass  # its engine ended by a status that a stop may have: the job is done, and nothing runs
            else:
                state["active"][unit] = {"text": text, "id": f"{state['next']:032x}", "state": "active"}
                state["next"] += 1
                self._prove(unit, state)
                if unit in state.get("hooks", {}):  # the words of its unit's hook
                    hook.main(state["hooks"][unit], Tree(self.root))
        self._save(state)
        return Output(code, "", error)

    def _prove(self, unit: str, state: dict[str, Any]) -> None:
        """What a replica's ExecStartPost leaves: start.env, and its verdict by `proofs` (replica to a word; `none`: no verdict).

        Nothing where the state has no `proofs`.
        """
        match = re.fullmatch(r"nearsocket-[a-z]+-(.+)\.service", unit)
        if not match or "proofs" not in state:
            return
        name, start = match[1], f"start-{state['active'][unit]['id'][-8:]}"
        state["active"][unit]["proof"] = word = state["proofs"].get(name, "near")
        if state.get("mends") == name:
            state["proofs"], state["mends"] = {}, ""  # a fault of one start: the next one is near
        env = self.root / places.start_env(name).lstrip("/")
        env.parent.mkdir(parents=True, exist_ok=True)
        env.write_text(f'START_DIR="{places.replica_folder(name)}/{start}"\n')
        file = self.root / places.verdict_file(name).lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        if word != "none":
            file.write_text(verdict_of(name, unit, start, word, Trigger.START).to_json())

    def verdicts(self) -> dict[str, Any]:
        """What the action `verdicts` says of what runs now."""
        state, entries = self.state, []
        generation = self.root / programs.CURRENT.lstrip("/") / "manifest.json"
        replicas = json.loads(generation.read_text())["replicas"] if generation.exists() else []
        for one in replicas:
            running = state["active"].get(one["unit"])
            word = running.get("proof", "none") if running else "none"
            given = None if word == "none" else verdict_of(one["name"], one["unit"], "s", word, Trigger.HAND).value()
            reason = None if given else "its unit is not running" if not running else "nothing of it can be read"
            entries.append({"replica": one["name"], "verdict": given, "reason": reason})
        return {"schema": "nearsocket.verdicts/1", "managed": [one["name"] for one in replicas], "replicas": entries}

    def _stop(self, words: list[str], state: dict[str, Any]) -> Output:
        for unit in words:
            state["active"].pop(unit, None)
        self._save(state)
        return Output(0, "", "")

    def _restart(self, words: list[str], state: dict[str, Any]) -> Output:
        self._stop(words, state)
        return self._start(words, state)

    def _reset_failed(self, words: list[str], state: dict[str, Any]) -> Output:
        return Output(0, "", "")

    def _runtime(self, words: list[str], state: dict[str, Any]) -> Output:
        what, name = words[1:3], words[-1]
        if what == ["container", "inspect"] and "{{.State.Running}}" in words:
            return Output(0, f"{str(name in state.get('running', [])).lower()}\n", "")
        if what[0] in ("start", "stop") and words[0] != "systemd-run":
            running = [container for container in state.get("running", []) if container != name]
            state["running"] = [*running, name] if what[0] == "start" else running
            self._save(state)
        if what == ["container", "inspect"]:
            there = name in state["containers"]
            return Output(0 if there else 1, f"/{name}\n" if there else "", "" if there else f"Error: No such container: {name}")
        if what == ["image", "inspect"]:
            there = name in state["images"]
            return Output(0 if there else 1, "sha256:1\n" if there else "", "" if there else f"Error: No such image: {name}")
        if words[1] == "update" and name in state.get("stubborn", []):
            return Output(1, "", f"Error response from daemon: cannot update container {name}")
        if words[1] == "pull":
            if name in state.get("unpullable", []):
                return Output(1, "", f"Error: manifest for {name} not found")
            state["images"] = [*state["images"], name]
            self._save(state)
        if words[1] == "rm":
            state["containers"] = [container for container in state["containers"] if container != name]
            self._save(state)
        return Output(0, "", "")


_FINDINGS = {
    "near": (Status.PASS, "16 ring buffers: all near node 1", None),
    "far": (Status.FAIL, "16 ring buffers: 97 % of 151 MiB on node 0", "restart it"),
    "unknown": (Status.UNKNOWN, "no ring buffer is mapped yet", "send it a request"),
}


def verdict_of(replica: str, unit: str, start: str, word: str, trigger: Trigger) -> Verdict:
    """A verdict as a start's proof makes it."""
    status, said, remedy = _FINDINGS[word]
    finding = Finding("nccl.buffer-placement", status, replica, f"{replica}: {said}", (Evidence("numa_maps", said),), remedy)
    held = {"near": Held.FORCE, "far": Held.LUCK}.get(word, Held.UNKNOWN)
    moment = "2030-01-01T00:00:00Z"
    return Verdict(
        replica, unit, start, moment, moment, trigger, OnFar.WARN, Word(word), held, status, finding.summary, 2, 2, {}, (finding,)
    )


if __name__ == "__main__":
    # As a command: fake.py ROOT systemctl ...
    answer = FakeSystem(Path(sys.argv[1]))(sys.argv[2:], 1.0)
    sys.stdout.write(answer.text)
    sys.stderr.write(answer.error)
    sys.exit(answer.code)

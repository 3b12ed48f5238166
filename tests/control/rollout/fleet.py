"""A fleet of stand-in hosts: the real program's survey, apply and marks under a root each, with stand-ins for systemd, docker and
the proof of a start, over a way that hands the program its standard input and may lose the client at any action."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nearsocket import paths
from nearsocket.control.converge import Leave
from nearsocket.control.firstlook import FirstLook
from nearsocket.control.rollout import run
from nearsocket.control.rollout.beside import Beside
from nearsocket.control.rollout.came import Came
from nearsocket.control.rollout.run import Manner
from nearsocket.control.rollout.site import Site
from nearsocket.control.target import Target, Way
from nearsocket.control.transport import Answer, Transport, TransportError, Trouble
from nearsocket.model import order
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Record
from nearsocket.model.rollout.progress import Progress
from nearsocket.model.rollout.report import RolloutReport
from nearsocket.model.settings import Settings
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from nearsocket.onhost.apply import beat, entry, progress
from nearsocket.onhost.apply.run import apply, installed
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from tests.control.sent import taken_apart
from tests.onhost.apply.fake import FakeSystem
from tests.plan.hosts import asked, four_on_one_socket, replica

RECORD = Record("ops@here", "2030-01-01T00:00:00Z", "0")
PROGRAM = b"the program"
#: What a survey, an apply and the rest are called in a host's log.
SURVEY, DRY, APPLY, PROOF, MARK = "survey", "dry", "apply", "verdicts", "rollout-mark"
#: Signs of life come whenever they come: they are in no log.
BEAT, SEEN = "rollout-beat", "rollout-seen"


class Lost(BaseException):
    """The client is gone: SIGKILL."""


def parsed(stdin: bytes) -> tuple[str, list[str], bytes]:
    """What a host is asked for: its name in the logs, the action with its arguments, and what the action reads."""
    words, given = taken_apart(stdin)
    return DRY if words[0] == "apply" and order.from_json(given.decode()).dry else words[0], words, given


@dataclass
class Host(Transport):
    """One stand-in host. `lose`: at which action the client is lost, and whether the host did it first; `down`: nobody answers."""

    name: str
    root: Path
    snapshot: Snapshot
    log: list[str] = field(default_factory=list)
    fleet_log: list[str] = field(default_factory=list)
    lose: tuple[str, bool] | None = None
    broken: dict[str, str] = field(default_factory=dict)
    down: bool = False

    def __post_init__(self) -> None:
        (self.root / "etc/systemd/system").mkdir(parents=True)
        (self.root / "srv/models/m").mkdir(parents=True)
        self.system = FakeSystem(self.root)
        self.system.change(proofs={})

    @property
    def tree(self) -> Tree:
        return Tree(self.root)

    @property
    def left(self) -> Progress | None:
        """How far the host says that a rollout is."""
        return progress.read(self.tree)

    def prove(self, **words: str) -> None:
        """What the proofs of the next starts say: `near` where nothing is said."""
        self.system.change(proofs=words)

    def starts(self) -> dict[str, str]:
        """Replica to the id of the start that runs."""
        running = self.system.state["active"]
        return {unit[len("nearsocket-sglang-") : -len(".service")]: one["id"] for unit, one in running.items() if "sglang" in unit}

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Any) -> Answer:
        what, words, given = parsed(stdin)
        if what not in (BEAT, SEEN):
            self.log.append(what)
            self.fleet_log.append(f"{self.name} {what}")
        if self.down:
            raise TransportError(Trouble.UNREACHABLE, "expected an SSH login, found: timed out", "look whether the host is up")
        if self.lose and self.lose[0] == what and not self.lose[1]:
            self.lose = None
            raise Lost
        if what in self.broken:
            raise TransportError(Trouble.ANSWER, self.broken.pop(what), "look at it")
        try:
            said = self._do(words, given)
        except NearsocketError as error:  # the program's line and its code, as `answer` makes of it
            raise TransportError(Trouble.PROGRAM, f"expected the program to run, found: {error.message}", "see it") from None
        if self.lose and self.lose[0] == what:
            self.lose = None
            raise Lost
        return Answer(said, "", 0.0)

    def _do(self, words: list[str], given: bytes) -> bytes:
        systemctl = Systemctl(self.system)
        if words[0] == "survey":
            entry.idle(str(self.root), float(words[words.index("--lock-wait") + 1]))
            found = Source(SourceStatus.OK, data=dataclasses.asdict(installed(PROGRAM, self.tree, systemctl)))
            sources = {**self.snapshot.sources, "installed": found, "rollout": progress.source(self.tree), **self._generation()}
            return dataclasses.replace(self.snapshot, sources=sources).to_json(indent=None).encode() + b"\n"
        if words[0] == "apply":
            return apply(order.from_json(given.decode()), PROGRAM, self.tree, systemctl).to_json().encode()
        if words[0] == "rollout-mark":
            progress.main([*words[1:], "--root", str(self.root)], given)
            return b""
        if words[0] == BEAT:
            beat.main([*words[1:], "--root", str(self.root)], given)
            return b""
        if words[0] == SEEN:
            return beat.answer([*words[1:], "--root", str(self.root)])
        assert words[0] == "verdicts", words
        return json.dumps(self.system.verdicts()).encode() + b"\n"

    def _generation(self) -> Mapping[str, Source]:
        number = self.tree.number()
        if number is None:
            return {}
        return {"generation": Source(SourceStatus.OK, text=(self.tree.generation(number) / "manifest.json").read_text())}


@dataclass
class Fleet:
    """The hosts, what their inventory asks for, and rollouts over them."""

    hosts: list[Host]
    settings: Settings
    log: list[str]
    job: Site
    now: float = 0.0
    #: That it waits for another client's sign of life, as a client says it.
    said: list[str] = field(default_factory=list)
    #: What happens in each pause of a client that waits for another one's sign of life.
    meanwhile: Callable[[], object] = lambda: None

    def pause(self, seconds: float) -> None:
        """Time passes, for the hosts' clocks too."""
        self.now += seconds
        for host in self.hosts:
            with contextlib.suppress(FileNotFoundError):
                at = host.tree.beat.stat().st_mtime - seconds
                os.utime(host.tree.beat, (at, at))
        self.meanwhile()

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(Target(host.name, Way.LOCAL, settings=self.settings) for host in self.hosts)

    def want(self, **changes: Any) -> None:
        """What the inventory asks for from now on: two replicas of these settings."""
        self.settings = asked(replica("a", port=30000, **changes), replica("b", port=30001, **changes))

    def roll(self, came: Came | None = None, **manner: Any) -> RolloutReport:
        """One rollout by a client that is not killed."""
        job = dataclasses.replace(self.job, **manner.pop("job", {}))
        targets = manner.pop("targets", self.targets)
        made = Manner("ops@here", **{"wait_s": 0.0, **manner})

        def say(line: str) -> None:
            if line.startswith("waiting"):
                self.said.append(line)

        return run.rollout(job, targets, made, came or Came(), say=say)

    def ends(self, **manner: Any) -> dict[str, str]:
        """Host to what became of it."""
        return {host.name: host.end.value for host in self.roll(**manner).hosts}

    def killed(self, **manner: Any) -> None:
        """One rollout whose client is killed on the way."""
        with pytest.raises(Lost):
            self.roll(**manner)
        for thread in threading.enumerate():  # what a killed client would not have done any more
            if thread.name.startswith("beat-"):
                thread.join()


def make(folder: Path, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A fleet of hosts on which nothing of ours is yet."""
    log: list[str] = []
    hosts = [Host(name, folder / name, dataclasses.replace(four_on_one_socket(), host=name), fleet_log=log) for name in names]
    ways = {host.name: host for host in hosts}

    @contextlib.contextmanager
    def lines(targets: Sequence[Target]) -> Iterator[Mapping[str, Transport]]:
        yield {target.name: ways[target.name] for target in targets}

    monkeypatch.setattr(run, "lines", lines)
    fleet = Fleet(hosts, Settings(), log, Site(RECORD, Leave(), paths.templates_folder(), FirstLook(())))
    fleet.want()
    monkeypatch.setattr(run, "Beside", functools.partial(Beside, clock=lambda: fleet.now, pause=fleet.pause))
    return fleet

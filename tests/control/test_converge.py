"""What converging decides on this side: whether there is anything to do, whose a GPU is, whether a reload may be; the commit."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket import paths
from nearsocket.control import converge
from nearsocket.control.converge import Leave
from nearsocket.control.render import render
from nearsocket.control.target import Target, Way
from nearsocket.control.transport import Answer, TransportError, Trouble
from nearsocket.model import read
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.generation import Record
from nearsocket.model.host import Process
from nearsocket.model.order import Part
from nearsocket.model.outcome import Action, Change, Installed, Kind, Outcome
from nearsocket.model.plan.make import plan
from nearsocket.model.settings import Runtime
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from tests.plan.hosts import asked, four_on_one_socket, replica

RECORD = Record("ops@here", "2030-01-01T00:00:00Z", "0")
TEMPLATES = paths.templates_folder()
TARGET = Target("gpu1", Way.LOCAL, settings=asked(replica("a"), replica("b")))


def surveyed(installed: Installed | None, **sources: Any) -> Snapshot:
    snapshot = four_on_one_socket(**sources)
    source = (
        Source(SourceStatus.ERROR, reason="/etc/nearsocket: Permission denied")
        if installed is None
        else Source(SourceStatus.OK, data=dataclasses.asdict(installed))
    )
    return dataclasses.replace(snapshot, sources={**snapshot.sources, "installed": source})


def in_force(clean: bool = True) -> Installed:
    manifest = render(plan(read.host(four_on_one_socket()), asked(replica("a"), replica("b"))), RECORD, TEMPLATES).manifest
    return Installed(3, manifest.digest, "0", clean, (), ("a", "b"))


NOTHING = Installed(None, None, None, False)


def test_a_host_that_is_as_it_should_be_needs_no_order_whoever_asks_and_when() -> None:
    later = dataclasses.replace(RECORD, made_by="other@there", made_at="2031-01-01T00:00:00Z")
    assert converge.prepare(TARGET, surveyed(in_force()), later, Leave(), TEMPLATES).order is None


@pytest.mark.parametrize(("installed", "part"), [(NOTHING, None), (in_force(clean=False), None), (in_force(), Part.TUNE)])
def test_anything_else_needs_one(installed: Installed, part: Part | None) -> None:
    assert converge.prepare(TARGET, surveyed(installed), RECORD, Leave(), TEMPLATES, part).order is not None


def test_leave_goes_with_the_order() -> None:
    order = converge.prepare(TARGET, surveyed(NOTHING), RECORD, Leave(removals=True, force=True), TEMPLATES).order
    assert order is not None
    assert (order.allow_removals, order.force, order.reload_risk) == (True, True, None)


def test_a_host_without_settings_is_a_slip() -> None:
    with pytest.raises(UsageError, match="gpu1"):
        converge.prepare(dataclasses.replace(TARGET, settings=None), surveyed(NOTHING), RECORD, Leave(), TEMPLATES)


def test_what_is_installed_has_to_be_known() -> None:
    with pytest.raises(NearsocketError, match="Permission denied"):
        converge.prepare(TARGET, surveyed(None), RECORD, Leave(), TEMPLATES)


def test_a_docker_that_does_not_answer_yet_makes_no_other_plan_where_a_replica_needs_it() -> None:
    snapshot = surveyed(NOTHING)
    starting = Source(SourceStatus.ERROR, reason="Cannot connect to the Docker daemon")
    snapshot = dataclasses.replace(snapshot, sources={**snapshot.sources, "docker.info": starting})
    with pytest.raises(NearsocketError, match=r"docker\.info before planning, found: Cannot connect"):
        converge.prepare(TARGET, snapshot, RECORD, Leave(), TEMPLATES)
    assert TARGET.settings is not None
    podman = tuple(dataclasses.replace(one, runtime=Runtime.PODMAN) for one in TARGET.settings.replicas)
    without = dataclasses.replace(TARGET, settings=dataclasses.replace(TARGET.settings, replicas=podman))
    assert converge.prepare(without, snapshot, RECORD, Leave(), TEMPLATES).order is not None


def test_a_container_that_a_reload_could_strip_is_the_risk_unless_the_user_gives_leave() -> None:
    container = {
        "id": "c" * 64,
        "name": "theirs",
        "runtime": "docker",
        "device_requests": ["all"],
        "devices": [],
        "cdi_devices": [],
        "pid": 4242,
    }
    info = Source(SourceStatus.OK, data={"ServerVersion": "27.0.0", "CgroupDriver": "systemd", "DiscoveredDevices": []})
    snapshot = surveyed(NOTHING)
    theirs = {"containers": Source(SourceStatus.OK, data=[container]), "docker.info": info}
    snapshot = dataclasses.replace(snapshot, sources={**snapshot.sources, **theirs})
    for leave, risky in ((Leave(), True), (Leave(reload=True), False)):
        order = converge.prepare(TARGET, snapshot, RECORD, leave, TEMPLATES).order
        assert order is not None
        assert order.accept_reload_risk is not risky
        assert "container theirs" in (order.reload_risk or "")


@pytest.mark.parametrize(("installed", "refused"), [(NOTHING, True), (in_force(clean=False), False)])
def test_a_process_on_a_gpu_stops_a_new_replica_and_not_one_that_is_here(installed: Installed, refused: bool) -> None:
    host = read.host(four_on_one_socket())
    generation = render(plan(host, asked(replica("a"), replica("b"))), RECORD, TEMPLATES)
    taken = generation.manifest.replicas[0].gpus[0]

    fields = {field.name: None for field in dataclasses.fields(Process)}
    process = Process(**{**fields, "pid": 77, "title": "python train.py", "gpus": (taken,)})
    busy = dataclasses.replace(host, processes=(process,))
    if refused:
        with pytest.raises(NearsocketError, match=f"{taken} to be free, found process 77"):
            converge._refuse_held(busy, generation, installed, None)
    else:
        converge._refuse_held(busy, generation, installed, None)


class Way_:
    """Answers each command with the same bytes."""

    def __init__(self, stdout: bytes) -> None:
        self.stdout = stdout

    def run(self, command: str, stdin: bytes, timeout_s: float, children: object) -> Answer:
        return Answer(self.stdout, "", 0.0)


def test_an_outcome_comes_back_through_what_a_login_shell_says_first() -> None:
    order = converge.prepare(TARGET, surveyed(NOTHING), RECORD, Leave(), TEMPLATES).order
    assert order is not None
    given = Outcome(False, 1, None, "d", (), notes=("n",))
    assert converge.apply(TARGET, Way_(b"welcome\n" + given.to_json().encode()), order) == given  # type: ignore[arg-type]


def test_an_answer_that_was_cut_says_that_the_apply_went_on() -> None:
    order = converge.prepare(TARGET, surveyed(NOTHING), RECORD, Leave(), TEMPLATES).order
    assert order is not None
    with pytest.raises(TransportError) as error:
        converge.apply(TARGET, Way_(b'{"schema": "nearsocket.outcome/1", "dr'), order)  # type: ignore[arg-type]
    assert error.value.trouble is Trouble.ANSWER
    assert "went on by itself" in str(error.value.hint)


def test_an_apply_may_take_as_long_as_its_replicas_may() -> None:
    assert converge.limit(TARGET) > 2 * (1800 + 120)


def test_a_change_is_one_line_that_a_terminal_obeys_nothing_of() -> None:

    assert str(Change(Kind.FILE, Action.ADD, "a\x1b[31m\nb", "why")) == "add file a\\x1b[31m\\nb (why)"


@pytest.mark.parametrize("status", [SourceStatus.TIMEOUT, SourceStatus.ERROR])
def test_nothing_is_planned_on_a_source_that_gave_no_answer_this_time(status: SourceStatus) -> None:
    snapshot = surveyed(in_force())
    hole = {"nvml": Source(status, reason="no answer in 15 s")}
    with pytest.raises(NearsocketError, match="nvml before planning, found: no answer in 15 s"):
        converge.prepare(TARGET, dataclasses.replace(snapshot, sources={**snapshot.sources, **hole}), RECORD, Leave(), TEMPLATES)


def test_a_snapshot_that_no_parser_foresaw_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "host", lambda *_: 1 // 0)
    with pytest.raises(NearsocketError, match=r"found one that cannot \(ZeroDivisionError"):
        converge.prepare(TARGET, surveyed(NOTHING), RECORD, Leave(), TEMPLATES)

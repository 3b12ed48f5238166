"""A lab's life with stand-ins for image and emulator: every early end is one clear line and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

import pytest

from lab import accel, lifecycle, machine, process, ssh, state
from lab.errors import LabError
from lab.state import LabFolder, LabRecord
from tests.lab_unit.world import FakeMonitor, World, nothing_left, wish


def test_up_records_every_machine_and_down_leaves_nothing(world: World) -> None:
    record = lifecycle.up(wish(hosts=3))
    assert [one.name for one in record.machines] == ["lab-1", "lab-2", "lab-3"]
    assert len({one.port for one in record.machines}) == 3
    assert state.read("lab") == record
    assert record.ready
    assert world.running == 3
    assert lifecycle.down("lab") == ["lab"]
    assert nothing_left(world)


def test_keys_are_made_for_each_lab_and_readable_by_their_user_only(world: World) -> None:
    lifecycle.up(wish("one"))
    lifecycle.up(wish("two"))
    one, two = LabFolder("one"), LabFolder("two")
    assert ssh.public(one.key) != ssh.public(two.key)
    assert ssh.public(one.host_key) != ssh.public(two.host_key)
    assert one.key.stat().st_mode & 0o077 == 0
    lifecycle.down("one")
    assert state.names() == ["two"]
    assert world.running == 1


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), LabError("x"), OSError(28, "No space left on device")], ids=["ctrl-c", "fault", "full"]
)
@pytest.mark.parametrize("stage", ["ensure", "choose", "make_keys", "lay", "power_on", "wait", "save"])
def test_an_end_at_any_stage_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, stage: str, error: BaseException
) -> None:
    owner = {"ensure": lifecycle, "choose": accel, "make_keys": ssh, "save": FakeMonitor}.get(stage, machine)
    original, calls = getattr(owner, stage), []

    def fail(*arguments: object) -> object:
        calls.append(stage)
        if stage in ("lay", "power_on") and len(calls) < 2:
            return original(*arguments)  # the second machine's turn: the first one is there already
        raise error

    monkeypatch.setattr(owner, stage, fail)
    with pytest.raises(type(error)):
        lifecycle.up(wish(hosts=2))
    assert calls
    assert nothing_left(world)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_cleans_up_as_ctrl_c_does(world: World, monkeypatch: pytest.MonkeyPatch, sign: signal.Signals) -> None:
    monkeypatch.setattr(machine, "wait", lambda *_: os.kill(os.getpid(), sign))
    with pytest.raises(KeyboardInterrupt):
        lifecycle.up(wish())
    assert nothing_left(world)


def test_an_occupied_port_is_named(world: World) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LabError, match=f"expected port {port} of 127.0.0.1 free, found it occupied"):
            lifecycle.up(wish(port=port))
    assert nothing_left(world)


def test_a_port_taken_in_the_meantime_is_replaced_by_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []

    def wait(record: LabRecord, *_: object) -> None:
        ports.append(record.machines[0].port)
        if len(ports) == 1:
            raise machine.PortTaken("taken")

    monkeypatch.setattr(machine, "wait", wait)
    assert lifecycle.up(wish()).machines[0].port == ports[1]
    assert world.running == 1


def test_a_machine_that_dies_under_kvm_is_tried_again_under_emulation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "choose", lambda _image: ("kvm", "a test says so"))

    def wait(record: LabRecord, *_: object) -> None:
        if record.accel == "kvm":
            raise machine.BootFailed("KVM internal error")

    monkeypatch.setattr(machine, "wait", wait)
    assert lifecycle.up(wish()).accel == "tcg"
    assert '"kvm": false' in (world.folder / "cache/accel.json").read_text(encoding="utf-8")


def test_up_again_is_content_with_what_is_up(world: World) -> None:
    assert lifecycle.up(wish()) == lifecycle.up(wish())
    assert len(world.started) == 1


def test_a_dark_lab_comes_up_with_another_shape_and_the_same_disk(world: World) -> None:
    record = lifecycle.up(wish())
    lifecycle.kill(record, record.machines[0])
    again = lifecycle.up(wish(shape="snc4"))
    assert (again.shape, again.machines) == ("snc4", record.machines)
    assert state.read("lab") == again
    assert len(world.started) == 2


def test_up_of_another_shape_is_refused_while_the_first_is_up(world: World) -> None:
    lifecycle.up(wish())
    with pytest.raises(LabError, match="found it up as 1 x two-socket") as caught:
        lifecycle.up(wish(shape="snc4"))
    assert caught.value.hint is not None
    assert "down lab" in caught.value.hint
    assert world.running == 1


def test_a_power_cut_keeps_the_disk_and_up_switches_on_again(world: World) -> None:
    record = lifecycle.up(wish())
    disk = LabFolder("lab").machine("lab") / "disk.qcow2"
    disk.write_text("written", encoding="utf-8")
    assert lifecycle.kill(record, record.machines[0])
    assert world.running == 0
    again = lifecycle.up(wish())
    assert disk.read_text(encoding="utf-8") == "written"
    assert again.machines[0].powered
    assert world.running == 1


def test_a_crashed_lab_is_cleared_by_the_next_up_of_any_name(world: World) -> None:
    lifecycle.up(wish("old"))
    world.started[0].kill()
    world.started[0].wait()
    lifecycle.up(wish("new"))
    assert state.names() == ["new"]


def test_a_crashed_lab_is_made_anew_by_up_of_its_name(world: World) -> None:
    first = lifecycle.up(wish(hosts=2))
    world.started[0].kill()
    world.started[0].wait()
    second = lifecycle.up(wish(hosts=2))
    assert {one.uuid for one in first.machines}.isdisjoint(one.uuid for one in second.machines)
    assert world.running == 2


def test_a_folder_with_a_broken_record_is_cleared(world: World) -> None:
    LabFolder("lab").path.mkdir(parents=True)
    (LabFolder("lab").path / "lab.json").write_text("{", encoding="utf-8")
    assert lifecycle.up(wish()).ready


def test_reset_needs_a_machine_that_runs(world: World) -> None:
    record = lifecycle.up(wish())
    assert lifecycle.reset(record, record.machines[0]) < 60
    assert world.calls == ["clock"]
    lifecycle.kill(record, record.machines[0])
    with pytest.raises(LabError, match="expected lab to run, found it off"):
        lifecycle.reset(record, record.machines[0])


def test_the_emulators_own_words_become_one_line(world: World) -> None:
    record = lifecycle.up(wish())
    folder = LabFolder("lab").machine("lab")
    world.started[0].kill()
    world.started[0].wait()
    (folder / "qemu.log").write_text(
        "qemu-system-x86_64: Could not set up host forwarding rule 'tcp:127.0.0.1:1-:22'\n", encoding="utf-8"
    )
    with pytest.raises(machine.PortTaken, match="occupied"):
        machine.check_alive(record, record.machines[0], world.started[0])
    (folder / "qemu.log").write_text(
        "qemu-system-x86_64: cannot set up guest memory 'm0': Cannot allocate memory\n", encoding="utf-8"
    )
    with pytest.raises(machine.BootFailed, match="ended: cannot set up guest memory"):
        machine.check_alive(record, record.machines[0], world.started[0])


def test_a_process_number_in_other_hands_is_left_alone(world: World) -> None:
    record = lifecycle.up(wish())
    other = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
    try:
        process.end(other.pid, record.machines[0].uuid)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_default_place_is_left_as_it_was_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEARSOCKET_LAB_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(world.folder / "xdg"))
    lifecycle.up(wish())
    assert (world.folder / "xdg/nearsocket/lab/lab/lab.json").is_file()
    lifecycle.down(None)
    assert list((world.folder / "xdg").iterdir()) == []

"""A lab's life: up, reset, power cut, down; and the cleaning of what a crash left."""

from __future__ import annotations

import subprocess
import time
import uuid
from dataclasses import dataclass, replace

from lab import accel, machine, process, ssh, state, tools
from lab.errors import LabError
from lab.folders import is_locked, locked, make_folder, need_space, remove_tree, state_folder
from lab.image import Image, cached, ensure
from lab.interrupts import interruptible, undisturbed
from lab.monitor import Monitor
from lab.recipe import recipe
from lab.say import say
from lab.shapes import shape
from lab.state import LabFolder, LabRecord, MachineRecord

Running = tuple[MachineRecord, subprocess.Popen[bytes]]

#: Room in the state folder for one machine, in MiB: its disk's changes and one snapshot of its memory.
MACHINE_MIB = 900


@dataclass(frozen=True)
class Wish:
    """What `up` is asked for. `port` is the first machine's, the others follow; None takes free ones."""

    name: str = "lab"
    shape: str = "two-socket"
    hosts: int = 1
    profile: str = "full"
    port: int | None = None
    timeout_s: float = 300.0


def up(wish: Wish) -> LabRecord:
    """Have the lab up: as it is where it runs, switched on again where its power was cut, else made anew."""
    state.check_name(wish.name)
    shape(wish.shape)
    with interruptible():
        tools.need(tools.TO_RUN)
        folder = make_folder(state_folder(), "NEARSOCKET_LAB_STATE")
        with locked(LabFolder(wish.name).lock, wish.name):
            try:
                _clean_crashed(wish.name)
                there = state.read(wish.name)
                if there and there.ready and _all_fine(there):
                    return _again(there, wish)
                if LabFolder(wish.name).path.exists():
                    say(wish.name, "clearing away what an earlier command left")
                    _remove(wish.name)
                image = ensure(recipe(wish.profile))
                need_space(folder, MACHINE_MIB * wish.hosts, "NEARSOCKET_LAB_STATE")
                return _make(wish, image)
            except BaseException:
                with undisturbed():
                    if not LabFolder(wish.name).path.exists():
                        _forget_lock(wish.name)
                raise


def _all_fine(record: LabRecord) -> bool:
    """Whether every machine runs, or is off because its power was cut on purpose."""
    return all(not one.powered or process.of_machine(one.uuid) for one in record.machines)


def _clean_crashed(but: str) -> None:
    """Remove other labs of which nothing runs any more although nobody cut their power: this host crashed or was rebooted."""
    for name in state.names():
        if name == but or is_locked(LabFolder(name).lock):
            continue
        record = state.read(name)
        alive = [one for one in record.machines if process.of_machine(one.uuid) or not one.powered] if record else []
        if not alive:
            say(name, "clearing away a lab that crashed")
            with locked(LabFolder(name).lock, name):
                _remove(name)
                _forget_lock(name)


def _again(record: LabRecord, wish: Wish) -> LabRecord:
    """A lab that is up already: its dark machines are switched on again. Where all are dark, another shape boots their disks."""
    if not any(one.powered for one in record.machines):
        record = replace(record, shape=wish.shape)  # what a change of the firmware's settings (SNC, NPS) does between two boots
    if (record.shape, len(record.machines), record.profile) != (wish.shape, wish.hosts, wish.profile):
        raise LabError(
            f"expected lab {wish.name} as {wish.hosts} x {wish.shape} ({wish.profile}), "
            f"found it up as {len(record.machines)} x {record.shape} ({record.profile})",
            f"nearsocket lab down {wish.name}, then up again; or another name",
        )
    dark = [one for one in record.machines if not one.powered]
    if not dark:
        say(record.name, "is up already")
        return record
    image = cached(recipe(record.profile))
    if image is None or image.digest != record.image:
        raise LabError(
            f"expected the image {record.image} of lab {record.name}, found it gone", f"nearsocket lab down {record.name}"
        )
    running: list[Running] = []
    try:
        for one in dark:
            running.append((one, machine.power_on(record, one, image)))
            record = record.with_machine(replace(one, powered=True))
        machine.wait(record, running, wish.timeout_s)
    except BaseException:
        with undisturbed():
            _end(running)
        raise
    state.write(record)
    return record


def _make(wish: Wish, image: Image) -> LabRecord:
    chosen, why = accel.choose(image)
    say(wish.name, f"{wish.hosts} x {wish.shape} under {'KVM' if chosen == 'kvm' else 'emulation'} ({why})")
    for attempt in range(4):
        try:
            return _boot(wish, image, chosen)
        except machine.PortTaken:
            if wish.port is not None or attempt == 3:
                raise
            say(wish.name, "someone took a port in the meantime; taking others")
        except machine.BootFailed as error:
            if chosen != "kvm" or attempt == 3:
                raise
            say(wish.name, f"{error.message}; trying again under emulation")
            accel.remember(False)
            chosen = "tcg"
    raise AssertionError("the loop returns or raises")


def _ports(wish: Wish) -> tuple[int, ...]:
    if wish.port is not None:
        wanted = tuple(range(wish.port, wish.port + wish.hosts))
        for port in wanted:
            if not machine.port_is_free(port):
                raise machine.PortTaken(
                    f"expected port {port} of 127.0.0.1 free, found it occupied", "take another --port, or leave it out"
                )
        return wanted
    taken: list[int] = []
    while len(taken) < wish.hosts:
        port = machine.free_port()
        if port not in taken:
            taken.append(port)
    return tuple(taken)


def _boot(wish: Wish, image: Image, chosen: str) -> LabRecord:
    started = time.monotonic()
    names = state.machine_names(wish.name, wish.hosts)
    machines = tuple(MachineRecord(name, port, str(uuid.uuid4())) for name, port in zip(names, _ports(wish), strict=True))
    record = LabRecord(wish.name, wish.shape, wish.profile, image.digest, chosen, machines)
    folder = LabFolder(wish.name)
    running: list[Running] = []
    try:
        folder.path.mkdir(mode=0o700)
        state.write(record)  # before the first process: a crash from here on leaves a trail
        ssh.make_keys(folder)
        ssh.write_config(record)
        for one in machines:
            machine.lay(record, one, image)
        for one in machines:
            running.append((one, machine.power_on(record, one, image)))
        say(wish.name, f"booting {', '.join(names)}")
        machine.wait(record, running, wish.timeout_s)
        for one in machines:
            with Monitor(folder.machine(one.name)) as monitor:
                monitor.save(machine.CLEAN)
        record = replace(record, ready=True)
        state.write(record)
    except BaseException:
        with undisturbed():
            _end(running)
            _remove(wish.name, record)
        raise
    say(wish.name, f"up after {time.monotonic() - started:.1f} s")
    return record


def _end(running: list[Running]) -> None:
    """End the processes that this command started, and give one that was just being started time to show its identity."""
    for _one, child in running:
        child.kill()
        child.wait()
    time.sleep(0.2)


def _remove(name: str, record: LabRecord | None = None) -> None:
    """End a lab's processes and remove its folder."""
    record = record or state.read(name)
    for one in record.machines if record else ():
        machine.power_off(one)
    remove_tree(LabFolder(name).path)


def _forget_lock(name: str) -> None:
    """Remove the lock file that this command holds, and the state folder where that was the last thing in it."""
    LabFolder(name).lock.unlink(missing_ok=True)
    folder = state_folder()
    try:
        folder.rmdir()
        if folder.parent.name == "nearsocket":  # the default place: that folder was made for this one
            folder.parent.rmdir()
    except OSError:
        pass  # other labs, or other state, live there


def down(name: str | None) -> list[str]:
    """End the named lab, or all; returns the names of those that were there."""
    chosen = [state.check_name(name)] if name else state.names()
    ended = []
    for one in chosen:
        if not LabFolder(one).path.is_dir():
            continue
        with locked(LabFolder(one).lock, one), undisturbed():
            _remove(one)
            _forget_lock(one)
        ended.append(one)
    return ended


def save(record: LabRecord, one: MachineRecord, snapshot: str) -> None:
    """Save a machine as it is now, for `reset` to go back to."""
    with locked(LabFolder(record.name).lock, record.name), Monitor(LabFolder(record.name).machine(one.name)) as monitor:
        monitor.save(snapshot)


def reset(record: LabRecord, one: MachineRecord, snapshot: str = machine.CLEAN) -> float:
    """Put a machine back to a saved state and set its clock; returns the seconds to the first SSH command."""
    if not one.powered or process.of_machine(one.uuid) is None:
        raise LabError(f"expected {one.name} to run, found it off", f"nearsocket lab up {record.name}")
    started = time.monotonic()
    with locked(LabFolder(record.name).lock, record.name):
        with Monitor(LabFolder(record.name).machine(one.name)) as monitor:
            monitor.load(snapshot)
        machine.set_clock(record, one)
    return time.monotonic() - started


def boot_id(record: LabRecord, one: MachineRecord) -> str:
    """The identity of the machine's present boot; empty where it does not answer now."""
    if not ssh.answers(one.port):
        return ""
    try:
        return ssh.run(record.name, one.name, "cat /proc/sys/kernel/random/boot_id", timeout_s=60).stdout.strip()
    except LabError:
        return ""  # the connection hung in a machine that goes down


def wait_reboot(record: LabRecord, one: MachineRecord, before: str, timeout_s: float) -> None:
    """Wait until a machine that reboots by itself has booted, another boot than `before`; LabError where it does not in time."""
    limit = time.monotonic() + timeout_s
    while time.monotonic() < limit:
        if boot_id(record, one) not in ("", before) and machine.settled(record, one, timeout_s):
            return
        time.sleep(0.5)
    raise LabError(f"expected {one.name} to reboot within {timeout_s:.0f} s, found silence", f"nearsocket lab logs {one.name}")


def kill(record: LabRecord, one: MachineRecord) -> bool:
    """Cut a machine's power; `up` switches it on again with the disk as it is. Returns whether it was on."""
    with locked(LabFolder(record.name).lock, record.name):
        was_on = machine.power_off(one)
        state.write(record.with_machine(replace(one, powered=False)))
    return was_on

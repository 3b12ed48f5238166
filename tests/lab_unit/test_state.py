"""State: records survive a round trip, broken ones are none, names are safe as files and hosts, machines are told apart."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import inventory, lifecycle, process, ssh, state
from lab.errors import LabError
from lab.folders import is_locked, locked, make_folder, need_space, remove_tree
from lab.state import LabFolder, LabRecord, MachineRecord

ONE = MachineRecord("lab", 2201, "8c1b5b8e-0000-4000-8000-000000000001")
TWO = MachineRecord("lab-2", 2202, "8c1b5b8e-0000-4000-8000-000000000002")


def record(*machines: MachineRecord, ready: bool = True) -> LabRecord:
    return LabRecord("lab", "two-socket", "small", "0123456789ab", "tcg", machines or (ONE,), ready)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEARSOCKET_LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NEARSOCKET_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def there(home: Path) -> LabFolder:
    """A lab's folder as `up` leaves it, without a machine."""
    folder = LabFolder("lab")
    folder.path.mkdir(parents=True)
    state.write(record())
    folder.key.write_text("private", encoding="utf-8")
    folder.host_key.with_name("host_key.pub").write_text("ssh-ed25519 AAAAkey comment\n", encoding="utf-8")
    return folder


def test_a_record_is_read_back_as_written(there: LabFolder) -> None:
    state.write(record(ONE, replace(TWO, powered=False)))
    assert state.read("lab") == record(ONE, replace(TWO, powered=False))


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    assert state.parse(text) is None


@pytest.mark.parametrize(
    "text", ['{"schema": 2}', '{"schema": 1, "machines": 3}', '{"schema": 1, "machines": [{"name": "x"}]}', "[]", '"x"']
)
def test_a_record_of_another_form_is_none(text: str) -> None:
    assert state.parse(text) is None


def test_a_record_cut_off_by_a_crash_is_none(there: LabFolder) -> None:
    path = there.path / "lab.json"
    path.write_text(path.read_text(encoding="utf-8")[:40], encoding="utf-8")
    assert state.read("lab") is None
    assert state.names() == ["lab"]


@pytest.mark.parametrize("name", ["", "-x", "../x", "a/b", "A", "x" * 40, "a b", "lab-", "lab.lock", "9"])
def test_a_name_that_is_no_host_and_no_file_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="expected a name"):
        state.check_name(name)


def test_several_machines_get_a_number() -> None:
    assert state.machine_names("lab", 1) == ("lab",)
    assert state.machine_names("lab", 3) == ("lab-1", "lab-2", "lab-3")


def test_an_unknown_machine_is_told_what_there_is(there: LabFolder) -> None:
    with pytest.raises(LabError, match="called far") as caught:
        state.find_machine("far")
    assert caught.value.hint == "there is lab"


def test_no_machine_at_all_hints_at_up(home: Path) -> None:
    with pytest.raises(LabError) as caught:
        state.find_machine("lab")
    assert caught.value.hint is not None
    assert "lab up" in caught.value.hint


def test_the_inventory_holds_machines_that_are_ready_and_on(there: LabFolder) -> None:
    state.write(record(ONE, replace(TWO, powered=False)))
    assert [name for name, _ in inventory.hosts()] == ["lab"]
    state.write(record(ready=False))
    assert inventory.hosts() == []


def test_the_inventory_checks_host_keys_strictly(there: LabFolder) -> None:
    ((_, data),) = inventory.hosts()
    assert data["ssh_strict_host_key_checking"] == "yes"
    assert data["ssh_hostname"] == "127.0.0.1"
    assert data["ssh_port"] == 2201
    assert data["ssh_known_hosts_file"] == str(there.known_hosts)


def test_ssh_itself_reads_the_configuration_as_meant(there: LabFolder) -> None:
    ssh.write_config(record(ONE, TWO))
    said = subprocess.run(["ssh", "-G", "-F", str(there.ssh_config), "lab-2"], capture_output=True, text=True, check=True).stdout
    lines = said.splitlines()
    assert "port 2202" in lines
    assert "stricthostkeychecking true" in lines
    assert f"userknownhostsfile {there.known_hosts}" in lines
    assert f"identityfile {there.key}" in lines


def test_a_state_folder_with_blanks_and_percent_signs_still_works_for_ssh(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARSOCKET_LAB_STATE", str(home / "a b 100%"))
    folder = LabFolder("lab")
    folder.path.mkdir(parents=True)
    folder.host_key.with_name("host_key.pub").write_text("ssh-ed25519 AAAAkey comment\n", encoding="utf-8")
    ssh.write_config(record())
    # `ssh -G` prints the percent sign as it stands in the file; a double one is a literal one when the key is opened.
    said = subprocess.run(["ssh", "-G", "-F", str(folder.ssh_config), "lab"], capture_output=True, text=True, check=True).stdout
    assert f"identityfile {str(folder.key).replace('%', '%%')}" in said.splitlines()


def test_known_hosts_has_each_machine_by_name_and_by_port() -> None:
    text = ssh.known_hosts_text(record(ONE, TWO), "ssh-ed25519 KEY")
    assert text == "lab,[127.0.0.1]:2201 ssh-ed25519 KEY\nlab-2,[127.0.0.1]:2202 ssh-ed25519 KEY\n"


def test_a_process_is_a_machine_only_with_its_identity_in_the_arguments() -> None:
    assert not process.is_machine(os.getpid(), ONE.uuid)
    child = subprocess.Popen(["sleep", "60", "60"], stdin=subprocess.DEVNULL)
    try:
        process.end(child.pid, ONE.uuid)  # a reused process number: another program than the record's
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_machine_is_found_and_ended_by_its_identity(tmp_path: Path) -> None:
    stand_in = tmp_path / "qemu-system-x86_64"
    stand_in.symlink_to("/bin/sh")
    child = subprocess.Popen(
        [str(stand_in), "-c", "echo up; read line", "-uuid", TWO.uuid], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert process.of_machine(TWO.uuid) == child.pid
        assert process.of_machine(ONE.uuid) is None
        process.end(child.pid, TWO.uuid)
        assert child.wait(timeout=10) < 0
    finally:
        child.kill()
        child.communicate()


def test_down_removes_all_and_the_state_folder_itself(there: LabFolder) -> None:
    assert lifecycle.down(None) == ["lab"]
    assert not there.path.parent.exists()
    assert lifecycle.down(None) == []


def test_down_of_one_lab_leaves_the_other(there: LabFolder) -> None:
    LabFolder("other").path.mkdir()
    assert lifecycle.down("lab") == ["lab"]
    assert state.names() == ["other"]


def test_what_no_lab_is_stays_where_it_is(there: LabFolder) -> None:
    (there.path.parent / "Notes").mkdir()
    lifecycle.down(None)
    assert [entry.name for entry in there.path.parent.iterdir()] == ["Notes"]


def test_a_lock_is_held_once_and_seen_by_others(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_locked(lock)
    with locked(lock, "test"):
        assert is_locked(lock)
    assert not is_locked(lock)


def test_who_waited_for_a_lock_that_was_deleted_takes_the_new_one(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    waiter = (
        "import sys; from pathlib import Path; from lab.folders import locked; lock = Path(sys.argv[1])\n"
        "with locked(lock, 'x'): print(lock.exists())"
    )
    with locked(lock, "test"):
        child = subprocess.Popen(
            [sys.executable, "-c", waiter, str(lock)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stderr is not None
        assert "waiting" in child.stderr.readline()
        lock.unlink()
    assert child.communicate(timeout=30)[0].strip() == "True"


def test_folders_are_for_their_user_alone(tmp_path: Path) -> None:
    made = make_folder(tmp_path / "a", "NEARSOCKET_LAB_STATE")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(LabError) as caught:
        make_folder(tmp_path / "file" / "state", "NEARSOCKET_LAB_STATE")
    assert caught.value.hint is not None
    assert "NEARSOCKET_LAB_STATE" in caught.value.hint


def test_too_little_room_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"expected \d+ MiB free"):
        need_space(tmp_path, 1 << 40, "NEARSOCKET_LAB_CACHE")


def test_a_tree_is_removed_whole(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_text("x", encoding="utf-8")
    remove_tree(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_process_is_over_only_when_it_is_gone_or_nothing_but_a_zombie() -> None:
    child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
    born = process.started(child.pid)
    assert not process.is_over(child.pid, born)
    assert process.is_over(child.pid, "another time")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert process.is_over(child.pid, born)
    child.wait()
    assert process.is_over(child.pid, born)

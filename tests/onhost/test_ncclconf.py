"""NCCL's configuration files: which are read, whose links are followed, and what is said of those that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import ncclconf
from nearsocket.onhost.collect.files import Context
from nearsocket.onhost.collect.ncclconf import Place
from tests.onhost.actors import process
from tests.onhost.standins import tree

TEXT = "# note\nNCCL_DEBUG=INFO\n NCCL_CUMEM_ENABLE = 0\nroot:x:0:0\nHF_TOKEN=x\n"
KEPT = "NCCL_DEBUG=INFO\n NCCL_CUMEM_ENABLE = 0"


def one(base: Path, path: str, **how: bool) -> str | None:
    parts = list(ncclconf._conf(Place(str(base), path, **how)))
    return parts[0]["text"] if parts else None


def read(root: Path, *processes: dict[str, Any]) -> tuple[dict[str, str], str | None]:
    whole = [{"uid": None, "environ": None, "vanished": False, **entry} for entry in processes]
    source = ncclconf.conf(Context(root, {"processes": Source(SourceStatus.OK, data=whole)}))
    return source.data or {}, source.reason


def test_only_nccl_lines_leave_the_host(tmp_path: Path) -> None:
    tree(tmp_path, {"/etc/nccl.conf": TEXT})
    assert one(tmp_path, "/etc/nccl.conf") == KEPT
    assert one(tmp_path, "/etc/none.conf") is None and one(tmp_path / "none", "/etc/nccl.conf") is None
    assert one(tmp_path, "/etc/none.conf", named=True) == "<absent>"


def test_the_hosts_own_links_are_followed(tmp_path: Path) -> None:
    tree(tmp_path, {"/srv/shared.conf": TEXT, "/etc/nccl.conf": "-> ../srv/shared.conf"})
    assert read(tmp_path) == ({"/etc/nccl.conf": KEPT}, None)


def test_no_link_in_a_container_leads_out_of_it_and_the_file_is_told_as_unread(tmp_path: Path) -> None:
    tree(tmp_path, {"/out/nccl.conf": TEXT, "/a/etc": "-> ../out", "/b/etc/nccl.conf": "-> ../../out/nccl.conf"})
    for name in ("a", "b"):
        assert one(tmp_path / name, "/etc/nccl.conf") == "<unread: a link in a container is not followed>"
    assert one(tmp_path / "a", "/../out/nccl.conf") == "<unread: a path that leads upwards is not followed>"


def test_what_is_no_file_is_told_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nccl.conf")
    (tmp_path / "d/nccl.conf").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "d"):
        for follow in (True, False):
            assert one(folder, "nccl.conf", follow=follow) == "<unread: not a regular file>"


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/sys/kernel/cap_last_cap").exists(), reason="needs Linux")
def test_a_file_that_may_not_be_read_is_an_entry_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, {"/etc/nccl.conf": TEXT})

    def refuse(place: Place) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ncclconf, "_open", refuse)
    texts, reason = read(tmp_path)
    assert texts == {"/etc/nccl.conf": "<unread: Permission denied>"}
    assert reason == "/etc/nccl.conf: Permission denied"


def test_a_longer_file_is_cut_and_says_so(tmp_path: Path) -> None:
    tree(tmp_path, {"/etc/nccl.conf": "NCCL_A=1\n" + "#\n" * 40_000})
    assert one(tmp_path, "/etc/nccl.conf") == "NCCL_A=1\n<cut>"


def test_the_file_that_a_process_names_is_read(tmp_path: Path) -> None:
    tree(tmp_path, {"/opt/own.conf": "NCCL_A=1\n"})
    entries = [{"pid": os.getpid(), "environ": {"NCCL_CONF_FILE": name}} for name in ("/opt/own.conf", "/opt/no.conf")]
    assert read(tmp_path, *entries)[0] == {"/opt/own.conf": "NCCL_A=1", "/opt/no.conf": "<absent>"}


def test_a_relative_name_is_meant_from_the_processs_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tree(tmp_path, {"/own.conf": "NCCL_A=1\n"})
    entry = {"pid": os.getpid(), "environ": {"NCCL_CONF_FILE": "own.conf"}}
    assert read(tmp_path / "root", entry)[0] == {f"/proc/{os.getpid()}/cwd/own.conf": "NCCL_A=1"}


def test_a_containers_files_are_read_below_its_own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ncclconf._identity
    with process("") as pid:
        monkeypatch.setattr(ncclconf, "_identity", lambda path: (0, 0) if str(pid) in path else real(path))
        tree(tmp_path, {"/in/own.conf": "NCCL_A=1\n"})
        entry = {"pid": pid, "environ": {"NCCL_CONF_FILE": f"{tmp_path}/in/own.conf"}}
        texts, _ = read(tmp_path / "none", entry)
    assert texts[f"/proc/{pid}/root{tmp_path}/in/own.conf"] == "NCCL_A=1"


def test_a_root_that_may_not_be_looked_into_is_told_and_a_process_that_ended_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> tuple[int, int]:
        raise (PermissionError(13, "Permission denied") if "/77/" in path else ProcessLookupError(3, "gone"))

    monkeypatch.setattr(ncclconf, "_identity", refuse)
    assert read(tmp_path, {"pid": 77}, {"pid": 78})[0] == {"/proc/77/root/etc/nccl.conf": "<unread: Permission denied>"}


def test_a_home_whose_directory_service_hangs_costs_that_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    tree(tmp_path, {"/etc/nccl.conf": "NCCL_A=1\n"})
    monkeypatch.setattr(ncclconf, "_home", lambda uid: signal.pause())
    pid = os.getpid()
    texts, reason = read(tmp_path, {"pid": pid, "uid": 0})
    assert texts == {"/etc/nccl.conf": "NCCL_A=1", f"/proc/{pid}/root/etc/nccl.conf": "<unread: no answer in 1 s>"}
    assert reason is not None

"""What is read of a process, and from where where sources differ."""

from __future__ import annotations

from typing import Any

from nearsocket.model.host import Engine, Host, Process
from nearsocket.model.read import host
from nearsocket.model.snapshot import Snapshot
from tests.snapshots import base, engine
from tests.snapshots.base import ADDRESSES, TWO_GPUS
from tests.snapshots.engine import CONTAINER, Task

GIB = 1 << 30


def task(pid: int = 50, **changes: Any) -> Task:
    """A plain process outside containers."""
    changes = {
        "command": ("python3", "a.py"),
        "cgroup": "0::/user.slice/session-3.scope\n",
        "ppid": 1,
        "shm_mount": None,
        **changes,
    }
    return Task(pid, **changes)


def read(*tasks: Task, **sources: Any) -> Host:
    containers = sources.pop("containers", [])
    return host(base.host(tasks=tasks, containers=containers, sources=sources))


def only(*tasks: Task, **sources: Any) -> Process:
    (process,) = read(*tasks, **sources).processes
    return process


def test_the_kernels_word_is_read() -> None:
    process = only(task(mems="0-1", cpus="8-15", policy="prefer (many):0-1", caps=engine.CAPS_NICE))
    assert (process.mems_allowed, process.cpus, process.policy, process.sys_nice) == (
        {0, 1},
        set(range(8, 16)),
        "prefer (many):0-1",
        True,
    )
    assert only(task(caps=engine.CAPS_DEFAULT)).sys_nice is False


def test_what_is_missing_is_none_or_empty_with_a_note() -> None:
    bare = {"status": "", "cpus": None, "uid": None, "policy_line": None, "comm": None, "environ": None}
    made = read(task(extra=bare))
    (process,) = made.processes
    assert (process.sys_nice, process.policy, process.mems_allowed, process.cpus, process.uid) == (None, None, set(), set(), -1)
    assert process.environ is None and process.shm_mount is None and process.shm_size_bytes is None
    assert set(made.notes) == {
        "processes: process 50: Mems_allowed_list could not be read",
        "processes: process 50: its user could not be read",
    }


def test_status_stands_in_for_what_the_entry_lacks() -> None:
    process = only(task(nspid=(50, 3), extra={"cpus": None, "uid": None, "ppid": None, "comm": None, "nspid": None}))
    assert (process.cpus, process.uid, process.ppid, process.comm, process.nspid) == (set(range(32)), 0, 1, "python3", (50, 3))


def test_a_wiped_environment_is_none_and_an_empty_one_is_empty() -> None:
    assert only(task(extra={"environ": {}})).environ == {}
    wiped = only(task(command=("sglang::scheduler_TP0",)))
    assert wiped.environ is None and wiped.environ_reason == "wiped"


def test_an_entry_without_number_and_a_vanished_one_are_left_out_with_a_note() -> None:
    made = read(task(50, extra={"pid": "x\x1b"}), task(51, extra={"vanished": True}), task(52), task(52))
    assert [process.pid for process in made.processes] == [52]
    assert made.notes == (
        "processes: an entry without a process number ('x\\x1b'), left out",
        "processes: process 51 ended while it was read, left out",
    )


def test_nvml_tells_the_gpu_and_open_devices_do_not_add_to_it() -> None:
    made = read(
        task(50, gpus={ADDRESSES[0]: GIB}, devices=("/dev/nvidia0", "/dev/nvidia1")),
        task(51, devices=("/dev/nvidia0", "/dev/nvidia1")),
    )
    assert [process.gpus for process in made.processes] == [(ADDRESSES[0],), ()]


def test_nvmls_own_list_counts_too_and_addresses_have_one_form() -> None:
    upper = {"00000000:" + ADDRESSES[0][5:].upper(): None}
    made = read(task(50, gpus=upper), task(51))
    assert made.processes[0].gpu_bytes == {ADDRESSES[0]: None}
    snapshot = base.host(tasks=[task(50)])
    snapshot.data("nvml")["gpus"][1]["processes"] = [{"pid": 50, "used_bytes": 7}, {"pid": 999, "used_bytes": 1}]
    assert host(snapshot).processes[0].gpu_bytes == {ADDRESSES[1]: 7}


def test_open_devices_tell_the_gpu_where_nvml_names_no_process() -> None:
    devices = ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia9")
    assert only(task(devices=devices)).gpus == (ADDRESSES[1],)


def test_the_container_is_the_control_groups_in_the_runtimes_form() -> None:
    group = f"0::/system.slice/docker-{CONTAINER}.scope\n"
    assert only(task(cgroup=group)).container == CONTAINER
    assert only(task(cgroup=group), containers=[engine.container(id=CONTAINER[:12])]).container == CONTAINER[:12]
    assert only(task(cgroup=group), containers=[engine.container(id="f" * 64)]).container == CONTAINER


def test_descent_tells_the_container_where_the_control_group_does_not() -> None:
    box = engine.container(pid=40)
    made = read(task(60, ppid=50), task(50, ppid=40), task(70, ppid=71), task(71, ppid=70), containers=[box])
    assert {process.pid: process.container for process in made.processes} == {50: CONTAINER, 60: CONTAINER, 70: None, 71: None}


def test_the_unit_is_the_control_groups() -> None:
    assert only(task(cgroup="0::/system.slice/vllm.service\n")).unit == "vllm.service"
    assert only(task(cgroup="0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n")).unit is None


def log(pid: int, rank: int) -> dict[str, Any]:
    return {"pid": pid, "path": "/l", "size_bytes": 1, "text": f"comm 0x1 rank {rank} nranks 4 cudaDev 0"}


def logs(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"nccl.logs": list(entries)}


def test_the_log_joins_by_number_and_gives_the_rank() -> None:
    process = only(task(50), **logs(log(50, 3), {"pid": 50, "text": "second"}, {"pid": None}, {"pid": 50, "text": 5}))
    assert process.rank == 3 and process.nccl_log == "comm 0x1 rank 3 nranks 4 cudaDev 0\nsecond"


def test_a_log_with_a_containers_number_joins_by_nspid_if_it_is_clear() -> None:
    assert only(task(50, nspid=(50, 7)), **logs(log(7, 1))).rank == 1
    two = read(task(50, nspid=(50, 7)), task(51, nspid=(51, 7)), **logs(log(7, 1)))
    assert [process.nccl_log for process in two.processes] == [None, None]


def test_rank_counts_pipeline_stages_of_the_same_parent() -> None:
    titles = ["PP0_TP0", "PP0_TP1", "PP1_TP0", "PP1_TP1"]
    tasks = [task(50 + n, ppid=40, command=(f"sglang::scheduler_{title}",)) for n, title in enumerate(titles)]
    other = task(90, ppid=41, command=("VLLM::Worker_TP7",))
    stage = task(91, ppid=42, command=("VLLM::Worker_PP1",))
    ranks = {process.pid: process.rank for process in read(*tasks, other, stage).processes}
    assert ranks == {50: 0, 51: 1, 52: 2, 53: 3, 90: 7, 91: 1}


def test_the_title_beats_the_log() -> None:
    assert only(task(50, command=("sglang::scheduler_TP2",)), **logs(log(50, 3))).rank == 2


def test_the_shm_mount_is_read_with_its_policy() -> None:
    line = "77 31 0:61 / /dev/shm rw - tmpfs near rw,size=8k,mpol=bind:0,1"
    process = only(task(shm_mount=line))
    assert process.shm_mount is not None and process.shm_mount.policy == "bind:0,1" and process.shm_mount.device == "0:61"
    assert (process.shm_size_bytes, process.shm_free_bytes) == (32 * GIB, 31 * GIB)


def test_buffers_that_cannot_be_read_are_noted() -> None:
    made = read(task(extra={"buffers": [{}, engine.mapping("a", 1, {0: 1})], "buffers_reason": "no permission"}))
    assert made.notes == ("processes: process 50: 1 entries of its nccl- files could not be read",)
    assert made.processes[0].buffers_reason == "no permission" and len(made.processes[0].buffers) == 1


def test_engines_are_known_by_their_command_line() -> None:
    made = read(task(50, command=("vllm", "serve", "m")), task(51, command=("sglang::detokenizer", "")), task(52, command=()))
    assert [process.engine for process in made.processes] == [Engine.VLLM, Engine.SGLANG, None]
    assert made.processes[1].command == ("sglang::detokenizer",) and made.processes[2].title == made.processes[2].comm


def test_no_process_source_is_no_process() -> None:
    snapshot: Snapshot = base.host(gpus=TWO_GPUS, sources={"processes": base.absent("none")})
    assert host(snapshot).processes == ()


def test_the_rank_is_that_of_this_process_not_of_an_earlier_run_in_the_same_log() -> None:
    line = "vm:{0}:{0} [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank {1} nranks 4 cudaDev 0"
    text = "\n".join([line.format(31, 2), line.format(50, 1), line.format(51, 3)])
    assert only(task(50), **logs({"pid": 50, "path": "/l", "size_bytes": 1, "text": text})).rank == 1
    inside = text.replace("50", "7")
    assert only(task(50, nspid=(50, 7)), **logs({"pid": 50, "path": "/l", "size_bytes": 1, "text": inside})).rank == 1


def test_a_reader_that_hung_is_a_reason_why_no_file_is_shown() -> None:
    process = only(task(extra={"unread": "no answer in 1.5 s", "buffers": [], "buffers_reason": None}))
    assert process.buffers_reason == "its reading stopped early: no answer in 1.5 s"
    said = only(task(extra={"unread": "no answer in 1.5 s", "buffers": [], "buffers_reason": "no permission"}))
    assert said.buffers_reason == "no permission"
    assert only(task(extra={"unread": None, "buffers": []})).buffers_reason is None

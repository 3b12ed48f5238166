"""Which processes make up one engine instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nearsocket.model.host import Host
from nearsocket.model.read import host
from tests.snapshots import base, engine
from tests.snapshots.engine import CONTAINER, Task
from tests.snapshots.engines import FOUR

GIB = 1 << 30
G = tuple(gpu.pci for gpu in FOUR)
SHELL = "0::/user.slice/user-1000.slice/session-3.scope\n"
BOX = f"0::/system.slice/docker-{CONTAINER}.scope\n"


def rank(pid: int, gpu: int, files: Sequence[int] = (), command: Sequence[str] = ("python3", "serve.py"), **changes: Any) -> Task:
    """A process on that GPU that maps ring files of these inodes."""
    buffers = [engine.mapping(f"f{inode}", inode, {0: 2354}) for inode in files]
    return Task(pid, command, gpus={G[gpu]: GIB}, buffers=buffers, **{"cgroup": SHELL, "ppid": 1, **changes})


def read(*tasks: Task, **changes: Any) -> Host:
    return host(base.host(gpus=FOUR, tasks=tasks, **changes))


def pids(*tasks: Task, **changes: Any) -> list[tuple[int, ...]]:
    return [replica.pids for replica in read(*tasks, **changes).replicas]


def test_a_shared_file_ties() -> None:
    assert pids(rank(50, 0, [1, 2]), rank(51, 1, [2, 3]), rank(52, 2, [3]), rank(53, 3, [9])) == [(50, 51, 52), (53,)]


def test_a_proxy_pool_ties_nobody() -> None:
    pool = {"extra": {"buffers": engine.pool(0, 0)}}
    assert pids(rank(50, 0, **pool), rank(51, 1, **pool)) == [(50,), (51,)]


def test_a_child_belongs_to_its_parent() -> None:
    server = Task(40, ("vllm", "serve", "m"), 1, cgroup=SHELL)
    core = Task(41, ("VLLM::EngineCore",), 40, cgroup=SHELL)
    assert pids(server, core, rank(42, 0, command=("VLLM::Worker_TP0",), ppid=41)) == [(40, 41, 42)]


def test_copies_of_one_command_with_one_parent_belong_together() -> None:
    assert pids(rank(50, 0, ppid=40), rank(51, 1, ppid=40)) == [(50, 51)]
    assert pids(rank(50, 0, ppid=40), rank(51, 1, ppid=40, command=("python3", "other.py"))) == [(50,), (51,)]
    assert pids(rank(50, 0, ppid=1), rank(51, 1, ppid=1)) == [(50,), (51,)]


def test_copies_with_files_of_their_own_are_two() -> None:
    files = [[1, 2], [2, 1], [3], [3]]
    assert pids(*(rank(50 + n, n, files[n], ppid=40) for n in range(4))) == [(50, 51), (52, 53)]


def test_a_container_ties_ranks_without_files() -> None:
    assert pids(rank(50, 0, cgroup=BOX), rank(51, 1, cgroup=BOX, ppid=7), containers=[engine.container(name="a")]) == [(50, 51)]


def test_a_unit_ties_outside_containers_and_names() -> None:
    group = "0::/system.slice/my.service\n"
    made = read(rank(50, 0, cgroup=group), rank(51, 1, cgroup=group))
    assert [(r.name, r.pids, r.unit) for r in made.replicas] == [("my", (50, 51), "my.service")]


def test_two_groups_of_files_in_one_container_stay_apart() -> None:
    tasks = [rank(50, 0, [1], cgroup=BOX), rank(51, 1, [1], cgroup=BOX), rank(52, 2, [2], cgroup=BOX), rank(53, 3, [2], cgroup=BOX)]
    made = read(*tasks, containers=[engine.container(name="box")])
    assert [(r.name, r.pids) for r in made.replicas] == [("box#1", (50, 51)), ("box#2", (52, 53))]


def test_groups_whose_ranks_fill_each_others_gaps_are_one() -> None:
    tasks = [rank(50 + n, n, [n % 2], command=(f"sglang::scheduler_TP{n}",), cgroup=BOX) for n in range(4)]
    assert pids(*tasks) == [(50, 51, 52, 53)]
    twice = [rank(50 + n, n, [n // 2], command=(f"sglang::scheduler_TP{n % 2}",), cgroup=BOX) for n in range(4)]
    assert pids(*twice) == [(50, 51), (52, 53)]


def test_a_helper_in_a_container_of_two_servers_goes_by_its_gpu_or_is_left_out() -> None:
    pairs = [rank(50, 0, [1], cgroup=BOX), rank(51, 1, [1], cgroup=BOX), rank(52, 2, [2], cgroup=BOX), rank(53, 3, [2], cgroup=BOX)]
    helper = Task(60, ("sglang::detokenizer",), 7, cgroup=BOX)
    with_gpu = rank(61, 3, command=("python3", "embed.py"), cgroup=BOX)
    alone = Task(62, ("python3", "x.py"), 7, gpus={"0000:99:00.0": GIB}, cgroup=BOX)
    assert pids(*pairs, helper, with_gpu, alone) == [(50, 51), (52, 53, 61), (62,)]


def test_two_servers_without_files_in_one_container_stay_apart() -> None:
    tasks = []
    for n in (0, 1):
        tasks.append(Task(40 + n, ("vllm", "serve", "m", "--port", str(8000 + n)), 7, cgroup=BOX))
        tasks.append(rank(50 + n, n, command=("VLLM::Worker_TP0",), ppid=40 + n, cgroup=BOX))
    made = read(*tasks, containers=[engine.container(name="box")])
    assert [(r.name, r.pids, r.port) for r in made.replicas] == [("box:8000", (40, 50), 8000), ("box:8001", (41, 51), 8001)]


def test_ranks_are_in_rank_order_and_helpers_are_not_ranks() -> None:
    tasks = [rank(50 + n, n, [1], command=(f"sglang::scheduler_TP{3 - n}",)) for n in range(4)]
    server = Task(40, ("python3", "-m", "sglang.launch_server"), 1, cgroup=SHELL)
    tasks = [server, *(Task(**{**t.__dict__, "ppid": 40}) for t in tasks), Task(60, ("sglang::detokenizer",), 40, cgroup=SHELL)]
    (replica,) = read(*tasks).replicas
    assert replica.ranks == (53, 52, 51, 50) and replica.pids == (40, 50, 51, 52, 53, 60)
    assert replica.gpus == (G[3], G[2], G[1], G[0]) and replica.sockets == (0, 1)


def test_a_process_with_neither_engine_gpu_nor_file_is_no_replica() -> None:
    assert pids(Task(50, ("nvidia-smi",), 1, cgroup=SHELL)) == []


def test_what_holds_gpu_memory_for_others_is_no_replica() -> None:
    assert pids(rank(50, 0, command=("nvidia-cuda-mps-server",)), rank(51, 1)) == [(51,)]


def test_the_name_is_the_containers_the_units_the_ids_or_the_engines() -> None:
    assert read(rank(50, 0, cgroup=BOX)).replicas[0].name == CONTAINER[:12]
    assert read(rank(50, 0, command=("vllm", "serve", "m"))).replicas[0].name == "vllm"
    assert read(rank(50, 0)).replicas[0].name == "python3"
    both = read(rank(50, 0), rank(51, 1)).replicas
    assert [replica.name for replica in both] == ["python3#1", "python3#2"]


def test_a_unit_that_runs_the_container_by_name_is_its_unit() -> None:
    def unit_of(exec_start: str) -> str | None:
        units = [
            engine.unit(id="other.service", exec_start="/usr/bin/docker run --name other x"),
            engine.unit(exec_start=exec_start),
        ]
        return read(rank(50, 0, cgroup=BOX), containers=[engine.container(name="gl-m")], units=units).replicas[0].unit

    assert unit_of("/usr/bin/docker run --rm --name gl-m --gpus all image") == "sglang.service"
    assert unit_of("/usr/bin/podman run --name=gl-m image") == "sglang.service"
    assert unit_of("/usr/bin/docker start -a gl-m") == "sglang.service"
    assert unit_of("/usr/bin/docker run --name gl-mm image") is None
    assert unit_of("/bin/echo --name gl-m") is None
    assert unit_of("") is None


def test_sockets_that_are_not_known_are_left_out() -> None:
    (replica,) = host(base.host(gpus=(), tasks=[rank(50, 0)])).replicas
    assert replica.sockets == () and replica.gpus == (G[0],)


def test_the_buffers_of_a_replica_are_those_its_processes_map() -> None:
    made = read(rank(50, 0, [1]), rank(51, 1, [1]), rank(52, 2, [5]))
    assert [[b.identity for b in replica.buffers] for replica in made.replicas] == [["0:56:1"], ["0:56:5"]]
    assert made.buffers[0].pids == (50, 51) and made.processes[0].buffers[0].pids == (50,)

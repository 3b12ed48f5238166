"""What units call before and after a start: fingerprint, relief, wait-health."""

from __future__ import annotations

import dataclasses
import http.server
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nearsocket.model import read
from nearsocket.model.errors import NearsocketError
from nearsocket.model.plan.fingerprint import StartDecision, Verdict, of_host
from nearsocket.model.plan.values import Gate
from nearsocket.model.settings import OnChange, Relief, Runtime
from nearsocket.model.snapshot import from_json
from nearsocket.model.start import Start
from nearsocket.onhost import fingerprint, neighbours, relief, waithealth
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout, Output

HOSTS = sorted((Path(__file__).resolve().parents[1] / "data" / "hosts").glob("*.snapshot.json"))
PCI = ("0000:c1:00.0", "0000:c2:00.0")
START = Start(
    replica="a",
    runtime=Runtime.DOCKER,
    container="nearsocket-sglang-a",
    unit="nearsocket-sglang-a.service",
    image="i@sha256:0",
    gpus=PCI,
    gate=Gate.CDI_UUID,
    on_change=OnChange.UNBOUND,
    near="1",
    relief=Relief.AUTO,
    relief_timeout_s=30,
    model="/srv/m",
    shm_point="/run/nearsocket/shm/a",
    shm_policy="bind:1",
    bound={"RUN_BINDING": "--cpuset-cpus=8-15", "NUMACTL": "numactl --membind=1", "ENGINE_BINDING": ""},
    unbound={"RUN_BINDING": "", "NUMACTL": "", "ENGINE_BINDING": ""},
    secrets={},
    health="http://127.0.0.1:30000/health",
    start_s=60,
)
GOOD = StartDecision(Verdict.START, (), {PCI[0]: "GPU-1", PCI[1]: "GPU-2"})


@pytest.fixture
def tree(root: Path) -> Tree:
    (root / "proc/self").mkdir(parents=True)
    mounted(root, "rw,size=1k,mpol=bind:1")
    return Tree(root)


def mounted(root: Path, options: str) -> None:
    line = f"1 2 0:3 / /run/nearsocket/shm/a rw,nosuid - tmpfs tmpfs {options}\n"
    (root / "proc/self/mountinfo").write_text("1 1 8:1 / / rw - ext4 /dev/sda rw\n" + line)


def run_file(tree: Tree, name: str) -> Path:
    return tree.at(f"/run/nearsocket/a/{name}")


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.name.partition(".")[0])
def test_the_sources_that_a_start_reads_give_the_fingerprint_of_the_whole_snapshot(path: Path) -> None:
    whole = from_json(path.read_text())
    part = dataclasses.replace(whole, sources={n: s for n, s in whole.sources.items() if n in fingerprint.SOURCES})
    assert of_host(read.host(part)) == of_host(read.host(whole))


def test_a_start_on_the_plans_host_is_bound_and_names_the_gpus(tree: Tree) -> None:
    said = fingerprint.prepare(tree, START, GOOD, "20300101T000000Z")
    text = run_file(tree, "start.env").read_text()
    assert 'GPUS="--device=nvidia.com/gpu=GPU-1 --device=nvidia.com/gpu=GPU-2"\n' in text
    assert 'NUMACTL="numactl --membind=1"\n' in text
    folder = next(path for path in run_file(tree, "").iterdir() if path.is_dir())
    assert f'START_DIR="/run/nearsocket/a/{folder.name}"\n' in text
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert "bound as planned" in said[-1]


def test_a_start_where_the_nodes_changed_is_unbound_and_loud_and_needs_no_mount(tree: Tree) -> None:
    (tree.root / "proc/self/mountinfo").write_text("")
    changed = StartDecision(Verdict.UNBOUND, ("node 2 is new",), GOOD.uuids)
    said = fingerprint.prepare(tree, START, changed, "20300101T000000Z")
    assert 'RUN_BINDING=""\n' in run_file(tree, "start.env").read_text()
    assert "UNBOUND" in said[0]
    assert "node 2 is new" in said


def test_a_start_without_its_gpu_is_refused_and_leaves_nothing(tree: Tree) -> None:
    gone = StartDecision(Verdict.REFUSE, (f"GPU {PCI[0]} is gone",), {})
    with pytest.raises(NearsocketError, match="is gone"):
        fingerprint.prepare(tree, START, gone, "20300101T000000Z")
    assert not run_file(tree, "").exists()


def test_a_gpu_without_a_name_is_refused(tree: Tree) -> None:
    nameless = StartDecision(Verdict.START, (), {PCI[0]: "GPU-1", PCI[1]: None})
    with pytest.raises(NearsocketError, match=f"GPU {PCI[1]}"):
        fingerprint.prepare(tree, START, nameless, "20300101T000000Z")


@pytest.mark.parametrize("options", ["rw,size=1k", "rw,mpol=bind:0", "rw,mpol=bind:1,3", "rw,mpol=prefer:1", None])
def test_a_mount_with_another_policy_or_none_is_refused(tree: Tree, options: str | None) -> None:
    if options is None:
        (tree.root / "proc/self/mountinfo").write_text("")
    else:
        mounted(tree.root, options)
    with pytest.raises(NearsocketError, match="mpol=bind:1"):
        fingerprint.prepare(tree, START, GOOD, "20300101T000000Z")


def test_a_policy_of_several_nodes_is_read_whole(tree: Tree) -> None:
    mounted(tree.root, "rw,mpol=bind:0,2-3,size=1k")
    fingerprint.prepare(tree, dataclasses.replace(START, shm_policy="bind:0,2-3"), GOOD, "20300101T000000Z")


def test_secrets_are_read_from_their_files_into_one_that_only_root_reads(tree: Tree) -> None:
    (tree.root / "etc").mkdir()
    (tree.root / "etc/token").write_text("s3cr3t $'\"\n")
    fingerprint.prepare(tree, dataclasses.replace(START, secrets={"HF_TOKEN": "/etc/token"}), GOOD, "20300101T000000Z")
    file = run_file(tree, "secrets.env")
    assert file.read_text() == "HF_TOKEN=s3cr3t $'\"\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"one\ntwo\n", b"\xff", None])
def test_a_secret_that_cannot_be_used_is_refused_without_its_value(tree: Tree, content: bytes | None) -> None:
    (tree.root / "etc").mkdir()
    if content is not None:
        (tree.root / "etc/token").write_bytes(content)
    with pytest.raises(NearsocketError) as error:
        fingerprint.prepare(tree, dataclasses.replace(START, secrets={"HF_TOKEN": "/etc/token"}), GOOD, "20300101T000000Z")
    assert "HF_TOKEN" in error.value.message
    assert "two" not in f"{error.value.message} {error.value.hint}"
    assert not run_file(tree, "start.env").exists()


def test_five_starts_folders_stay(tree: Tree) -> None:
    for day in range(1, 9):
        fingerprint.prepare(tree, START, GOOD, f"203001{day:02d}T000000Z")
    names = sorted(path.name[:8] for path in run_file(tree, "").iterdir() if path.is_dir())
    assert names == [f"203001{day:02d}" for day in range(4, 9)]


def test_the_program_says_one_line_where_nothing_is_installed(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert fingerprint.main(["--replica=a"], tree) == 2
    assert capsys.readouterr().err.startswith("nearsocket: not started: ")


# Relief


@pytest.fixture
def machine(root: Path) -> Tree:
    for node in (0, 1):
        folder = root / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "meminfo").write_text(
            f"Node {node} MemFree:        1048576 kB\nNode {node} Active(file):   2048 kB\nNode {node} Inactive(file): 1024 kB\n"
        )
    (root / "proc/sys/vm").mkdir(parents=True)
    (root / "proc/sys/vm/drop_caches").write_text("0")
    (root / "srv/m").mkdir(parents=True)
    (root / "srv/m/w.safetensors").write_bytes(b"x" * 4096)
    return Tree(root)


def written(tree: Tree, path: str) -> str:
    return tree.at(path).read_text()


@pytest.mark.parametrize(
    ("policy", "neighbour", "reclaims", "chosen"),
    [
        (Relief.AUTO, None, False, Relief.DROP),
        (Relief.AUTO, "container x", True, Relief.NEAR),
        (Relief.AUTO, "container x", False, Relief.WEIGHTS),
        (Relief.DROP, "container x", True, Relief.DROP),
        (Relief.NONE, None, True, Relief.NONE),
    ],
)
def test_auto_spares_a_neighbours_page_cache(
    machine: Tree, policy: Relief, neighbour: str | None, reclaims: bool, chosen: Relief
) -> None:
    if reclaims:
        machine.at("/sys/devices/system/node/node1/reclaim").touch()
    assert relief.choose(machine, policy, frozenset({1}), neighbour) is chosen


def test_drop_drops_and_says_free_memory_before_and_after(machine: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert relief.relieve(machine, Relief.AUTO, frozenset({1}), "/srv/m", 20, None) == []
    assert written(machine, "/proc/sys/vm/drop_caches") == "1"
    said = capsys.readouterr().err
    assert "before relief: node 1: 1.0 GiB free" in said
    assert "after relief (drop): node 1" in said


def test_near_asks_the_near_node_alone_for_its_file_pages(machine: Tree) -> None:
    for node in (0, 1):
        machine.at(f"/sys/devices/system/node/node{node}/reclaim").touch()
    assert relief.relieve(machine, Relief.AUTO, frozenset({1}), "/srv/m", 20, "container x") == []
    assert written(machine, "/sys/devices/system/node/node1/reclaim") == str(3072 * 1024)
    assert written(machine, "/sys/devices/system/node/node0/reclaim") == ""
    assert written(machine, "/proc/sys/vm/drop_caches") == "0"


def test_what_cannot_be_done_is_a_warning_each(machine: Tree) -> None:
    machine.at("/proc/sys/vm/drop_caches").unlink()
    warnings = relief.relieve(machine, Relief.DROP, frozenset({1}), "/srv/absent", 20, None)
    assert len(warnings) == 2
    assert warnings[0].startswith("syncfs of /srv/absent: ")
    assert warnings[1].startswith("drop_caches: ")


def test_weights_touch_the_models_files_only(machine: Tree) -> None:
    (machine.root / "srv/m/link").symlink_to("absent")
    assert relief.relieve(machine, Relief.WEIGHTS, frozenset({1}), "/srv/m", 20, None) == []
    assert written(machine, "/proc/sys/vm/drop_caches") == "0"


def test_a_step_that_hangs_is_left_behind_in_its_time() -> None:
    began = time.monotonic()
    problem = relief.bounded(signal.pause, 0.1)
    assert problem is not None
    assert problem.startswith("not done in")
    assert time.monotonic() - began < 10


def test_zfs_is_named_where_it_keeps_memory(machine: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    stats = machine.at("/proc/spl/kstat/zfs/arcstats")
    stats.parent.mkdir(parents=True)
    stats.write_text(f"name type data\nsize                            4    {8 << 30}\n")
    relief.relieve(machine, Relief.DROP, frozenset({1}), "/srv/m", 20, None)
    assert "ZFS keeps 8.0 GiB" in capsys.readouterr().err


def test_relief_without_an_installation_warns_and_lets_the_start_go_on(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert relief.main(["--replica=a"], Tree(root)) == 1
    assert "the start goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({"docker": Output(0, "mine\n", ""), "podman": None, "nvidia-smi": None}, None),
        ({"docker": Output(0, "mine\nother\n", ""), "podman": None, "nvidia-smi": None}, "container other"),
        ({"docker": None, "podman": Output(0, "pod\n", ""), "nvidia-smi": None}, "container pod"),
        ({"docker": None, "podman": None, "nvidia-smi": Output(0, "12, python\n", "")}, "GPU process 12, python"),
        ({"docker": None, "podman": None, "nvidia-smi": Output(0, "", "")}, None),
        ({"docker": Output(1, "", "cannot connect"), "podman": None, "nvidia-smi": None}, "docker does not say what runs"),
        ({"docker": None, "podman": None, "nvidia-smi": Output(18, "mismatch", "")}, "nvidia-smi does not say what runs"),
    ],
)
def test_a_neighbour_is_any_other_container_or_gpu_process_and_not_knowing_counts_as_one(
    answers: dict[str, Output | None], found: str | None
) -> None:
    def run(argv: Sequence[str], limit_s: float) -> Output:
        answer = answers[argv[0]]
        if answer is None:
            raise FileNotFoundError(argv[0])
        return answer

    said = neighbours.find("mine", run)
    assert (said is None) if found is None else (said is not None and said.startswith(found))


def test_a_runtime_that_hangs_counts_as_a_neighbour() -> None:
    def run(argv: Sequence[str], limit_s: float) -> Output:
        raise CommandTimeout("docker ps: no answer in 10 s")

    assert "does not say" in str(neighbours.find("mine", run))


# Waiting for health


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("answers", "runs", "code", "took_s"),
    [
        (["refused", "503", "200"], True, 0, 2),
        (["refused"], True, 2, 60),
        (["refused"], False, 2, 0),
    ],
)
def test_it_waits_for_200_and_no_longer_than_the_limit_or_the_engine(
    answers: list[str], runs: bool, code: int, took_s: float
) -> None:
    clock, left = Clock(), list(answers)
    ask = lambda url, limit_s: left.pop(0) if len(left) > 1 else left[0]  # noqa: E731
    assert waithealth.wait("http://x/health", 60, lambda: runs, ask, clock, clock.sleep) == code
    assert clock.now == took_s


@pytest.fixture
def engine() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_asks_the_address_itself(engine: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waithealth.answer(f"{engine}/health", 5) == "200"
    assert waithealth.answer(f"{engine}/other", 5) == "404"
    assert "refused" in waithealth.answer("http://127.0.0.1:1/health", 5)
    (root / f"proc/{os.getpid()}").mkdir(parents=True)
    monkeypatch.setenv("MAINPID", str(os.getpid()))
    assert waithealth.main(["--replica=a", f"--url={engine}/health", "--timeout=5"], Tree(root)) == 0
    monkeypatch.setenv("MAINPID", "999999")
    assert waithealth.main(["--replica=a", f"--url={engine}/health", "--timeout=5"], Tree(root)) == 2

"""Page-cache relief before a start: what each policy touches, what it says, and that it never holds a start up."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from nearsocket.model.settings import Relief
from nearsocket.onhost import neighbours, relief
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout, Output


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

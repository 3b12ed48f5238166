"""What a unit calls first: the fingerprint of the host, the GPUs' names, the folder and the secrets of a start."""

from __future__ import annotations

import dataclasses
import os
import stat
from pathlib import Path

import pytest

from nearsocket.model import read
from nearsocket.model.errors import NearsocketError
from nearsocket.model.plan.fingerprint import StartDecision, Verdict, of_host
from nearsocket.model.plan.values import Gate
from nearsocket.model.settings import OnChange, Relief, Runtime
from nearsocket.model.snapshot import from_json
from nearsocket.model.start import Start
from nearsocket.onhost import fingerprint
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree

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


def test_what_a_container_left_in_its_folder_keeps_no_later_start_from_being_one(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(1, 6):
        fingerprint.prepare(tree, START, GOOD, f"203001{day:02d}T000000Z")
    [oldest] = run_file(tree, "").glob("20300101*")
    at = os.open(oldest, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("deep", dir_fd=at)
        below = os.open("deep", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    fingerprint.prepare(tree, START, GOOD, "20300106T000000Z")
    assert not oldest.exists()

    def stuck(folder: Path) -> None:
        raise OSError(16, "Device or resource busy", str(folder))

    monkeypatch.setattr(disk, "remove_tree", stuck)
    said = fingerprint.prepare(tree, START, GOOD, "20300107T000000Z")
    assert any("the folder of an earlier start was not removed" in line for line in said)
    assert "20300107T000000Z" in run_file(tree, "start.env").read_text()


def test_the_program_says_one_line_where_nothing_is_installed(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert fingerprint.main(["--replica=a"], tree) == 2
    assert capsys.readouterr().err.startswith("nearsocket: not started: ")

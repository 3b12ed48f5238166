"""The kit on the untouched wheels of the package index: `make image-test`. Never skipped: without the index these fail."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsocket.control.imagekit import kit_files, manifest
from nearsocket.model.errors import NearsocketError
from nearsocket.model.image.kit import MANIFEST, Release, sha256
from nearsocket.model.image.tree import State, judge
from nearsocket.onhost.image.apply import apply
from nearsocket.onhost.image.folder import read_tree
from tests.image.torchlike import FLOAT16, FLOAT32, PACK, Tensor
from tests.image.upstream import KIT, World, checked, download, unpack

pytestmark = [pytest.mark.network, pytest.mark.timeout(900)]

IDS = [release.version for release in KIT.releases]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    return {release.version: checked(release, folder) for release in KIT.releases}


@pytest.fixture(scope="module")
def plain(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Version to a folder with the whole untouched wheel."""
    roots = {version: tmp_path_factory.mktemp("plain") for version in wheels}
    for version, wheel in wheels.items():
        unpack(wheel, roots[version])
    return roots


@pytest.fixture(scope="module")
def patched(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Version to a folder with the patched wheel."""
    roots = {version: tmp_path_factory.mktemp("patched") for version in wheels}
    for version, wheel in wheels.items():
        unpack(wheel, roots[version])
        assert apply(roots[version], KIT)[0] is True
    return roots


def hashes(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): sha256(path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()}


def edited(root: Path, release: Release) -> Path:
    (edit,) = release.edits
    return root / "sglang" / edit.path


def test_the_index_has_every_release_of_the_kit_and_newer_ones_are_told() -> None:
    words = [sys.executable, "-m", "pip", "index", "versions", "sglang", "--python-version", "3.11", "--only-binary", ":all:"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout
    line = next(line for line in said.splitlines() if line.startswith("Available versions:"))
    there = [version.strip() for version in line.partition(":")[2].split(",")]
    assert set(IDS) <= set(there)
    newer = there[: min(there.index(version) for version in IDS)]
    if newer:  # no failure: the kit stays right for what it names
        warnings.warn(f"releases that the kit does not know: {', '.join(newer)} (docs/image.md)", stacklevel=1)


@pytest.mark.parametrize("release", KIT.releases, ids=IDS)
def test_applying_changes_the_one_file_and_no_other(release: Release, plain: dict[str, Path], patched: dict[str, Path]) -> None:
    before, after = hashes(plain[release.version]), hashes(patched[release.version])
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed == {f"sglang/{edit.path}" for edit in release.edits}
    verdict = judge(KIT, read_tree(patched[release.version] / "sglang", KIT))
    assert (verdict.state, verdict.release) == (State.PATCHED, release)
    assert apply(patched[release.version], KIT)[0] is False


@pytest.mark.parametrize("release", KIT.releases, ids=IDS)
def test_one_byte_changed_in_any_named_file_is_refused_and_the_tree_stays(
    release: Release, wheels: dict[str, Path], tmp_path: Path
) -> None:
    folder = unpack(wheels[release.version], tmp_path)
    for path in [edit.path for edit in release.edits] + [pinned.path for pinned in release.relies_on]:
        whole = (folder / path).read_bytes()
        (folder / path).write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        before = hashes(tmp_path)
        with pytest.raises(NearsocketError, match=r"expected sha256 .* found sha256"):
            apply(tmp_path, KIT)
        assert hashes(tmp_path) == before
        (folder / path).write_bytes(whole)
    assert apply(tmp_path, KIT)[0] is True


def test_an_older_release_is_refused(tmp_path: Path) -> None:
    folder = unpack(download("0.5.21", tmp_path), tmp_path / "root")
    before = hashes(folder)
    with pytest.raises(NearsocketError, match=r"parallel_state\.py: expected sha256"):
        apply(tmp_path / "root", KIT)
    assert hashes(folder) == before


def test_the_manifest_is_what_the_wheels_give(wheels: dict[str, Path]) -> None:
    files = kit_files(Path(__file__).resolve().parents[2] / "templates" / "image")
    assert manifest(files, list(wheels.values())).encode() == files[MANIFEST]


def test_the_command_applies_and_verifies(wheels: dict[str, Path], tmp_path: Path) -> None:
    release = KIT.releases[-1]
    unpack(wheels[release.version], tmp_path)

    def nearsocket(*words: str) -> tuple[int, str]:
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        done = subprocess.run(
            [sys.executable, "-m", "nearsocket", "image", *words, "--root", str(tmp_path)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    assert nearsocket("verify")[0] == 2
    code, said = nearsocket("apply")
    assert code == 0 and "applied to SGLang" in said
    code, said = nearsocket("apply")
    assert code == 0 and "is in place in SGLang" in said
    assert nearsocket("verify")[0] == 0
    with edited(tmp_path, release).open("ab") as file:
        file.write(b"\n")
    assert nearsocket("verify")[0] == 2
    assert nearsocket("apply")[0] == 2


TENSORS = st.builds(
    lambda shape, dtype, contiguous: Tensor.of(*shape, dtype=dtype, contiguous=contiguous),
    st.one_of(
        st.tuples(st.integers(0, 300), st.sampled_from([8, 12, 64, 100])),
        st.tuples(st.integers(0, 5), st.integers(0, 40), st.just(64)),
        st.tuples(st.integers(1, 64)),
    ),
    st.sampled_from(["bfloat16", "bfloat16", FLOAT16, FLOAT32]),
    st.sampled_from([True, True, True, False]),
)
SEQUENCES = st.lists(st.tuples(TENSORS, st.sampled_from(["main", "side"])), max_size=6)
#: One workspace serves one hidden size at a time in the stand-in; packs of 16 bytes.
LIMITS = st.integers(2, 400).map(lambda packs: packs * PACK)


def played(world: World, sequence: list[tuple[Tensor, str]]) -> list[object]:
    results: list[object] = []
    for tensor, stream in sequence:
        world.cuda.stream = stream
        results.append(world.reduce(tensor))
    return results


@pytest.mark.parametrize("release", KIT.releases, ids=IDS)
@pytest.mark.parametrize("variable", [None, "0", ""])
@settings(deadline=None, max_examples=60)
@given(sequence=SEQUENCES, limit=LIMITS)
def test_unset_the_patched_file_decides_and_calls_as_the_untouched_one(
    release: Release,
    variable: str | None,
    plain: dict[str, Path],
    patched: dict[str, Path],
    sequence: list[tuple[Tensor, str]],
    limit: int,
) -> None:
    before = World(edited(plain[release.version], release), limit, variable)
    after = World(edited(patched[release.version], release), limit, variable)
    assert played(before, sequence) == played(after, sequence)
    assert before.workspace.calls == after.workspace.calls
    assert vars(before.comm).keys() == vars(after.comm).keys()
    methods = ("should_pcie_ipc_ar", "pcie_ipc_all_reduce", "_ensure_workspace", "prepare", "destroy")
    for name in methods:
        assert getattr(type(before.comm), name).__code__ == getattr(type(after.comm), name).__code__


@pytest.mark.parametrize("release", KIT.releases, ids=IDS)
@settings(deadline=None, max_examples=100)
@given(sequence=SEQUENCES, limit=LIMITS)
def test_set_all_ranks_agree_what_went_before_goes_as_before_and_chunks_are_whole(
    release: Release, plain: dict[str, Path], patched: dict[str, Path], sequence: list[tuple[Tensor, str]], limit: int
) -> None:
    before = World(edited(plain[release.version], release), limit, None)
    ranks = [World(edited(patched[release.version], release), limit, "1", rank=rank) for rank in (0, 1)]
    old = played(before, sequence)
    new, other = (played(rank, sequence) for rank in ranks)
    assert new == other
    assert ranks[0].workspace.calls == ranks[1].workspace.calls
    for (tensor, _), was, now in zip(sequence, old, new, strict=True):
        whole = [("sum", row) for row in range(tensor.rows)]
        assert now == was or (was is None and now == whole)
        if now is not None:
            assert tensor.contiguous and tensor.dtype == "bfloat16" and tensor.dim() > 1 and tensor.numel()
    for call in ranks[0].workspace.calls:
        if call[0] == "all_reduce":
            assert call[2] * call[3] <= limit

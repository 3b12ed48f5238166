"""Which folders of a host hold what engines compiled, and which of them may be emptied."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket.model.driver import caches
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.reprovision import proof

#: A user's home in the container.
HOME = "/root"
HASH = "a3f1" * 16


@pytest.mark.parametrize(
    ("mounts", "environ"),
    [
        ([("/srv/hf", f"{HOME}/.cache")], {"TRITON_CACHE_DIR": f"{HOME}/.cache"}),
        ([("/srv/m", "/data")], {"DG_JIT_CACHE_DIR": "/data/"}),
        ([("/srv/m", "/data")], {"TORCHINDUCTOR_CACHE_DIR": "/data"}),
        ([("/srv/f", f"{HOME}/.cache/flashinfer")], {}),
    ],
)
def test_a_mounts_own_root_is_never_emptied(mounts: list[tuple[str, str]], environ: dict[str, str]) -> None:
    assert not {source for source, _ in mounts} & set(caches.folders(mounts, environ))


def test_every_folder_below_a_moved_root_and_a_home_of_its_own_is_found() -> None:
    found = caches.folders([("/srv/v", "/cache"), ("/srv/h", "/home/me")], {"VLLM_CACHE_ROOT": "/cache/vllm", "HOME": "/home/me"})
    assert {"/srv/v/vllm/torch_compile_cache", "/srv/v/vllm/torch_aot_compile", "/srv/v/vllm/deep_gemm"} <= set(found)
    assert "/srv/h/.triton/cache" in found


def test_of_mounts_within_mounts_the_inner_one_is_the_one_that_the_container_sees() -> None:
    found = caches.folders([("/srv/outer", "/root"), ("/srv/inner", f"{HOME}/.cache")], {})
    assert "/srv/inner/flashinfer" in found
    assert "/srv/outer/.cache/flashinfer" not in found


@pytest.mark.parametrize(
    "path", ["huggingface/hub/models--x/blobs", "ab/model.safetensors", "notes.txt", f"{HASH}/model.gguf", "weights"]
)
def test_a_folder_that_holds_anything_else_stays_whole_and_is_said(tmp_path: Path, path: str) -> None:
    kept, compiled = tmp_path / "srv/x/jit" / path, tmp_path / "srv/x/jit" / HASH / "kernel.cubin"
    for one in (kept, compiled):
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_text("x")
    notes = proof.clear(Tree(tmp_path), caches.folders([("/srv/x", "/data")], {"TRITON_CACHE_DIR": "/data/jit"}))
    assert kept.exists() and compiled.exists()
    assert len(notes) == 1
    assert notes[0].startswith(f"not cleared: {tmp_path}/srv/x/jit holds ") or notes[0].startswith("not cleared: /srv/x/jit holds ")


def test_a_moved_cache_that_holds_compiled_code_alone_is_emptied(tmp_path: Path) -> None:
    folder = tmp_path / "srv/x/jit"
    for name in (HASH, "RZ4MXKGFYBJWBNTVLPQSADEU2ECHI3FOJXKLMNBVCXZASDFGHJKQ", "x4", "fxgraph"):
        (folder / name).mkdir(parents=True)
        (folder / name / "k.json").write_text("{}")
    assert proof.clear(Tree(tmp_path), ("/srv/x/jit",)) == ("cleared what was compiled in /srv/x/jit",)
    assert list(folder.iterdir()) == []


def test_a_model_in_a_folder_with_a_caches_own_name_keeps_it(tmp_path: Path) -> None:
    model = tmp_path / "srv/vllm/torch_compile_cache/deep/model.safetensors"
    model.parent.mkdir(parents=True)
    model.write_text("w")
    assert proof.clear(Tree(tmp_path), ("/srv/vllm/torch_compile_cache",))[0].startswith("not cleared: ")
    assert model.exists()


def test_a_cache_that_cannot_be_emptied_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = tmp_path / "srv/flashinfer/x"
    held.parent.mkdir(parents=True)
    held.write_text("x")

    def refused(_self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refused)
    assert proof.clear(Tree(tmp_path), ("/srv/flashinfer",)) == (
        "not cleared: /srv/flashinfer: Operation not permitted; clear it by hand",
    )

"""Where engines keep what they compiled for a driver, in the folders that replicas mount from their host. Pure.

PyTorch's inductor and ahead-of-time compile, Triton, FlashInfer and DeepGEMM. A cache inside the container goes with it; what is
here outlives it. Places: each project's documentation of its variables.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

#: Below a user's home in the container.
_HOME = (
    ".cache/vllm/torch_compile_cache",
    ".cache/vllm/torch_aot_compile",
    ".cache/vllm/deep_gemm",
    ".cache/torch_extensions",
    ".cache/torch/kernels",
    ".cache/flashinfer",
    ".cache/deep_gemm",
    ".deep_gemm",
    ".triton/cache",
)
#: Variables that move one, and where it lies below what they name.
_MOVED = {
    "TORCHINDUCTOR_CACHE_DIR": "",
    "TRITON_CACHE_DIR": "",
    "VLLM_CACHE_ROOT": "torch_compile_cache",
    "FLASHINFER_WORKSPACE_BASE": ".cache/flashinfer",
    "FLASHINFER_JIT_DIR": "",
    "DG_JIT_CACHE_DIR": "",
}


def folders(mounts: Iterable[tuple[str, str]], environ: Mapping[str, str], home: str = "/root") -> tuple[str, ...]:
    """The host's folders of such caches, each once. `mounts`: (source, destination) of what the container may write to.

    Only a folder below a mount's source comes out; a destination's own root never does, unless a variable names it.
    """
    inside = [posixpath.join(home, path) for path in _HOME]
    inside += [f"/tmp/torchinductor_{home.rpartition('/')[2]}"]  # noqa: S108 - in the container, where inductor puts it
    moved = [(environ[name], below) for name, below in _MOVED.items() if environ.get(name, "").startswith("/")]
    named = [posixpath.join(folder, below).rstrip("/") for folder, below in moved]
    found: dict[str, None] = {}
    for source, destination in mounts:
        root = destination.rstrip("/")
        for path in map(posixpath.normpath, (*inside, *named)):
            if path.startswith(f"{root}/"):
                found[posixpath.join(source, path[len(root) + 1 :])] = None
            elif path == root:
                found[source.rstrip("/")] = None
    return tuple(path for path in found if path not in ("", "/"))

"""Where engines keep what they compiled for a driver, in the folders that replicas mount from their host. Pure.

PyTorch's inductor and ahead-of-time compile, Triton, FlashInfer and DeepGEMM. A cache inside the container goes with it; what is
here outlives it. Places: each project's documentation of its variables.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

#: Below vLLM's own root.
_VLLM = ("torch_compile_cache", "torch_aot_compile", "deep_gemm", "flashinfer")
#: Below a user's home in the container.
_HOME = (
    *(f".cache/vllm/{name}" for name in _VLLM),
    ".cache/torch_extensions",
    ".cache/torch/kernels",
    ".cache/flashinfer",
    ".cache/deep_gemm",
    ".deep_gemm",
    ".triton/cache",
)
#: Variables that move some, and where these lie below what they name.
_MOVED: Mapping[str, tuple[str, ...]] = {
    "TORCHINDUCTOR_CACHE_DIR": ("",),
    "TRITON_CACHE_DIR": ("",),
    "VLLM_CACHE_ROOT": _VLLM,
    "XDG_CACHE_HOME": tuple(path.partition("/")[2] for path in _HOME if path.startswith(".cache/")),
    "FLASHINFER_WORKSPACE_BASE": (".cache/flashinfer",),
    "FLASHINFER_JIT_DIR": ("",),
    "DG_JIT_CACHE_DIR": ("",),
}
#: Folders whose name says that they are such a cache and nothing else.
_OWN = re.compile(r"(torch_compile_cache|torch_aot_compile|torch_extensions|torchinductor_.+|flashinfer|\.?deep_gemm)\Z")
#: What lies at the top of a cache: hashes (hex, Triton's base 32), inductor's folders of two letters, and the projects' own names.
_ENTRY = re.compile(
    r"([0-9a-f]{8,128}|[A-Z2-7]{32,64}|[0-9a-z]{2}|fxgraph|aotautograd|autotune|triton|triton_cache|inductor_cache|cache|tmp|locks"
    r"|kernel\..+|cached_ops|generated|cubins|rank_?\d.*|.*\.(lock|log|pid)|tmp[0-9a-z_.]+)\Z"
)
#: Files of models: where one lies, nothing is cleared, whatever the folder's name.
_WEIGHTS = re.compile(r".*\.(safetensors|gguf|ggml|pth|ckpt|onnx)\Z|tokenizer.*|pytorch_model.*|config\.json\Z|models--.*")


def folders(mounts: Iterable[tuple[str, str]], environ: Mapping[str, str], home: str = "/root") -> tuple[str, ...]:
    """The host's folders of such caches, each once. `mounts`: (source, destination) of what the container may write to.

    Only a folder below a mount's source comes out, never that source: whoever mounted it may keep models in it.
    """
    homes = dict.fromkeys(one.rstrip("/") for one in (home, environ.get("HOME", "")) if one.startswith("/") and one != "/")
    inside = [posixpath.join(one, path) for one in homes for path in _HOME]
    inside += [f"/tmp/torchinductor_{one.rpartition('/')[2]}" for one in homes]  # noqa: S108 - in the container, inductor's
    for name, parts in _MOVED.items():
        if environ.get(name, "").startswith("/"):
            inside += [posixpath.join(environ[name], part) for part in parts]
    every = tuple(mounts)
    found: dict[str, None] = {}
    for path in map(posixpath.normpath, inside):
        # Of mounts within mounts the innermost is what the container sees.
        over = [pair for pair in every if path.startswith(f"{pair[1].rstrip('/')}/") or path == pair[1].rstrip("/")]
        if over:
            source, destination = max(over, key=lambda pair: len(pair[1].rstrip("/")))
            below = path[len(destination.rstrip("/")) :].strip("/")
            if below and source.strip("/"):
                found[posixpath.join(source, below)] = None
    return tuple(found)


def foreign(path: str, entries: Iterable[str]) -> tuple[str, ...]:
    """Which of a folder's entries no compiler puts there; none in a folder whose name says that it is a cache and nothing else."""
    if _OWN.match(path.rstrip("/").rpartition("/")[2]):
        return tuple(name for name in entries if _WEIGHTS.match(name))
    return tuple(name for name in entries if not _ENTRY.match(name) or _WEIGHTS.match(name))


def is_weights(name: str) -> bool:
    """Whether a file or folder of that name belongs to a model. `config.json` is one deeper down too: no cache has it."""
    return bool(_WEIGHTS.match(name))

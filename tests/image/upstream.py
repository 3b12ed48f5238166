"""The untouched wheels that the kit names, from the package index, checked by SHA-256; and their file run on stand-ins."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

from nearsocket import paths
from nearsocket.control.imagekit import kit_files
from nearsocket.model.image.kit import Kit, Release, read
from tests.image.torchlike import Cuda, Tensor, Workspace, fake_torch, modules

KIT: Kit = read(kit_files(paths.source_folder() / "templates" / "image"))
#: The wheels' tags: what pip must be told on any other Python.
_TAGS = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--platform", "manylinux_2_34_x86_64")


def download(version: str, folder: Path) -> Path:
    """The wheel of that version from the configured package index."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", *_TAGS]
    subprocess.run([*words, "--dest", str(folder), f"sglang=={version}"], check=True, timeout=600)
    (wheel,) = folder.glob(f"sglang-{version}-*.whl")
    return wheel


def checked(release: Release, folder: Path) -> Path:
    """The wheel of a release of the kit, its hash the one in the manifest."""
    wheel = download(release.version, folder)
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == release.wheel.sha256
    assert wheel.name == release.wheel.path
    return wheel


def unpack(wheel: Path, root: Path) -> Path:
    """The whole wheel in `root`; the package's folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(root)
    return root / "sglang"


class World:
    """One rank with upstream's own file, patched or not, on stand-ins; `calls` are the workspace's."""

    def __init__(self, file: Path, max_numel: int, variable: str | None, world_size: int = 2, rank: int = 0) -> None:
        self.cuda = Cuda()
        self.workspace = Workspace(max_numel, self.cuda, world_size)
        self.rank = rank
        torch = fake_torch(self.cuda)
        dist = module("torch.distributed", get_world_size=lambda group: world_size, ProcessGroup=object)
        torch.__dict__["distributed"] = dist
        variables = types.SimpleNamespace(
            SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=setting(True), SGLANG_PCIE_IPC_MAX_NUMEL=setting(max_numel)
        )
        tuner = types.SimpleNamespace(get=lambda: types.SimpleNamespace(is_tuning_mode=False))
        self.modules = {
            "torch": torch,
            "torch__distributed": dist,
            "sglang": module("sglang"),
            "sglang__srt": module("sglang.srt"),
            "sglang__srt__environ": module("sglang.srt.environ", envs=variables),
            "sglang__srt__runtime_context": module("sglang.srt.runtime_context", get_exec=no_context, get_spec=no_context),
            "flashinfer": module("flashinfer"),
            "flashinfer__autotuner": module("flashinfer.autotuner", AutoTuner=tuner),
            "flashinfer__comm": module("flashinfer.comm", PcieIpcAllReduceWorkspace=lambda **given: self.workspace),
        }
        self.names: dict[str, Any] = {"__name__": "pcie_ipc_ar"}
        with self.around(), pytest.MonkeyPatch.context() as patch:
            patch.delenv("SGLANG_PCIE_IPC_CHUNKED", raising=False)
            if variable is not None:
                patch.setenv("SGLANG_PCIE_IPC_CHUNKED", variable)
            exec(compile(file.read_bytes(), str(file), "exec"), self.names)
            self.comm = self.names["PcieIpcCommunicator"]("group", torch.device(f"cuda:{rank}"))

    def around(self) -> Any:
        return modules(**self.modules)

    def reduce(self, tensor: Tensor) -> list[Any] | None:
        """The reduced rows, None where upstream would go to NCCL."""
        with self.around():
            if not self.comm.should_pcie_ipc_ar(tensor):
                return None
            out = self.comm.pcie_ipc_all_reduce(tensor)
        assert out.shape == tensor.shape
        return list(out.values())


def module(name: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(names)
    return made


def setting(value: Any) -> Any:
    return types.SimpleNamespace(get=lambda: value)


def no_context() -> Any:
    raise ValueError("no runtime context")

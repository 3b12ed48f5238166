"""GPUs for show in containers: the toolkit's CDI specification, which goes stale with the driver, and CUDA's count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.shapes import SHAPES
from lab.standins.gpu import describe, nvidia_ctk
from lab.standins.gpu.packages import NEWER, VERSION
from nearsocket.model.driver import sight
from tests.standins.libraries import built

SHAPE = SHAPES["gpus"]
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Release Build\n"


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with libraries and module of one version."""
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (tmp_path / "gpus.conf").write_text(describe.render(SHAPE))
    (tmp_path / "faults").mkdir()
    (tmp_path / "dev").mkdir()
    environ = {
        **os.environ,
        "NEARSOCKET_STANDIN_GPUS": str(tmp_path / "gpus.conf"),
        "NEARSOCKET_STANDIN_MODULE": str(tmp_path / "version"),
        "NEARSOCKET_STANDIN_LIBRARIES": str(libraries),
        "NEARSOCKET_STANDIN_FAULTS": str(tmp_path / "faults"),
        "NEARSOCKET_STANDIN_NODES": str(tmp_path / "dev"),
    }
    install(environ, VERSION)
    load(environ, VERSION)
    return environ


def install(environ: dict[str, str], version: str) -> None:
    """Libraries of that version in place of others, as the packages do it."""
    folder = Path(environ["NEARSOCKET_STANDIN_LIBRARIES"])
    for there in folder.iterdir():
        there.unlink()
    for name in ("libnvidia-ml", "libcuda"):
        (folder / f"{name}.so.{version}").touch()
        (folder / f"{name}.so.1").symlink_to(f"{name}.so.{version}")


def load(environ: dict[str, str], version: str) -> None:
    Path(environ["NEARSOCKET_STANDIN_MODULE"]).write_text(MODULE.format(version))


def ctk(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    tool = [sys.executable, nvidia_ctk.__file__, *words]
    return subprocess.run(tool, env=environ, capture_output=True, text=True, timeout=30, check=False)


def specification(environ: dict[str, str]) -> Any:
    done = ctk(environ, "cdi", "generate")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def host_paths(whole: Any) -> set[str]:
    return {mount["hostPath"] for mount in whole["containerEdits"]["mounts"]}


def test_the_toolkit_names_devices_by_index_and_uuid_and_hands_over_what_a_rank_needs(machine: dict[str, str]) -> None:
    whole = specification(machine)
    assert whole["kind"] == "nvidia.com/gpu"
    names = {device["name"]: device for device in whole["devices"]}
    assert {"0", "3", "all", describe.gpus(SHAPE)[2].uuid} <= set(names)
    assert names["2"]["containerEdits"]["deviceNodes"] == [{"path": "/dev/nvidia2"}]
    assert len(names["all"]["containerEdits"]["deviceNodes"]) == 4
    assert describe.GUEST_PATH in host_paths(whole)


def test_its_file_names_libraries_that_an_upgrade_takes_away_and_is_made_anew_behind_the_boot(
    machine: dict[str, str], tmp_path: Path
) -> None:
    folder, out = machine["NEARSOCKET_STANDIN_LIBRARIES"], tmp_path / "cdi" / "nvidia.yaml"
    assert ctk(machine, "cdi", "generate", f"--output={out}").returncode == 0
    before = json.loads(out.read_text())
    assert f"{folder}/libcuda.so.{VERSION}" in host_paths(before)
    install(machine, NEWER)
    assert not Path(f"{folder}/libcuda.so.{VERSION}").exists()
    refused = ctk(machine, "cdi", "generate", f"--output={out}")
    assert refused.returncode == 1
    assert "failed to initialize NVML: ERROR_LIB_RM_VERSION_MISMATCH" in refused.stderr
    assert json.loads(out.read_text()) == before, "what was there stays where it is refused"
    load(machine, NEWER)
    assert ctk(machine, "cdi", "generate", f"--output={out}").returncode == 0
    assert f"{folder}/libcuda.so.{NEWER}" in host_paths(json.loads(out.read_text()))
    assert [path.name for path in out.parent.iterdir()] == ["nvidia.yaml"]


def test_the_toolkit_refuses_without_a_module_and_words_that_it_does_not_know(machine: dict[str, str]) -> None:
    assert nvidia_ctk.VERSION in ctk(machine, "--version").stdout
    assert ctk(machine, "cdi", "generate", "--format=json").returncode == 1
    assert "unknown words: runtime configure" in ctk(machine, "runtime", "configure").stderr
    Path(machine["NEARSOCKET_STANDIN_MODULE"]).unlink()
    assert "ERROR_DRIVER_NOT_LOADED" in ctk(machine, "cdi", "generate").stderr


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("cuda.c", tmp_path_factory.mktemp("cuda") / "libcuda.so.1")


def counted(environ: dict[str, str], library: Path) -> str:
    """What the question that nearsocket asks in a container is answered."""
    known = {**environ, "LD_LIBRARY_PATH": str(library.parent)}
    return subprocess.run(
        [sys.executable, "-I", "-B", "-c", sight.PYTHON], env=known, capture_output=True, text=True, timeout=30, check=True
    ).stdout.strip()


def test_cuda_counts_the_nodes_that_a_container_was_given(machine: dict[str, str], library: Path) -> None:
    for index in (1, 3):
        (Path(machine["NEARSOCKET_STANDIN_NODES"]) / f"nvidia{index}").touch()
    assert counted(machine, library) == "cuda 2"


def test_cuda_refuses_with_its_own_codes(machine: dict[str, str], library: Path) -> None:
    assert counted(machine, library) == "cuda-error 100", "no node"
    (Path(machine["NEARSOCKET_STANDIN_NODES"]) / "nvidia0").touch()
    (Path(machine["NEARSOCKET_STANDIN_FAULTS"]) / "no-cuda").write_text(f"{VERSION}\n")
    assert counted(machine, library) == "cuda-error 999", "planted"
    (Path(machine["NEARSOCKET_STANDIN_FAULTS"]) / "no-cuda").write_text(f"{NEWER}\n")
    assert counted(machine, library) == "cuda 1", "planted for another version"
    load(machine, NEWER)
    assert counted(machine, library) == "cuda-error 803", "the module is of another version"

"""What a container says of the GPUs that it sees: the script by real shells and a real library, and how its answer reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.driver import sight
from nearsocket.model.driver.sight import Sight

SMI = "GPU 0: NVIDIA RTX PRO 6000 (UUID: GPU-0)\n  MIG 1g.24gb Device 0: (UUID: MIG-0)\nGPU 1: NVIDIA RTX PRO 6000 (UUID: GPU-1)\n"


def container(folder: Path, nodes: int, programs: dict[str, str], **environ: str) -> str:
    """What the script prints where only these programs are on the path, and so many nodes are there."""
    for name, text in programs.items():
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (folder / "dev").mkdir()
    for name in (*(f"nvidia{at}" for at in range(nodes)), "nvidiactl", "nvidia-uvm"):
        (folder / "dev" / name).touch()
    words = ["/bin/sh", "-c", sight.SCRIPT, "nearsocket", sight.PYTHON, str(folder / "dev")]
    env = {"PATH": str(folder / "bin"), **environ}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=60).stdout


def smi(text: str, code: int = 0) -> str:
    return f"#!/bin/sh\nprintf '%s' '{text}'\nexit {code}\n"


def test_an_image_with_a_shell_alone_is_counted_by_its_nodes(tmp_path: Path) -> None:
    assert sight.parse(container(tmp_path, 3, {})) == Sight(3, "/dev/nvidiaN")


def test_without_nodes_nothing_is_seen(tmp_path: Path) -> None:
    assert sight.parse(container(tmp_path, 0, {})) == Sight(0, "/dev/nvidiaN")


def test_nvidia_smi_is_counted_by_gpus_and_bounded_by_the_nodes(tmp_path: Path) -> None:
    assert sight.parse(container(tmp_path, 2, {"nvidia-smi": smi(SMI)})) == Sight(2, "nvidia-smi -L")
    (tmp_path / "one").mkdir()
    assert sight.parse(container(tmp_path / "one", 1, {"nvidia-smi": smi(SMI)})) == Sight(1, "nvidia-smi -L")


def test_an_nvidia_smi_that_fails_sees_nothing_and_its_words_are_kept(tmp_path: Path) -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch"
    assert sight.parse(container(tmp_path, 2, {"nvidia-smi": smi(said + "\n", 18)})) == Sight(0, "nvidia-smi -L", said)


@pytest.fixture
def python(tmp_path: Path) -> dict[str, str]:
    """A Python as an image has one."""
    return {"python3": f'#!/bin/sh\nexec {sys.executable} "$@"\n'}


def library(folder: Path, code: int, count: int) -> str:
    """A libcuda with these two functions alone; the folder that it is in."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no compiler")
    source = folder / "cuda.c"
    source.write_text(
        "#include <stdlib.h>\n"
        f"int cuInit(unsigned flags) {{ return {code}; }}\n"
        f'int cuDeviceGetCount(int *n) {{ *n = getenv("CUDA_VISIBLE_DEVICES") ? 0 : {count}; return 0; }}\n'
    )
    out = folder / "lib"
    out.mkdir()
    subprocess.run([gcc, "-shared", "-fPIC", "-o", str(out / "libcuda.so.1"), str(source)], check=True, timeout=60)
    return str(out)


def test_cudas_library_counts_before_all_else_whatever_the_environment_hides(tmp_path: Path, python: dict[str, str]) -> None:
    programs = {**python, "nvidia-smi": smi(SMI)}
    text = container(tmp_path, 2, programs, LD_LIBRARY_PATH=library(tmp_path, 0, 1), CUDA_VISIBLE_DEVICES="7", PYTHONPATH="/none")
    assert sight.parse(text) == Sight(1, "libcuda")


@pytest.mark.parametrize(("code", "word"), [(100, "no device"), (802, "nvidia-fabricmanager"), (803, "differ"), (7, "ends with 7")])
def test_a_cuda_that_does_not_begin_sees_nothing_and_says_why(tmp_path: Path, python: dict[str, str], code: int, word: str) -> None:
    found = sight.parse(container(tmp_path, 2, python, LD_LIBRARY_PATH=library(tmp_path, code, 2)))
    assert found is not None
    assert (found.seen, found.by) == (0, "libcuda")
    assert word in found.said


def test_a_python_without_cudas_library_leaves_it_to_the_next_way(tmp_path: Path, python: dict[str, str]) -> None:
    assert sight.parse(container(tmp_path, 2, python)) == Sight(2, "/dev/nvidiaN")


@given(st.text(max_size=200), st.integers(0, 16))
def test_what_an_image_prints_beside_it_changes_nothing(noise: str, count: int) -> None:
    quiet = "".join(f"# {line}\n" for line in noise.splitlines())
    assert sight.parse(f"{quiet}cuda {count}\n{quiet}nodes 16\n") == Sight(count, "libcuda")


@given(st.text(max_size=200))
def test_an_answer_without_its_last_line_is_none(text: str) -> None:
    assert sight.parse(text.replace("nodes", "")) is None

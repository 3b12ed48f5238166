"""Which GPUs a replica's container sees, asked of a short container with the GPU request of its unit: its words, its answer. Pure.

Three ways, the best that the image has: CUDA's own library, which the toolkit puts in and which engines use, by a Python with
ctypes; `nvidia-smi -L`, which it puts in too; the device nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import programs
from nearsocket.model.plan.values import Gate
from nearsocket.model.start import Start, gpu_options
from nearsocket.model.text import one_line

#: What CUDA counts, whatever the replica's environment hides. cuInit's codes: CUDA's driver API, CUresult.
PYTHON = """import os
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
try:
    import ctypes
    library = ctypes.CDLL("libcuda.so.1")
    begin, count = library.cuInit, library.cuDeviceGetCount
except Exception:
    raise SystemExit
found = ctypes.c_int(0)
code = begin(0) or count(ctypes.byref(found))
print("cuda-error %d" % code if code else "cuda %d" % found.value)
"""
#: `sh -c SCRIPT nearsocket PYTHON /dev`: a line a fact. It needs nothing but a shell; the last line says that nothing was cut.
SCRIPT = """if command -v python3 >/dev/null 2>&1; then python3 -I -B -c "$1" 2>/dev/null; fi
if command -v nvidia-smi >/dev/null 2>&1; then nvidia-smi -L 2>&1 | while read -r line; do echo "smi $line"; done; fi
nodes=0
for node in "$2"/nvidia[0-9]*; do if [ -e "$node" ]; then nodes=$((nodes + 1)); fi; done
echo "nodes $nodes"
"""
_NO_DEVICE = 100
_WORDS = {
    _NO_DEVICE: "no device",
    802: "the system is not ready: NVSwitches wait for nvidia-fabricmanager",
    803: "driver and CUDA's library differ",
    804: "the image's compatibility libraries are not for this GPU",
    999: "unknown error, often no /dev/nvidia-uvm",
}
_FACT = re.compile(r"^(cuda-error|cuda|nodes) (\d{1,6})$", re.MULTILINE)
_SMI = re.compile(r"^smi (.*)$", re.MULTILINE)
_GPU = re.compile(r"GPU \d+: ")


@dataclass(frozen=True)
class Sight:
    """How many GPUs a container sees, by which way (`libcuda`, `nvidia-smi -L`, `/dev/nvidiaN`), and what it complained of."""

    seen: int
    by: str
    said: str = ""

    def __str__(self) -> str:
        """`2 (libcuda)`."""
        return f"{self.seen} ({self.by}{f': {self.said}' if self.said else ''})"


def container(replica: str) -> str:
    """The container's name: whoever comes next ends what this one was not there to end."""
    return f"nearsocket-sight-{replica}"


def argv(entry: Start, names: Sequence[str], env_file: str) -> tuple[str, ...]:
    """The words that start it: runtime, image, environment and GPU request are the unit's, `names` as for `gpu_words`.

    Without names it asks for no GPU: whether such a container starts at all.
    """
    given = gpu_options(entry.gate, tuple(names)) if names else ("--env=NVIDIA_VISIBLE_DEVICES=void",)
    return (
        *(f"/usr/bin/{entry.runtime.value}", "run", f"--name={container(entry.replica)}", "--rm", "--init", "--pull=never"),
        *("--log-driver=none", f"--label=nearsocket.probe={entry.replica}", "--network=none"),
        f"--cgroup-parent={programs.PROBE_SLICE}",
        f"--env-file={env_file}",
        *given,
        *("--entrypoint=", entry.image, "sh", "-c", SCRIPT, "nearsocket", PYTHON, "/dev"),
    )


def parse(text: str) -> Optional[Sight]:
    """What the script said; None where it did not come to its end. What an image prints beside it is passed over.

    A real nvidia-smi lists what its container may open. A GPU without a node cannot be opened, so nodes bound what it says.
    """
    facts = {name: int(value) for name, value in _FACT.findall(text)}
    if "nodes" not in facts:
        return None
    if "cuda" in facts:
        return Sight(facts["cuda"], "libcuda")
    if "cuda-error" in facts:
        code = facts["cuda-error"]
        return Sight(0, "libcuda", f"cuInit ends with {code}" + (f", {_WORDS[code]}" if code in _WORDS else ""))
    lines = _SMI.findall(text)
    if lines:
        listed = sum(bool(_GPU.match(line)) for line in lines)
        return Sight(min(listed, facts["nodes"]), "nvidia-smi -L", "" if listed else one_line(lines[0], 120))
    return Sight(facts["nodes"], "/dev/nvidiaN")


def remedy(entry: Start) -> str:
    """What to do where a container gets no GPU, by the way in which its replica asks for them."""
    if entry.gate is Gate.GPUS:
        return "nvidia-ctk runtime configure --runtime=docker, restart Docker, look at nvidia-container-cli info; then --resume"
    return "nvidia-ctk cdi list; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml makes the files anew; then --resume"

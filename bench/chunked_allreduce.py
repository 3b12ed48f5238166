"""Two real ranks, FlashInfer's own workspace, the kit's own text: chunked against whole, bit by bit, and against NCCL.

    torchrun --nproc-per-node 2 bench/chunked_allreduce.py [--one-gpu] [--rows 4096] [--hidden 4096] [--max-numel 786432]

Needs torch with CUDA, flashinfer-python 0.7.1 or newer and two GPUs of one host (both ranks on cuda:0 with --one-gpu, where
times mean nothing, and NCCL is left out). Ends with 0 where every result is the same bit for bit, 2 where one is not, 3 where
the workspace could not be built; what stopped it is printed.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
from pathlib import Path
from typing import Any

PATCH = Path(__file__).resolve().parent.parent / "templates" / "image" / "chunked.py"


def communicator(workspace: Any, max_numel: int) -> Any:
    """A stand-in for SGLang's communicator around the real workspace, with the kit's text run behind it."""
    import torch

    class PcieIpcCommunicator:
        """The attributes and methods that the patch reads and replaces."""

        def __init__(self) -> None:
            self.disabled, self.max_numel, self._workspace, self._world_size = False, max_numel, workspace, 2
            self._bound_stream = None

        def should_pcie_ipc_ar(self, inp: Any) -> bool:
            """Whether the whole tensor fits."""
            return bool(inp.numel() <= self.max_numel and self._workspace.supports(inp))

        def pcie_ipc_all_reduce(self, inp: Any) -> Any:
            """The whole tensor at once."""
            stream = torch.cuda.current_stream()
            if self._bound_stream is None or stream != self._bound_stream:
                self._workspace.rebind_stream()
                self._bound_stream = stream
            return self._workspace.all_reduce(inp)

    os.environ["SGLANG_PCIE_IPC_CHUNKED"] = "1"
    names = {"__name__": "pcie_ipc_ar", "logger": logging.getLogger("chunked"), "PcieIpcCommunicator": PcieIpcCommunicator}
    exec(compile(PATCH.read_text(encoding="utf-8"), str(PATCH), "exec"), names)
    return PcieIpcCommunicator()


def milliseconds(act: Any, repeat: int = 20) -> float:
    """The median of `repeat` runs by CUDA events."""
    import torch

    times = []
    for _ in range(repeat + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        act()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:])


def main() -> int:
    """Compare for several row counts: exact multiples of a chunk, with a tail, with a tail that is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one-gpu", action="store_true")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--max-numel", type=int, default=786432)
    given = parser.parse_args()
    import torch
    import torch.distributed as dist
    from flashinfer.comm import PcieIpcAllReduceWorkspace

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(0 if given.one_gpu else rank)
    dist.init_process_group("gloo" if given.one_gpu else "nccl")
    say = print if rank == 0 else lambda *_: None
    try:
        small = PcieIpcAllReduceWorkspace(group=dist.group.WORLD, max_numel=given.max_numel)
        large = PcieIpcAllReduceWorkspace(group=dist.group.WORLD, max_numel=given.rows * given.hidden)
    except Exception as error:
        say(f"the workspace could not be built: {type(error).__name__}: {error}")
        return 3
    comm, per, same = communicator(small, given.max_numel), given.max_numel // given.hidden, True
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {per} rows a chunk")
    for rows in (given.rows, per * 2, per * 2 + 1, per + per // 2, min(given.rows, per * 7 + 3)):
        torch.manual_seed(rank * 1000 + rows)
        inp = torch.randn(rows, given.hidden, device="cuda").to(torch.bfloat16)
        if not comm.should_pcie_ipc_ar(inp):
            say(f"{rows} rows: declined")
            continue
        chunked, whole = comm.pcie_ipc_all_reduce(inp), large.all_reduce(inp)
        torch.cuda.synchronize()
        equal = bool(torch.equal(chunked.view(torch.int16), whole.view(torch.int16)))
        line = f"{rows} rows: bit-identical to the whole: {equal}"
        if not given.one_gpu:
            reduced = inp.clone()
            dist.all_reduce(reduced)
            against = bool(torch.equal(chunked.view(torch.int16), reduced.view(torch.int16)))
            ours = milliseconds(lambda inp=inp: comm.pcie_ipc_all_reduce(inp))
            theirs = milliseconds(lambda reduced=reduced: dist.all_reduce(reduced))
            line += f", to NCCL: {against}; {ours:.2f} ms, NCCL {theirs:.2f} ms"
        same &= equal
        say(line)
    return 0 if same else 2


if __name__ == "__main__":
    sys.exit(main())

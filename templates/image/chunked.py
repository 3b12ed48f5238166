# ---- nearsocket chunked-pcie-allreduce/1: everything below was appended by `nearsocket image apply` ----
# SPDX-License-Identifier: MIT
#
# With SGLANG_PCIE_IPC_CHUNKED=1 in the environment when this module is imported, a reduction that is larger than the
# workspace goes through it in chunks of whole rows instead of falling back to NCCL. Without the variable only names are
# added: the class above keeps its own methods.
#
# All ranks must take the same way, or the group hangs. So the whole decision, the last and smaller chunk included, is made
# before the first chunk, from shape, type and layout, and from which chunk shapes this process has run before (the same on
# all ranks: the workspace itself demands one sequence of calls). Only two ranks: there a sum does not depend on its order,
# so the result is bit-identical, and only there does it pay in prefill.
import os as _nearsocket_os

import torch

NEARSOCKET_PATCH = "chunked-pcie-allreduce/1"
#: What became of reductions since the start: "chunked", or why the unpatched way was taken. Host calls are counted; the
#: replay of a captured graph is none.
NEARSOCKET_COUNTS: dict[str, int] = {}

_NEARSOCKET_WORLD = 2
#: The kernels move packs of 16 bytes; bfloat16 has 2.
_NEARSOCKET_PACK_NUMEL = 8


def _nearsocket_on() -> bool:
    """Whether the variable says so, in the words that SGLang's own switches know."""
    return _nearsocket_os.environ.get("SGLANG_PCIE_IPC_CHUNKED", "").strip().lower() in ("1", "true", "yes", "y")


def _nearsocket_count(what: str) -> None:
    """One more; the log says so at 1, 10, 100, ..."""
    count = NEARSOCKET_COUNTS[what] = NEARSOCKET_COUNTS.get(what, 0) + 1
    if str(count).rstrip("0") == "1":
        logger.info("SGLANG_PCIE_IPC_CHUNKED: %s: %d", what, count)  # noqa: F821 - upstream's, above


def _nearsocket_rows(shape: tuple[int, ...], max_numel: int) -> tuple[int, int, int]:
    """All rows, rows of a full chunk, rows of the last one; (rows, 0, 0) where not one row fits."""
    hidden, rows = shape[-1], 1
    for size in shape[:-1]:
        rows *= size
    if not rows or not hidden or hidden > max_numel:
        return rows, 0, 0
    full = min(max_numel // hidden, rows)
    return rows, full, rows % full or full


def _nearsocket_refusal(comm, inp) -> str | None:
    """Why a reduction that upstream declined may not be chunked; None where it may."""
    if comm.disabled:
        return "disabled"
    if not inp.is_contiguous() or inp.dim() < 2:
        return "layout"
    if inp.dtype is not torch.bfloat16:
        return "type"
    if comm._workspace is None:
        return "no-workspace"
    rows, full, last = _nearsocket_rows(inp.shape, comm.max_numel)
    if not inp.numel():
        return "zero-rows"
    if not full:
        return "wide-rows"
    if inp.numel() <= comm.max_numel:
        return "unsupported"
    if comm._world_size != _NEARSOCKET_WORLD:
        return "world-size"
    if inp.storage_offset() % _NEARSOCKET_PACK_NUMEL:
        return "alignment"
    flat = inp.view(rows, inp.shape[-1])
    if not comm._workspace.supports(flat[:full]):
        return "chunk-unsupported"
    if last != full and not comm._workspace.supports(flat[rows - last :]):
        return "tail-unsupported"
    # FlashInfer settles the launch of a shape at its first call, by a collective that cannot run inside a graph capture.
    ran = getattr(comm, "_nearsocket_ran", ())
    if torch.cuda.is_current_stream_capturing() and not {(full, inp.shape[-1]), (last, inp.shape[-1])}.issubset(ran):
        return "capture"
    return None


def _nearsocket_should(self, inp) -> bool:
    """As upstream's; and True for what can be chunked."""
    if _nearsocket_upstream_should(self, inp):
        return True
    refusal = _nearsocket_refusal(self, inp)
    _nearsocket_count(refusal or "chunked")
    return refusal is None


def _nearsocket_all_reduce(self, inp):
    """As upstream's; in chunks into one output where the tensor is larger than the workspace."""
    if inp.numel() <= self.max_numel or _nearsocket_refusal(self, inp) is not None:
        return _nearsocket_upstream_all_reduce(self, inp)
    stream = torch.cuda.current_stream()
    if self._bound_stream is None or stream != self._bound_stream:
        self._workspace.rebind_stream()
        self._bound_stream = stream
    rows, full, last = _nearsocket_rows(inp.shape, self.max_numel)
    hidden = inp.shape[-1]
    out = torch.empty_like(inp)
    flat, flat_out = inp.view(rows, hidden), out.view(rows, hidden)
    for start in range(0, rows, full):
        stop = min(start + full, rows)
        self._workspace.all_reduce(flat[start:stop], out=flat_out[start:stop])
    if not torch.cuda.is_current_stream_capturing():
        self._nearsocket_ran = {*getattr(self, "_nearsocket_ran", ()), (full, hidden), (last, hidden)}
    return out


if _nearsocket_on():
    _nearsocket_upstream_should = PcieIpcCommunicator.should_pcie_ipc_ar  # noqa: F821 - upstream's, above
    _nearsocket_upstream_all_reduce = PcieIpcCommunicator.pcie_ipc_all_reduce  # noqa: F821
    PcieIpcCommunicator.should_pcie_ipc_ar = _nearsocket_should  # noqa: F821
    PcieIpcCommunicator.pcie_ipc_all_reduce = _nearsocket_all_reduce  # noqa: F821
    logger.info("SGLANG_PCIE_IPC_CHUNKED: on (%s)", NEARSOCKET_PATCH)  # noqa: F821

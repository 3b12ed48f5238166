"""A task's memory policy, by the system call: Python names none, and numactl may not be in the image."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterable

from nearsocket.model import cpulist
from nearsocket.model.errors import NearsocketError

_MPOL_BIND = 2
#: set_mempolicy (arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h).
_NUMBERS = {"x86_64": 238, "aarch64": 237}
_MASK_WORDS = 16
_libc = ctypes.CDLL(None, use_errno=True)


def bind_memory(nodes: Iterable[int]) -> None:
    """Let this thread and those that it starts take memory from these nodes alone. Raises NearsocketError where it may not."""
    wanted = tuple(nodes)
    mask = (ctypes.c_ulong * _MASK_WORDS)()
    for node in wanted:
        if node < 64 * _MASK_WORDS:
            mask[node // 64] |= 1 << node % 64
    number = _NUMBERS.get(platform.machine())
    code = errno.EINVAL if not any(mask) else errno.ENOSYS
    if number is not None and any(mask):
        done = _libc.syscall(ctypes.c_long(number), ctypes.c_int(_MPOL_BIND), mask, ctypes.c_ulong(64 * _MASK_WORDS))
        if done == 0:
            return
        code = ctypes.get_errno()
    raise NearsocketError(
        f"expected to bind memory to node {cpulist.render(wanted)}, found: {os.strerror(code)}",
        "in a container it takes --cap-add SYS_NICE; a cpuset without that node forbids it",
    )

"""Run a program without mbind and move_pages, as Docker's profile has it without SYS_NICE: `seccomp.py PROGRAM ...`."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, EPERM_RETURN = 0x7FFF0000, 0x00050001
#: mbind, move_pages.
FORBIDDEN = {"x86_64": (237, 279), "aarch64": (235, 239)}


def forbid(number: int) -> None:
    """Let one system call fail with EPERM, in this process and its children."""
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, EPERM_RETURN), (0x06, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter could be set")


if __name__ == "__main__":
    for call in FORBIDDEN[os.uname().machine]:
        forbid(call)
    os.execv(sys.argv[1], sys.argv[1:])

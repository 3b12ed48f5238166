"""Whether a replica may still open its GPUs: the device rules of its control group, as the kernel would apply them now.

A daemon-reload can rewrite a running container's rules and take its GPUs: what is open goes on working, what it opens next fails
(nvidia-container-toolkit #251, #1227). Nothing is entered and nothing is opened to find out. In cgroup v1 the rules are a file. In
v2 they are BPF programs of the control group and all above it: their instructions are read back and run here for one device
(include/uapi/linux/bpf.h, struct bpf_cgroup_dev_ctx: access and type in one word, major, minor). What is not
understood is no answer.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from typing import Optional

from nearsocket.onhost.collect import buffers

#: bpf(2)'s number, its commands, and the attach type of device rules.
_SYSCALL = {"x86_64": 321, "aarch64": 280}
_GET_FD, _GET_INFO, _QUERY, _CGROUP_DEVICE, _EFFECTIVE = 13, 15, 16, 6, 1
_MOST_PROGRAMS, _MOST_INSTRUCTIONS, _MOST_STEPS = 64, 4096, 100_000
#: BPF_DEVCG_DEV_CHAR, BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE.
_CHARACTER, _READ_WRITE = 2, 6
_libc = ctypes.CDLL(None, use_errno=True)


def rules(pid: int) -> list[object]:
    """What tells one set of rules from another: the lines of v1, the numbers of v2's programs; empty where they cannot be had."""
    try:
        listed = _listed(pid)
        return list(listed) if listed is not None else list(_programs(pid))
    except OSError:
        return []


def allowed(pid: int, major: int, minor: int) -> Optional[bool]:
    """Whether a process beside that one may open that character device for reading and writing; None where it cannot be told."""
    try:
        listed = _listed(pid)
        if listed is not None:
            return any(_grants(line, major, minor) for line in listed)
        verdicts = [run(_instructions(number), major, minor) for number in _programs(pid)]
    except OSError:
        return None
    if False in verdicts:
        return False
    return None if None in verdicts else True  # no program at all: nothing is forbidden


def _path(pid: int, controller: bytes) -> Optional[str]:
    for line in buffers.lines(f"/proc/{pid}/cgroup"):
        number, names, path = line.split(b":", 2)
        if (names and controller in names.split(b",")) or (not names and not controller and number == b"0"):
            return os.fsdecode(path)
    return None


def _listed(pid: int) -> Optional[list[str]]:
    """v1's rules; None where this system has none. Raises OSError."""
    path = _path(pid, b"devices")
    if path is None:
        return None
    return [line.decode("ascii", "replace") for line in buffers.lines(f"/sys/fs/cgroup/devices{path}/devices.list")]


def _grants(line: str, major: int, minor: int) -> bool:
    """Whether a line such as `c 195:* rwm` or `a *:* rwm` grants it."""
    words = line.split()
    if len(words) != 3 or words[0] not in ("a", "c") or not {"r", "w"} <= set(words[2]):
        return False
    first, _, second = words[1].partition(":")
    return first in ("*", str(major)) and second in ("*", str(minor))


def _programs(pid: int) -> list[int]:
    """The numbers of the programs that are in force for its control group. Raises OSError."""
    path = _path(pid, b"")
    if path is None:
        raise OSError("no control group of version 2")
    found = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    fd = os.open(f"/sys/fs/cgroup{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        given = struct.pack("=IIIIQI", fd, _CGROUP_DEVICE, _EFFECTIVE, 0, ctypes.addressof(found), _MOST_PROGRAMS)
        answer = _bpf(_QUERY, given)[0]
    finally:
        os.close(fd)
    return [found[at] for at in range(struct.unpack_from("=I", answer, 24)[0])]


def _instructions(number: int) -> bytes:
    """That program's instructions. Raises OSError, also where the kernel keeps them to itself."""
    fd = _bpf(_GET_FD, struct.pack("=I", number))[1]
    try:
        code = ctypes.create_string_buffer(8 * _MOST_INSTRUCTIONS)
        info = ctypes.create_string_buffer(struct.pack("=20xIQQ", len(code), 0, ctypes.addressof(code)), 40)
        _bpf(_GET_INFO, struct.pack("=IIQ", fd, len(info), ctypes.addressof(info)))
        size, _, where = struct.unpack_from("=IQQ", info, 20)
    finally:
        os.close(fd)
    if not where or not 0 < size <= len(code):
        raise OSError("the kernel does not show the program")
    return code.raw[:size]


def _bpf(command: int, given: bytes) -> tuple[bytes, int]:
    """The answer in the same structure, and what the call returned. Raises OSError."""
    number = _SYSCALL.get(os.uname().machine)
    if number is None:
        raise OSError("no number of bpf(2) for this machine")
    attributes = ctypes.create_string_buffer(given, 128)
    code: int = _libc.syscall(ctypes.c_long(number), ctypes.c_int(command), attributes, ctypes.c_uint(128))
    if code < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return attributes.raw, code


def run(code: bytes, major: int, minor: int) -> Optional[bool]:
    """What a program of device rules says on opening that character device to read and write; None where it is not understood.

    Such programs load three words, compare, jump forward and return. Encoding: Documentation/bpf/standardization of Linux.
    """
    words = {0: _READ_WRITE << 16 | _CHARACTER, 4: major, 8: minor}
    registers: list[Optional[int]] = [None] * 11
    at, steps = 0, 0
    while 0 <= at < len(code) // 8 and steps < _MOST_STEPS:
        steps += 1
        operation, names, offset, constant = struct.unpack_from("=BBhi", code, 8 * at)
        target, source = names & 15, names >> 4
        if target > 9 or source > 10:
            return None
        at += 1
        kind = operation & 7
        if operation == 0x95:  # exit
            result = registers[0]
            return None if result is None else bool(result & 0xFFFFFFFF)
        if operation == 0x61:  # a word of the context, which only the first register points to
            if source != 1 or registers[1] is not None or offset not in words:
                return None
            loaded, registers[target] = words[offset], None
            if target == 1:
                return None
            registers[target] = loaded
        elif kind in (4, 7):
            second = registers[source] if operation & 8 else constant & (0xFFFFFFFF if kind == 4 else 0xFFFFFFFFFFFFFFFF)
            made = _calculated(operation & 0xF0, registers[target], second, 32 if kind == 4 else 64)
            if made is None:
                return None
            registers[target] = made
        elif kind in (5, 6):
            if operation == 0x05:
                at += offset
                continue
            second = registers[source] if operation & 8 else constant & 0xFFFFFFFFFFFFFFFF
            jump = _compared(operation & 0xF0, registers[target], second, 32 if kind == 6 else 64)
            if jump is None:
                return None
            at += offset if jump else 0
        else:
            return None
    return None


def _calculated(operation: int, first: Optional[int], second: Optional[int], bits: int) -> Optional[int]:
    if second is None or (first is None and operation != 0xB0):
        return None
    left, mask = first or 0, (1 << bits) - 1
    second &= mask
    made = {0x00: left + second, 0x10: left - second, 0x40: left | second, 0x50: left & second, 0xB0: second, 0xA0: left ^ second}
    if operation in (0x60, 0x70):
        shift = second & (bits - 1)
        return (left & mask) << shift & mask if operation == 0x60 else (left & mask) >> shift
    return made[operation] & mask if operation in made else None


def _compared(operation: int, first: Optional[int], second: Optional[int], bits: int) -> Optional[bool]:
    if first is None or second is None:
        return None
    mask = (1 << bits) - 1
    first, second = first & mask, second & mask
    made = {
        0x10: first == second,
        0x20: first > second,
        0x30: first >= second,
        0x40: bool(first & second),
        0x50: first != second,
        0xA0: first < second,
        0xB0: first <= second,
    }
    return made.get(operation)


def denied(pid: int, nodes: Sequence[str]) -> tuple[list[str], list[str]]:
    """The device nodes that it may no longer open, and those of which it cannot be told."""
    lost, unclear = [], []
    for node in nodes:
        try:
            number = os.stat(node).st_rdev  # noqa: PTH116 - the watch's budget
        except OSError:
            unclear.append(node)
            continue
        answer = allowed(pid, os.major(number), os.minor(number))
        if answer is None:
            unclear.append(node)
        elif not answer:
            lost.append(node)
    return lost, unclear

"""Device rules as the kernel would apply them: v1's lines, and v2's programs in the shapes that systemd and runc make them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.onhost.verify import devices

NVIDIA = 195


def instruction(operation: int, target: int = 0, source: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    return struct.pack("=BBhi", operation, target | source << 4, offset, constant)


# Type into r2, access into r3, major into r4, minor into r5 (systemd, src/core/bpf-devices.c; runc does the same).
PROLOGUE = b"".join(
    [
        instruction(0x61, 2, 1, 0),
        instruction(0x54, 2, constant=0xFFFF),
        instruction(0x61, 3, 1, 0),
        instruction(0x74, 3, constant=16),
        instruction(0x61, 4, 1, 4),
        instruction(0x61, 5, 1, 8),
    ]
)
ALLOW = instruction(0xB7, 0, constant=1) + instruction(0x95)
DENY = instruction(0xB7, 0, constant=0) + instruction(0x95)


def rule(major: int | None, minor: int | None, access: int = 6) -> bytes:
    """Character devices of that number, for that access: allowed."""
    tests = [instruction(0x55, 4, offset=0, constant=major)] if major is not None else []
    tests += [instruction(0x55, 5, offset=0, constant=minor)] if minor is not None else []
    # Type, then access: r1 = r3 & access; if r1 != r3, next rule.
    parts = [
        instruction(0x55, 2, constant=2),
        instruction(0xBC, 1, 3),
        instruction(0x54, 1, constant=access),
        instruction(0x5D, 1, 3),
        *tests,
    ]
    whole = [*parts, instruction(0xB7, 0, constant=1), instruction(0x95)]
    for at, one in enumerate(whole):
        if one[0] in (0x55, 0x5D):
            operation, names, _, constant = struct.unpack("=BBhi", one)
            whole[at] = struct.pack("=BBhi", operation, names, len(whole) - at - 1, constant)
    return b"".join(whole)


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        (PROLOGUE + ALLOW, True),
        (PROLOGUE + DENY, False),
        (PROLOGUE + rule(NVIDIA, 0) + DENY, True),
        (PROLOGUE + rule(NVIDIA, 1) + DENY, False),
        (PROLOGUE + rule(NVIDIA, None) + DENY, True),
        (PROLOGUE + rule(1, 3) + rule(136, None) + rule(NVIDIA, 0) + DENY, True),
        (PROLOGUE + rule(1, 3) + rule(136, None) + DENY, False),
        (PROLOGUE + rule(NVIDIA, 0, access=2) + DENY, False),
    ],
)
def test_a_program_of_rules_says_what_the_kernel_would(code: bytes, allowed: bool) -> None:
    assert devices.run(code, NVIDIA, 0) is allowed


@given(st.binary(max_size=400))
def test_a_program_that_is_not_understood_is_no_answer_and_ends(code: bytes) -> None:
    assert devices.run(code, NVIDIA, 0) in (None, True, False)


def test_a_loop_ends() -> None:
    assert devices.run(instruction(0x05, offset=-1), NVIDIA, 0) is None


@pytest.mark.parametrize(
    ("lines", "allowed"),
    [
        (["a *:* rwm"], True),
        (["c 1:3 rwm", "c 195:* rw"], True),
        (["c 195:0 rw"], True),
        (["c 195:1 rw"], False),
        (["b 195:0 rw"], False),
        (["c 195:0 r"], False),
        ([""], False),
        ([], False),
    ],
)
def test_lines_of_version_1_say_what_the_kernel_would(lines: list[str], allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_listed", lambda pid: lines)
    assert devices.allowed(1, NVIDIA, 0) is allowed


def test_one_program_that_denies_is_enough_and_one_that_is_not_understood_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {1: PROLOGUE + ALLOW, 2: PROLOGUE + DENY, 3: b"\x85" * 8}
    monkeypatch.setattr(devices, "_listed", lambda pid: None)
    monkeypatch.setattr(devices, "_instructions", programs.__getitem__)
    for numbers, allowed in (([1], True), ([1, 2], False), ([1, 3], None), ([3, 2], False), ([], True)):
        monkeypatch.setattr(devices, "_programs", lambda pid, numbers=numbers: numbers)
        assert devices.allowed(1, NVIDIA, 0) is allowed


def test_this_process_may_open_what_it_can_open() -> None:
    """The kernel's own rules for this process, read as they are here: version 1 or 2, or not to be had."""
    number = Path("/dev/null").stat().st_rdev
    assert devices.allowed(os.getpid(), os.major(number), os.minor(number)) in (True, None)
    lost, unclear = devices.denied(os.getpid(), ["/dev/null", "/no/such/node"])
    assert lost == [] and "/no/such/node" in unclear

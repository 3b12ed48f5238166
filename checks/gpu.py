"""The GPUs' health as NVML tells it: each one answers, its memory is sound, nothing holds its clocks down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable

from nearsocket.model import near
from nearsocket.model.check import check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Gpu, Host
from nearsocket.model.verdicts import gpuhealth, scope


@check(id="gpu.present")
def present(host: Host) -> Iterator[Finding]:
    """NVML lists every GPU that the PCI bus shows.

    A GPU that fell off the bus, or that the driver could not start, stays in lspci and is gone from nvidia-smi; an engine
    then starts on fewer GPUs or not at all.

    - pass: NVML lists it.
    - fail: NVML answers and does not list it.
    - unknown: NVML was not read.
    - not-applicable: no GPU, or every GPU is handed to a virtual machine (such GPUs are left out).
    - warn cannot occur: it is there or it is not.
    """
    yield from _each(host, gpuhealth.judge_presence)


@check(id="gpu.ecc")
def ecc(host: Host) -> Iterator[Finding]:
    """The GPU's memory had no errors since the driver was loaded, and no row of it waits to be replaced.

    An uncorrected error ends the process that meets it. The card replaces a broken row by a spare one at its next reset;
    until then the row is broken still.

    - pass: ECC is on and neither corrected nor uncorrected errors are counted.
    - warn: corrected errors only: nothing was lost.
    - fail: uncorrected errors, a row that waits for a reset, or one that could not be replaced.
    - unknown: NVML was not read, does not list the GPU, or does not tell.
    - not-applicable: no GPU, one without ECC or with ECC off, or every GPU is handed to a virtual machine.
    """
    yield from _each(host, gpuhealth.judge_ecc)


@check(id="gpu.throttling")
def throttling(host: Host) -> Iterator[Finding]:
    """Neither heat nor the power supply holds the GPU's clocks down at this moment.

    Under load a card runs into its power limit and an idle one lowers its clocks: both are as they should be. So are clocks
    that somebody set. One slow card slows every rank down, since all wait for the last in each all-reduce.

    - pass: none of the reasons below; those that are in force are named.
    - warn: the driver lowers the clocks for heat (sw-thermal-slowdown).
    - fail: the card does so itself, by half or more: hw-slowdown, hw-thermal-slowdown, hw-power-brake-slowdown.
    - unknown: NVML was not read, does not list the GPU, or does not tell.
    - not-applicable: no GPU, or every GPU is handed to a virtual machine (such GPUs are left out).
    """
    yield from _each(host, gpuhealth.judge_clocks)


def _each(host: Host, judge: Callable[[Host, Gpu], Finding]) -> Iterator[Finding]:
    absent = scope.without_driver(host)
    if absent:
        yield absent
    for gpu in () if absent else near.usable(host):
        yield judge(host, gpu)

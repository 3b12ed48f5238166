"""`make demo`: the fault and its cure on a two-socket machine that is made for it, in one command."""

from __future__ import annotations

import contextlib
import time

import click

from lab import lifecycle, ssh
from lab.audit import Audit, audit, command
from lab.errors import LabError
from lab.interrupts import interruptible

#: The demo's own lab: it neither meets nor disturbs one that a person has up.
NAME = "demo"

#: How often the naive start is drawn. Free memory decides where pages go, and about one start in seven stays near by luck.
DRAWS = 3

PLACEMENT = "nccl.buffer-placement"
ENFORCED = "nccl.placement-enforced"


def _tell(text: str) -> None:
    click.echo(text)


def _step(number: int, title: str, *lines: str) -> None:
    _tell(f"\n{number}. {title}")
    for line in lines:
        _tell(f"   {line}")


def _on_host(script: str, timeout_s: float = 180.0) -> str:
    """Run a line on the machine, show both, and return the answer."""
    _tell(f"   # {script}")
    done = ssh.run(NAME, NAME, script, timeout_s=timeout_s)
    for line in (done.stdout + done.stderr).splitlines():
        _tell(f"     {line}")
    if done.returncode:
        raise LabError(f"expected `{script}` to succeed on the machine, found code {done.returncode}")
    return done.stdout


def _audit(*shown: str) -> Audit:
    _tell(f"   $ nearsocket {' '.join(command(NAME, '0')[3:-1])} inventories/lab.py")
    result = audit(NAME)
    for check in shown:
        verdict = result.of(check)
        _tell(f"     {verdict.id} {verdict.status}")
        _tell(f"       {verdict.summary}")
    _tell(
        f"     exit code {result.exit_code}"
        + (" (warnings of other checks; the placement is proven)" if result.exit_code == 1 else "")
    )
    return result


def _expect(result: Audit, check: str, status: str) -> None:
    found = result.of(check).status
    if found != status:
        raise LabError(f"expected {check} {status}, found {found}", "run the demo with --keep and look: nearsocket lab ssh demo")


def _naive() -> None:
    """Start unbound ranks until their buffers are not near: each start draws anew."""
    for draw in range(1, DRAWS + 1):
        _on_host("lab-ranks start -p CPUAffinity=0-1")
        _on_host("lab-pages")
        result = _audit(PLACEMENT, ENFORCED)
        if result.of(PLACEMENT).status != "pass" or draw == DRAWS:
            _expect(result, PLACEMENT, "fail")
            return
        _tell("   Near, by luck: nothing holds it there. The next start draws again.")
        _on_host("lab-ranks stop")


def story() -> None:
    """Tell the story on the demo's machine, which is up."""
    _step(
        1,
        "A server with two sockets",
        "Two NUMA nodes, one a socket, as on a GPU server. Here the GPUs would sit on socket 0: node 0 is near.",
    )
    _on_host("numactl --hardware | grep -E 'cpus|size|free'")
    _step(
        2,
        "The weights are read: page cache fills the near node",
        "Every model load does this. The memory counts as available, but it is not free.",
    )
    _on_host("lab-fill 0")
    _step(
        3,
        "Two ranks start on socket 0's CPUs, the naive way",
        "They make host buffers as NCCL does (a stand-in: there is no GPU here). CPU affinity alone does not place memory:",
        "with the near node full, Linux takes the pages from the other socket, and every all-reduce crosses over.",
    )
    _naive()
    _step(
        4,
        "The same ranks, bound to the near node",
        "A bound process gets its pages there or not at all; the kernel drops page cache to make room.",
    )
    _on_host("lab-ranks stop")
    _on_host("lab-ranks start -p CPUAffinity=0-1 -- numactl --membind=0")
    _on_host("lab-pages")
    result = _audit(PLACEMENT, ENFORCED)
    _expect(result, PLACEMENT, "pass")
    _expect(result, ENFORCED, "pass")
    _tell(
        "\nNear by force: the next restart lands there too."
        "\nMeasured on real hosts with two GPUs, 48 MiB all-reduce: near 2.3 to 2.5 ms, far 5.7 to 6.9 ms."
    )


@click.command()
@click.option("--keep", is_flag=True, help="Leave the machine up: nearsocket lab ssh demo.")
def demo(keep: bool) -> None:
    """The fault and its cure on a fresh machine, told step by step."""
    started = time.monotonic()
    with interruptible(), contextlib.ExitStack() as after:
        lifecycle.down(NAME)
        if not keep:
            after.callback(lifecycle.down, NAME)
        lifecycle.up(lifecycle.Wish(name=NAME, profile="small"))
        story()
    _tell(
        f"Took {time.monotonic() - started:.0f} s."
        + (f" The machine is up: nearsocket lab ssh {NAME}" if keep else " The machine is gone again.")
    )

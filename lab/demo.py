"""`make demo`: the fault and its cure on a two-socket machine that is made for it, in one command."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import click

from lab import lifecycle, site, ssh
from lab.audit import Audit, audit, command
from lab.errors import LabError
from lab.interrupts import interruptible
from lab.say import say
from lab.standins.engine.image import local
from lab.standins.equip import equip
from lab.state import LabRecord

#: The demo's own lab: it neither meets nor disturbs one that a person has up.
NAME = "demo"

#: How often the naive start is drawn. Free memory decides where pages go, and about one start in seven stays near by luck.
DRAWS = 3
#: How often an audit is repeated in which a source had no time: the machine is emulated, and two engines run on it.
TRIES = 4
#: Seconds for reading the machine; a source's own limit grows with it.
READ_S = 180

PLACEMENT = "nccl.buffer-placement"
ENFORCED = "nccl.placement-enforced"
NAIVE = "standin-engine start NCCL_CUMEM_ENABLE=0"


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
    _tell(f"   $ nearsocket {' '.join(command(NAME, None)[3:-1])} inventories/lab.py")
    for _try in range(TRIES):
        result = audit(NAME, None, "--timeout", str(READ_S))
        if all(result.of(check).status != "unknown" for check in shown):
            break
        _tell("     not every source of the host answered in time; again")
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
    """Start an unbound engine until its buffers are not near: each start draws anew."""
    for draw in range(1, DRAWS + 1):
        _on_host("lab-fill 0")
        _on_host(NAIVE)
        _on_host("lab-pages $(pgrep -f ^sglang::scheduler_TP0)")
        result = _audit(PLACEMENT, ENFORCED)
        if result.of(PLACEMENT).status != "pass" or draw == DRAWS:
            _expect(result, PLACEMENT, "fail")
            return
        _tell("   Near, by luck: nothing holds it there. The next start draws again.")


def _deploy(record: LabRecord, fleet: Path) -> tuple[site.Ran, int]:
    """Run deploys/site.py as a person would, show what it said of the host, and count what the host was asked for."""
    _tell("   $ NEARSOCKET_FLEET=fleet.yaml pyinfra inventories/fleet.py deploys/site.py -y")
    ran, execs = site.counted(record, record.machines[0], fleet)
    for line in ran.said.splitlines():
        if f"[{NAME}]" in line or line.startswith("    "):
            _tell(f"     {line.strip()}")
    if ran.code:
        raise LabError(f"expected deploys/site.py to succeed, found code {ran.code}: {ran.said.strip().splitlines()[-1]}")
    return ran, execs


def story(record: LabRecord, image: str) -> None:
    """Tell the story on the demo's machine, which is up, equipped with stand-ins and has the engine's image in podman."""
    _step(
        1,
        "A server with two sockets and four GPUs",
        "Two NUMA nodes, one a socket; two GPUs for show on each (stand-ins: nothing is computed here).",
    )
    _on_host("numactl --hardware | grep -E 'cpus|size|free'")
    _on_host("nvidia-smi topo -m | sed '/^$/,$d'")
    _step(
        2,
        "The naive way: the weights are read, then the engine starts on GPUs 0 and 1",
        "Page cache fills the near node. Nothing binds the engine; NCCL's host buffers (here a stand-in's, of the same sizes, by",
        "the same calls) go where memory is free: to the other socket, and every all-reduce crosses over.",
    )
    _naive()
    _on_host("standin-engine stop 2>&1")
    _step(
        3,
        "The same host by deploys/site.py",
        "A fleet file says what is to be served: two replicas, each on the GPUs of a socket. Both nodes are full of page cache.",
    )
    fleet = site.write_fleet(record, record.machines[0], image, site.replicas(runtime="podman"))
    _on_host("lab-fill 0; lab-fill 1")
    _deploy(record, fleet)
    for replica in ("a", "b"):
        _on_host(f"lab-rings {replica}")
    result = _audit(PLACEMENT, ENFORCED)
    _expect(result, PLACEMENT, "pass")
    _expect(result, ENFORCED, "pass")
    _step(4, "Again: nothing is left to do")
    ran, execs = _deploy(record, fleet)
    if execs != ran.tries or "as it should be; 0 changes" not in ran.said:
        raise LabError(f"expected the second run to ask the host once and to change nothing, found {execs} commands: {ran.said}")
    _tell(f"     the host was asked for {execs} command{'s' if execs > 1 else ''}, counted by its sshd")
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
        record = lifecycle.up(lifecycle.Wish(name=NAME, shape="gpus", timeout_s=600))
        equip(record, record.machines[0])
        site.prepare(record, record.machines[0])
        say(NAME, "making the stand-in engine's image")
        story(record, local(NAME, NAME))
    _tell(
        f"Took {time.monotonic() - started:.0f} s."
        + (f" The machine is up: nearsocket lab ssh {NAME}" if keep else " The machine is gone again.")
    )

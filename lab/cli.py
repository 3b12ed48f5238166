"""`nearsocket lab`: the commands that a person types."""

from __future__ import annotations

import subprocess
import sys

import click

from lab import lifecycle, ssh, state
from lab.demo import demo
from lab.errors import LabError
from lab.image import ensure, forget
from lab.interrupts import interruptible
from lab.process import of_machine
from lab.recipe import PROFILES, recipe
from lab.say import say
from lab.shapes import SHAPES
from lab.standins.equip import equip as put_standins


@click.group("lab")
def lab_group() -> None:
    """A two-socket virtual machine as a test host: real kernel, real SSH, no GPU.

    One lab is one machine, or several alike (--hosts). Ports are on the loopback
    address; nothing but cached images is left after `down`.
    """


@lab_group.command()
@click.argument("name", default="lab")
@click.option(
    "--shape", type=click.Choice(sorted(SHAPES)), default="two-socket", show_default=True, help="Sockets, nodes and memory."
)
@click.option(
    "--hosts",
    type=click.IntRange(1, 8),
    default=1,
    show_default=True,
    help="How many machines; several are called NAME-1, NAME-2, ...",
)
@click.option(
    "--profile",
    type=click.Choice(sorted(PROFILES)),
    default="full",
    show_default=True,
    help="Image: full (with the container engines), small, or dkms (small with a compiler and headers).",
)
@click.option("--port", type=click.IntRange(1024, 65535), help="The first machine's SSH port on 127.0.0.1; default: free ones.")
@click.option("--timeout", "timeout_s", type=click.IntRange(10, 3600), default=300, show_default=True, help="Seconds for the boot.")
def up(name: str, shape: str, hosts: int, profile: str, port: int | None, timeout_s: int) -> None:
    """Boot a lab; build its image first where the cache lacks it."""
    record = lifecycle.up(lifecycle.Wish(name, shape, hosts, profile, port, timeout_s))
    for machine in record.machines:
        click.echo(f"{machine.name}: nearsocket lab ssh {machine.name}")


@lab_group.command()
@click.argument("name", required=False)
def down(name: str | None) -> None:
    """End the lab NAME (default: every lab) and remove all that it left."""
    ended = lifecycle.down(name)
    click.echo(f"down: {', '.join(ended)}" if ended else "nothing was up")


@lab_group.command()
@click.argument("machine", default="lab")
def reset(machine: str) -> None:
    """Put a machine back to the state after its first boot, in seconds."""
    record, one = state.find_machine(machine)
    say(one.name, f"back to its first state after {lifecycle.reset(record, one):.1f} s")


@lab_group.command()
@click.argument("machine", default="lab")
def equip(machine: str) -> None:
    """Put stand-ins on a machine of a shape with GPUs (gpus, snc4, memoryless): GPUs for show, and an engine (docs/standins.md)."""
    record, one = state.find_machine(machine)
    click.echo(put_standins(record, one).rstrip())


@lab_group.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-l", "--user", type=click.Choice(ssh.USERS), default="root", show_default=True, help="ops has sudo, visitor has not."
)
@click.argument("machine", default="lab")
@click.argument("remote", nargs=-1, type=click.UNPROCESSED)
def ssh_(user: str, machine: str, remote: tuple[str, ...]) -> None:
    """Run a command on a machine (after --), or open a shell there."""
    record, one = state.find_machine(machine)
    words = remote[1:] if remote[:1] == ("--",) else remote
    sys.exit(subprocess.run(ssh.command(record.name, one.name, words, user), check=False).returncode)


ssh_.name = "ssh"
lab_group.commands["ssh"] = lab_group.commands.pop("ssh-")


@lab_group.command("list")
def list_() -> None:
    """What is up: machine, state, shape, accelerator, port."""
    for name in state.names():
        record = state.read(name)
        for machine in record.machines if record else ():
            if not machine.powered:
                status = "off"
            elif of_machine(machine.uuid) is None:
                status = "crashed"
            else:
                status = "up" if record and record.ready else "booting"
            if record:
                click.echo(f"{machine.name}\t{status}\t{record.shape}\t{record.profile}\t{record.accel}\t127.0.0.1:{machine.port}")


@lab_group.command()
@click.argument("machine", default="lab")
def kill(machine: str) -> None:
    """Cut a machine's power, as a pulled plug would; `up` switches it on again."""
    record, one = state.find_machine(machine)
    click.echo(f"{one.name}: power cut" if lifecycle.kill(record, one) else f"{one.name} was off")


@lab_group.command()
@click.argument("machine", default="lab")
def logs(machine: str) -> None:
    """The machine's console and what its emulator said."""
    record, one = state.find_machine(machine)
    folder = state.LabFolder(record.name).machine(one.name)
    for log in ("qemu.log", "console.log"):
        path = folder / log
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                click.echo("".join(letter if letter.isprintable() or letter == "\t" else " " for letter in line).rstrip())


@lab_group.command("ssh-config")
@click.argument("name", default="lab")
def ssh_config(name: str) -> None:
    """The path of the lab's ssh configuration, for `ssh -F` and `Include`."""
    record = state.read(state.check_name(name))
    if record is None:
        raise LabError(f"expected a lab called {name}, found none", "nearsocket lab up")
    click.echo(str(state.LabFolder(record.name).ssh_config))


lab_group.add_command(demo)


@lab_group.group()
def image() -> None:
    """The images that machines start from."""


@image.command("build")
@click.option("--profile", type=click.Choice(sorted(PROFILES)), default="full", show_default=True)
def image_build(profile: str) -> None:
    """Build an image into the cache, unless it is there."""
    with interruptible():
        click.echo(str(ensure(recipe(profile)).folder))


@image.command("forget")
def image_forget() -> None:
    """Remove every image from the cache; machines that rest on them must be down."""
    click.echo(f"removed: {forget()}")

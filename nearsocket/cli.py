"""The command line: one group, one module of `nearsocket.commands` for each command, loaded when it is called."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import click

from nearsocket import __version__
from nearsocket.commands.options import say_error
from nearsocket.model.errors import EXIT_FAILURES, EXIT_NOT_WRITTEN, EXIT_USAGE, NearsocketError

#: What a shell shows of a program whose reader left (128 and SIGPIPE's number).
EXIT_READER_LEFT = 141


class Late(NamedTuple):
    """A command that is loaded when it is called: `module:attribute`, and its line in the help."""

    where: str
    help: str


#: Loading late keeps `nearsocket explain` free of pyinfra's start-up. The help line stands here, so that --help loads nothing.
COMMANDS = {
    "audit": Late("nearsocket.commands.audit:audit", "Audit hosts: read each one once, write nothing there, judge with proof."),
    "compare": Late("nearsocket.commands.compare:compare", "Say what changed between two snapshots, regressions first."),
    "explain": Late("nearsocket.commands.explain:explain", "Judge pasted text: numa_maps, an NCCL log, topo -m, numactl -H."),
    "image": Late("nearsocket.commands.image:image_group", "The patched SGLang image: apply the kit, build, verify."),
    "import": Late("nearsocket.commands.import_hosts:import_hosts", "Write what runs on hosts as a fleet file."),
    "lab": Late("lab.cli:lab_group", "A two-socket virtual machine as a test host (in a checkout of the project)."),
    "list-checks": Late("nearsocket.commands.list_checks:list_checks", "List the checks: id, a mark on core ones, summary."),
    "probe": Late("nearsocket.commands.probe:probe_group", "Measure on a host: all-reduce, restart lottery, prompt reading."),
    "rollout": Late("nearsocket.commands.rollout:rollout", "Change a fleet host by host, stopped at the first failure."),
    "verify": Late("nearsocket.commands.verify:verify", "Prove where the buffers of running replicas lie, as at their starts."),
    "plan": Late("nearsocket.commands.plan:plan", "Show what goes where on each host, what is written, and why."),
}


class LateGroup(click.Group):
    """A group that imports a command's module only when that command is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None where there is none. Raises NearsocketError where it cannot be loaded."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].where.partition(":")
        if not module.startswith("nearsocket."):
            _must_be_of_the_checkout(cmd_name, module.partition(".")[0])
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            found = " ".join(str(error).split())
            raise NearsocketError(f"{cmd_name}: expected {module} to load, found: {found}", "install nearsocket again") from None
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list of commands, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, late.help) for name, late in sorted(COMMANDS.items())])


def _must_be_of_the_checkout(command: str, package: str) -> None:
    """Raises NearsocketError where that folder of the project is not there: a wheel has it not, and a foreign one is not ours."""
    from nearsocket.paths import source_folder

    root = source_folder()
    spec = importlib.util.find_spec(package)
    places = [] if spec is None else [Path(place).resolve() for place in spec.submodule_search_locations or ()]
    if root / package not in places:
        found = places[0] if places else "none"
        raise NearsocketError(f"{command}: expected the folder {root / package}, found {found}", f"run it in {root}")


@click.group(cls=LateGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="nearsocket")
def cli() -> None:
    """Provision, tune and verify two-socket GPU servers for LLM inference.

    Exit codes of judging commands: 0 all pass or not applicable, 1 warnings, 2 failures, 3 a core finding is
    unknown, 64 wrong usage. Any command: 74 something could not be written, 130 and 143 interrupted and terminated.
    """


class Ended(KeyboardInterrupt):
    """An interrupt or termination from outside, with the signal's number; whoever ends children at Ctrl-C ends them at this."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def _endings() -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP is an Ended; further ones do not disturb the cleaning up. Ignored ones stay so."""

    def end(number: int, _frame: FrameType | None) -> None:
        for sign in old:
            signal.signal(sign, signal.SIG_IGN)
        raise Ended(number)

    old: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        found = {sign: signal.getsignal(sign) for sign in _SIGNALS}
        old = {sign: had for sign, had in found.items() if had in (signal.SIG_DFL, signal.default_int_handler)}
    for sign in old:
        signal.signal(sign, end)
    try:
        yield
    finally:
        for sign, had in old.items():
            signal.signal(sign, had)


def _open_standard_streams() -> None:
    """A standard stream that the caller closed is /dev/null: else the next file that is opened would take its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - it is open as long as the process
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _settled(code: int) -> int:
    """The code, after what is still to be written is; a stream that takes nothing more is given up."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except BrokenPipeError:
            _give_up(number)
            code = code or EXIT_READER_LEFT if number == 1 else code
        except (OSError, ValueError):
            _give_up(number)
            code = code or EXIT_NOT_WRITTEN if number == 1 else code
    return code


def _give_up(number: int) -> None:
    """Let the stream's rest go to /dev/null: else the interpreter complains about it at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, number)
    if number == 1:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(nothing, sys.stdout.fileno())  # another descriptor where a check was left behind (control/guard)
    os.close(nothing)


def main(args: list[str] | None = None) -> Any:
    """Run the command line and end the process with its code; a fault of the outside world is one line, no traceback."""
    _open_standard_streams()
    with _endings():
        code = _run(args)
    sys.exit(_settled(code))


def _run(args: list[str] | None) -> int:
    try:
        return cli.main(args=args, prog_name="nearsocket", standalone_mode=False) or 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.UsageError as error:
        where = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        say_error(error.format_message() + where)
        return EXIT_USAGE
    except click.ClickException as error:
        say_error(error.format_message())
        return EXIT_USAGE
    except NearsocketError as error:
        say_error(error.message, error.hint)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        return _ended(error)
    except SystemExit as left:
        # Click and rich call sys.exit(1) where the reader left: no judgement. `lab ssh` hands a code on.
        if isinstance(left.__context__, BrokenPipeError) or type(sys.stdout).__name__ == "_PacifyFlushWrapper":
            return EXIT_READER_LEFT
        return left.code if isinstance(left.code, int) else EXIT_FAILURES if left.code else 0
    except BrokenPipeError:
        _give_up(1)
        return EXIT_READER_LEFT
    except OSError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # click's own line feed at an interrupt found no room
            return _ended(error.__context__)
        say_error(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
        _give_up(1)
        return EXIT_NOT_WRITTEN


def _ended(error: BaseException) -> int:
    """128 and the signal's number, as shells count."""
    cause = error if isinstance(error, Ended) else error.__cause__
    number = cause.number if isinstance(cause, Ended) else int(signal.SIGINT)
    say_error("interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}")
    return 128 + number

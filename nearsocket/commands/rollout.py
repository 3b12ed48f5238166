"""`nearsocket rollout`: a change over a fleet, host by host in order, stopped at the first failure."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from nearsocket import paths
from nearsocket.commands import options
from nearsocket.commands.audit import with_sudo
from nearsocket.commands.output import NotWritten, Outlet
from nearsocket.control import checks, whole
from nearsocket.control.converge import Leave
from nearsocket.control.firstlook import FirstLook
from nearsocket.control.inventory import Inventory
from nearsocket.control.record import record, who
from nearsocket.control.reprovision import ask as upgrading
from nearsocket.control.reprovision.job import Reprovision, target_version
from nearsocket.control.rollout import earlier, run
from nearsocket.control.rollout.came import Came
from nearsocket.control.rollout.came import report as report_of
from nearsocket.control.rollout.job import Job
from nearsocket.control.rollout.look import planned
from nearsocket.control.rollout.run import Manner, Unreachable
from nearsocket.control.rollout.site import Site
from nearsocket.control.targets import resolve
from nearsocket.model.errors import UsageError
from nearsocket.model.rollout import plan as plans
from nearsocket.model.rollout.plan import Reviewed
from nearsocket.model.rollout.report import HostReport, RolloutReport
from nearsocket.model.text import one_line
from nearsocket.report import rollout as page
from nearsocket.report import rollout_json, terminal

_LARGEST_PLAN_BYTES = 64 << 20


@dataclass(frozen=True)
class Asked:
    """What a job is made from: the inventory, and the options of the command line by their names."""

    inventory: Inventory
    path: Path
    given: dict[str, Any]


def site(asked: Asked) -> Site:
    """What `deploys/site.py` does."""
    given = asked.given
    leave = Leave(
        given["allow_removals"], given["accept_reload_risk"], given["force"], given["override_freeze"], given["lock_wait_s"]
    )
    return Site(
        record(asked.path, datetime.now(UTC)),
        leave,
        paths.templates_folder(),
        FirstLook(checks.load([paths.checks_folder()]), asked.inventory.waivers),
        given["timeout_s"],
        given["accept_unknown"],
    )


def reprovision(asked: Asked) -> Reprovision:
    """A driver upgrade, what `deploys/reprovision.py` does. Raises UsageError without a version."""
    given = asked.given
    return Reprovision(
        target_version(given["driver"]),
        upgrading.by(),
        checks.load([paths.checks_folder()]),
        timeout_s=given["timeout_s"],
        reboot_limit_s=given["reboot_limit_s"] or REBOOT_LIMIT_S,
        accept_unknown=given["accept_unknown"],
        disturb=given["disturb"],
        override_freeze=given["override_freeze"],
        check=given["check"],
        anew=given["anew"],
    )


#: The kinds of change. A further one takes what it needs of `Asked`.
JOBS: dict[str, Callable[[Asked], Job[Any]]] = {"reprovision": reprovision, "site": site}

_FILE = click.Path(path_type=Path, dir_okay=False)
REBOOT_LIMIT_S = 1200.0
#: Options that say something to one job alone, by that job.
_OF_ONE: dict[str, tuple[str, ...]] = {
    "reprovision": ("driver", "disturb", "reboot_limit_s"),
    "site": ("allow_removals", "accept_reload_risk", "force"),
}


def leaves(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a person gives leave for: as the data of `deploys/site.py`."""
    for option in (
        click.option("--lock-wait", "lock_wait_s", type=options.Number(0, 3600), default=60.0, show_default=True, metavar="S",
                     help="Seconds to wait for another operator's apply on a host."),
        click.option("--override-freeze", metavar="WHY", help="Change hosts that are frozen; the reason is written down there."),
        click.option("--accept-reload-risk", is_flag=True, help="Reload systemd though a container may lose its GPUs by it."),
        click.option("--force", is_flag=True, help="An older commit of the inventory may win over a newer one."),
        click.option("--allow-removals", is_flag=True, help="Take out replicas that the inventory no longer has."),
        click.option("--accept-unknown", is_flag=True, help="Go on where a start's proof is unknown; a proven far always stops."),
    ):  # fmt: skip
        command = option(command)
    return command


def upgrades(command: Callable[..., Any]) -> Callable[..., Any]:
    """What the job reprovision takes beside the others' options."""
    for option in (
        click.option("--disturb", is_flag=True, help="reprovision: end what others run on the GPUs."),
        click.option("--reboot-limit", "reboot_limit_s", type=options.Number(30, 7200), metavar="S",
                     help=f"reprovision: seconds for a host to come back ({REBOOT_LIMIT_S:g})."),
        click.option("--driver", metavar="VERSION", help="reprovision: the driver's version, such as 580.105.08."),
    ):  # fmt: skip
        command = option(command)
    return command


def going(command: Callable[..., Any]) -> Callable[..., Any]:
    """How hosts are gone through."""
    for option in (
        click.option("--unreachable", type=click.Choice([one.value for one in Unreachable]), default="stop", show_default=True,
                     help="A host that cannot be reached: skipped, or nothing is begun."),
        click.option("--max-loads", type=click.IntRange(0, 1000), default=0, metavar="N",
                     help="Models loaded at a time from one network file system; 0: no limit."),
        click.option("--max-unavailable", type=click.IntRange(1, 1000), default=1, show_default=True, metavar="N",
                     help="Hosts at a time behind the first, which comes alone."),
        click.option("--limit", multiple=True, metavar="PATTERN", help="Only these hosts or groups; may be repeated."),
        click.option("--anew", is_flag=True, help="Begin anew though an earlier rollout is not at its end."),
        click.option("--take-over", is_flag=True,
                     help="With --resume or --anew: also from a client that shows itself at work; the report says so."),
        click.option("--resume", is_flag=True, help="Go on with an earlier rollout, from any folder, for any user."),
        click.option("--plan", "plan_file", type=_FILE, metavar="FILE",
                     help="Carry out exactly that plan; refuse where a host moved."),
        click.option("--save-plan", type=_FILE, metavar="FILE", help="With --check: write the plan for review."),
        click.option("--check", is_flag=True, help="Change nothing; end with 4 where changes are pending."),
        click.option("--json", "as_json", is_flag=True, help="Write nearsocket.rollout/1 to standard output, nothing else."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("inventory", metavar="INVENTORY")
@click.argument("job", type=click.Choice(sorted(JOBS)), default="site", required=False)
@going
@leaves
@upgrades
@options.reaching
def rollout(inventory: str, job: str, **given: Any) -> int:
    """Change a fleet in the inventory's order: the first host alone, inside a host one replica at a time, each proven.

    INVENTORY: fleet YAML or pyinfra Python with what is to be served (docs/fleet.md). JOB: site (default), what
    deploys/site.py does, or reprovision, a driver upgrade with its reboot (--driver VERSION; docs/reprovision.md).

    The first failure stops what comes after: that host goes back to what was in force, which is proven again, and later
    hosts are not touched. What is written on the hosts lets any colleague go on: --resume.

    Exit codes: 0 done or nothing to do, 2 refused or failed, 4 changes pending (with --check), 64 wrong usage, 130 interrupted.
    """
    _agree(given, job)
    found = resolve([inventory]).limited(given["limit"])
    targets = with_sudo(found.targets, given["sudo"], given["ask_sudo_password"])
    manner = _manner(given, job)
    made, came = JOBS[job](Asked(found, Path(inventory), given)), Came()
    save = Outlet("--save-plan", given["save_plan"]) if given["save_plan"] else None
    if save is not None:
        save.prepare()
    aside = _Aside(terminal.console(sys.stderr))

    def tell(host: HostReport) -> None:
        aside.print(f"[{len(came.reports)}/{len(targets)}] ", page.host_line(host, aside.console))

    def say(line: str) -> None:
        aside.print(Text(one_line(line)))

    try:
        report = run.rollout(made, targets, manner, came, tell, say)
    except KeyboardInterrupt as error:
        code = 128 + getattr(error, "number", signal.SIGINT)
        _show(report_of(made.name, targets, manner, came, code), given["as_json"])
        raise
    unwritten = _save(save, report, came) if save is not None else None
    _show(report, given["as_json"])
    if unwritten is not None:
        raise unwritten
    return report.exit_code


@dataclass
class _Aside:
    """Progress on standard error. Where that takes no more (a full disk, a reader that left) the work goes on without."""

    console: Console
    over: bool = False

    def print(self, *parts: str | Text) -> None:
        """One line."""
        if self.over:
            return
        try:
            self.console.print(*parts, sep="", soft_wrap=True)
        except (OSError, ValueError, SystemExit):  # rich ends the program where a reader left
            self.over = True


def _agree(given: dict[str, Any], job: str) -> None:
    """Raises UsageError for options that contradict each other, or the job."""
    for one, names in _OF_ONE.items():
        wrong = next((name for name in names if given[name] and job != one), None)
        if wrong is not None:
            option = f"--{wrong.removesuffix('_s').replace('_', '-')}"
            raise UsageError(f"{option}: expected the job {one}, found {job}", "name the job behind the inventory, or leave it out")
    if given["override_freeze"] is not None and not given["override_freeze"].strip():
        raise UsageError("--override-freeze: expected the reason, found none", "it is written down on the host")
    for one, other in (("resume", "anew"), ("check", "resume"), ("check", "plan_file")):
        if given[one] and given[other]:
            words = [f"--{name.removesuffix('_file')}" for name in (one, other)]
            raise UsageError(f"expected one of {words[0]} and {words[1]}, found both", "leave one of them out")
    if given["take_over"] and not (given["resume"] or given["anew"]):
        raise UsageError(
            "--take-over: expected --resume or --anew beside it, found neither",
            "say whether to go on with that rollout or to begin anew",
        )
    if given["save_plan"] and not given["check"]:
        raise UsageError("--save-plan: expected --check beside it, found none", "a plan is for review, before anything is changed")


def _manner(given: dict[str, Any], job: str) -> Manner:
    reviewed = _reviewed(given["plan_file"], job) if given["plan_file"] else None
    return Manner(
        by=who(os.environ),
        max_unavailable=given["max_unavailable"],
        max_loads=given["max_loads"],
        unreachable=Unreachable(given["unreachable"]),
        parallel=given["parallel"],
        wait_s=given["lock_wait_s"],
        check=given["check"],
        resume=given["resume"],
        anew=given["anew"],
        take_over=given["take_over"],
        reviewed=reviewed,
    )


def _reviewed(path: Path, job: str) -> Reviewed:
    """The plan in that file. Raises UsageError for anything else."""
    text = whole.read(path, "a plan", _LARGEST_PLAN_BYTES)
    try:
        found = plans.from_json(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from None
    if found.job != job:
        raise UsageError(f"{path}: expected a plan of {job}, found one of {found.job}")
    return found


def _save(outlet: Outlet, report: RolloutReport, came: Came) -> NotWritten | None:
    """Write the plan, whole or not at all; why it could not be, for behind the report."""
    entries = tuple(planned(looked) for looked in came.looked.values() if looked.ready)
    made = Reviewed(report.job, report.by, datetime.now(UTC).strftime(earlier.FORMAT), entries)
    try:
        outlet.write(made.to_json(), "the plan")
    except NotWritten as error:
        return error
    return None


def _show(report: RolloutReport, as_json: bool) -> None:
    if as_json:
        click.echo(rollout_json.render(report))
    else:
        page.show(report, terminal.console(sys.stdout))

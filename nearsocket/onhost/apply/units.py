"""The last steps of an apply: restart what changed, start what is down, stop what is gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Optional

from nearsocket.model.probe.path import DueProbe
from nearsocket.onhost.apply import journal, pathprobe
from nearsocket.onhost.apply.journal import Journal, Restart
from nearsocket.onhost.apply.pathprobe import Prober
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.apply.work import Work

#: Called with each unit that is up where units come one after another: what is wrong with it, which stops those behind it.
After = Callable[[str], Optional[str]]


def bring_up(
    tree: Tree,
    systemctl: Systemctl,
    todo: Work,
    plan: Journal,
    prober: Optional[Prober] = None,
    after: Optional[After] = None,
) -> tuple[Optional[str], Journal]:
    """What a unit failed with (None: all well), and what is left of the journal.

    Units restart one after another and stop at the first failure, so that the others go on serving; new ones start side by side.
    `prober` proves the paths that are due, each while its unit is down. `after`: new ones start one after another too, up to one
    whose path is broken; one of which it says something is still to be restarted: the next apply gives it another start.
    Raises OSError, CommandTimeout.
    """
    for entry in todo.restart:
        before = systemctl.show([entry.unit])[entry.unit].invocation
        begun = tuple(dataclasses.replace(e, before=before) if e.unit == entry.unit else e for e in plan.restart)
        plan = dataclasses.replace(plan, restart=begun)
        journal.write(tree, plan)
        # systemd counts a deploy's restarts too; a person who deploys often must not run into the limit that ends loops.
        systemctl.reset_failed([entry.unit])
        problem = _again(systemctl, entry, prober, pathprobe.of(todo, entry.unit))
        if problem:
            return f"{entry.unit} did not restart: {problem}", plan
        plan = dataclasses.replace(plan, restart=tuple(e for e in plan.restart if e.unit != entry.unit))
        journal.write(tree, plan)
        problem = after(entry.unit) if after else None
        if problem:
            return problem, _again_later(tree, plan, dataclasses.replace(entry, before=None))
    # One after another, and before any of them starts: what is measured side by side is not what is measured.
    good, refused = _proven(todo, prober, after is not None)
    waiting = () if refused and after else todo.wait
    started, plan = _start_all(tree, systemctl, plan, (*good, *waiting), after)
    problems = [*(f"{name} is not started: {why}" for name, why in refused.items()), *([started] if started else [])]
    if problems:
        return "; ".join(problems), plan
    problem = systemctl.stop(todo.stop)
    return (f"units that are gone did not stop: {problem}" if problem else None), plan


def _proven(todo: Work, prober: Optional[Prober], stop: bool) -> tuple[tuple[str, ...], dict[str, str]]:
    """The units that may start, and why not by unit. `stop`: those behind the first that may not are in neither."""
    good: list[str] = []
    refused: dict[str, str] = {}
    for name in todo.start:
        why = prober.refusal(pathprobe.of(todo, name)) if prober else None
        if not why:
            good.append(name)
            continue
        refused[name] = why
        if stop:
            break
    return tuple(good), refused


def _again(systemctl: Systemctl, entry: Restart, prober: Optional[Prober], due: Optional[DueProbe]) -> Optional[str]:
    """Restart the unit; what failed, or None."""
    if not entry.mount and not (prober and due):
        return systemctl.restart(entry.unit) or _down(systemctl, (entry.unit,))
    return (
        systemctl.stop([entry.unit])
        or (systemctl.stop([entry.mount]) if entry.mount else None)
        or (prober.refusal(due) if prober else None)
        or _start(systemctl, (entry.unit,))
    )


def _start_all(
    tree: Tree, systemctl: Systemctl, plan: Journal, names: tuple[str, ...], after: Optional[After]
) -> tuple[Optional[str], Journal]:
    """Start them side by side, or with `after` one after another up to the first of which it says something."""
    if after is None:
        return _start(systemctl, names), plan
    for name in names:
        problem = _start(systemctl, (name,))
        if problem:
            return problem, plan
        problem = after(name)
        if problem:
            return problem, _again_later(tree, plan, Restart(name))
    return None, plan


def _again_later(tree: Tree, plan: Journal, entry: Restart) -> Journal:
    """The journal with a restart that is still to come."""
    left = dataclasses.replace(plan, restart=(*plan.restart, entry))
    journal.write(tree, left)
    return left


def _start(systemctl: Systemctl, names: tuple[str, ...]) -> Optional[str]:
    if not names:
        return None
    systemctl.reset_failed([name for name, now in systemctl.show(names).items() if now.active == "failed"])
    problem, down = systemctl.start(names), _down(systemctl, names)
    return f"did not start: {down or problem}" if problem or down else None


def _down(systemctl: Systemctl, names: tuple[str, ...]) -> Optional[str]:
    """Those that are not up, in words. systemd calls a start done, too, whose engine ended by a status that a stop may have."""
    states = systemctl.show(names)
    down = [f"{name} is {now}, result {now.result}" for name, now in states.items() if now.active not in ("active", "reloading")]
    return "; ".join(down) or None

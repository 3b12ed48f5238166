"""The last steps of an apply: restart what changed, start what is down, stop what is gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Optional

from nearsocket.onhost.apply import journal
from nearsocket.onhost.apply.journal import Journal
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.apply.work import Work


def bring_up(
    tree: Tree, systemctl: Systemctl, todo: Work, plan: Journal, after: Optional[Callable[[str], Optional[str]]] = None
) -> tuple[Optional[str], Journal]:
    """What a unit failed with (None: all well), and what is left of the journal.

    Units restart one after another and stop at the first failure, so that the others go on serving; new ones start side by side.
    `after`: these start one after another too; it is called with each unit that is up, and says what is wrong with it.
    Raises OSError, CommandTimeout.
    """
    for entry in todo.restart:
        before = systemctl.show([entry.unit])[entry.unit].invocation
        begun = tuple(dataclasses.replace(e, before=before) if e.unit == entry.unit else e for e in plan.restart)
        plan = dataclasses.replace(plan, restart=begun)
        journal.write(tree, plan)
        # systemd counts a deploy's restarts too; a person who deploys often must not run into the limit that ends loops.
        systemctl.reset_failed([entry.unit])
        if entry.mount:
            problem = systemctl.stop([entry.unit]) or systemctl.stop([entry.mount]) or _start(systemctl, (entry.unit,))
        else:
            problem = systemctl.restart(entry.unit)
        if problem:
            return f"{entry.unit} did not restart: {problem}", plan
        plan = dataclasses.replace(plan, restart=tuple(e for e in plan.restart if e.unit != entry.unit))
        journal.write(tree, plan)
        problem = after(entry.unit) if after else None
        if problem:
            return problem, plan
    starts = (*todo.start, *todo.wait)
    for names in [(name,) for name in starts] if after else [starts]:
        problem = _start(systemctl, names) or (after(names[0]) if after else None)
        if problem:
            return problem, plan
    problem = systemctl.stop(todo.stop)
    return (f"units that are gone did not stop: {problem}" if problem else None), plan


def _start(systemctl: Systemctl, names: tuple[str, ...]) -> Optional[str]:
    if not names:
        return None
    systemctl.reset_failed([name for name, now in systemctl.show(names).items() if now.active == "failed"])
    problem = systemctl.start(names)
    if problem is None:
        return None
    states = systemctl.show(names)
    down = [f"{name} is {now}, result {now.result}" for name, now in states.items() if now.active not in ("active", "reloading")]
    return f"did not start: {'; '.join(down) or problem}"

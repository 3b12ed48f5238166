"""Taking an engine over that somebody else made: its unit or container stays, and does not come back by itself.

What is done to the old one is written down before, so that removal undoes it: a drop-in, links that started it at boot, the restart
policy of a container. The unit's own file is never touched.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from nearsocket.model import handover, programs, systemd
from nearsocket.model.errors import NearsocketError
from nearsocket.model.handover import Handover
from nearsocket.model.settings import Adopt
from nearsocket.model.text import one_line
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout

UNITS = "/etc/systemd/system"
_ASK_S = 30.0
_ON_SUCCESS_SINCE = 249


@dataclass(frozen=True)
class Taken:
    """A handover that was begun, and the links that started the old unit at boot: path to target."""

    handover: Handover
    links: Mapping[str, str] = field(default_factory=dict)


def drop_in(unit: str) -> str:
    """Where the old unit is told to stay down."""
    return f"{UNITS}/{unit}.d/50-nearsocket.conf"


def records(tree: Tree) -> Mapping[str, Taken]:
    """Replica to what it took or takes over. Raises OSError where the record is damaged: what is to be undone must not be lost."""
    try:
        value: dict[str, dict[str, Any]] = json.loads(disk.read(tree.adopted).decode("utf-8"))
        return {name: Taken(handover.from_value(one["handover"]), dict(one["links"])) for name, one in value.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OSError(f"expected what was taken over in {tree.adopted}, found: {one_line(str(error), 80)}") from None


def fresh(tree: Tree, given: Iterable[Handover], cut: bool) -> tuple[Handover, ...]:
    """The handovers that are not begun yet. `cut`: an apply was cut short, a begun one may be half done, and is done again."""
    begun = {} if cut else records(tree)
    return tuple(
        one for one in given if one.how is Adopt.NOW or one.replica not in begun or begun[one.replica].handover.old != one.old
    )


def awaiting(tree: Tree, systemctl: Systemctl) -> frozenset[str]:
    """Units of replicas whose old engine has not stopped yet: they are not to be started."""
    waiting = [taken.handover for taken in records(tree).values() if taken.handover.how is Adopt.NEXT_RESTART]
    return frozenset(one.unit for one in waiting if _runs(systemctl, one))


def begin(tree: Tree, systemctl: Systemctl, given: Iterable[Handover]) -> None:
    """The old engines do not come back by themselves from the next daemon-reload on. Raises OSError, CommandTimeout."""
    for one in given:
        begun = dict(records(tree))
        links = _boot_links(tree, one.old_unit) if one.old_unit else {}
        before = begun[one.replica] if one.replica in begun and begun[one.replica].handover.old == one.old else None
        kept = dataclasses.replace(one, restart=before.handover.restart) if before else one
        begun[one.replica] = Taken(kept, {**(before.links if before else {}), **links})
        _write(tree, begun)
        if one.old_unit:
            path = tree.at(drop_in(one.old_unit))
            disk.make_folders(path.parent)
            disk.replace(path, _text(one).encode(), 0o644)
            for link in links:
                disk.remove(tree.at(link))
        if _comes_back(kept):
            _must(systemctl, ["docker", "update", "--restart=no", one.old_container or ""])


def _comes_back(one: Handover) -> bool:
    """Whether Docker itself would start the old container again, at its own next start for one, whatever its unit is told."""
    return one.runtime == "docker" and one.old_container is not None and one.restart not in ("", "no")


def watch(systemctl: Systemctl, given: Iterable[Handover]) -> None:
    """Have systemd start the replica when the old container, which no unit runs, has ended. Raises OSError, CommandTimeout."""
    for one in given:
        if one.how is Adopt.NEXT_RESTART and not one.old_unit:
            name = _watcher(one)
            if systemctl.show([name])[name].active == "active":
                continue  # it waits already
            ends = [f"--property=OnSuccess={one.unit}", f"--property=OnFailure={one.unit}"]
            words = ["systemd-run", f"--unit={name}", "--collect", *ends, "--", f"/usr/bin/{one.runtime}", "wait"]
            _must(systemctl, [*words, one.old_container or ""])


def forget(tree: Tree, systemctl: Systemctl) -> None:
    """Nobody waits any more for an old container's end: its end would start a replica that is gone. Raises OSError, CommandTimeout.

    To stop who waits is such an end too, so the replica's unit has to be unknown to systemd by now.
    """
    systemctl.stop([_watcher(taken.handover) for taken in records(tree).values() if not taken.handover.old_unit])


def _watcher(one: Handover) -> str:
    return f"nearsocket-handover-{one.replica}.service"


def take(systemctl: Systemctl, given: Iterable[Handover]) -> Optional[str]:
    """Stop the old engines that are taken over now; what failed, or None."""
    for one in given:
        if one.how is not Adopt.NOW:
            continue
        problem = systemctl.stop([one.old_unit]) if one.old_unit else None
        if not problem and one.old_container and _container_runs(systemctl, one):
            words = [one.runtime, "stop", "-t", str(one.stop_s), one.old_container]
            output = systemctl.run(words, one.stop_s + _ASK_S)
            problem = one_line(output.error, 200) if output.code else None
        if problem:
            return f"{one.old} did not stop for {one.replica}: {problem}"
        if one.old_unit:  # most engines end with 143, which systemd calls a failure: it was asked for, and is nobody's alarm
            systemctl.reset_failed([one.old_unit])
    return None


def put_back(tree: Tree, systemctl: Systemctl, given: Iterable[Handover]) -> str:
    """Start the old engines again, since the new ones do not run; what came of it, in words."""
    told: list[str] = []
    for one in given:
        if one.how is not Adopt.NOW or systemctl.show([one.unit])[one.unit].active == "active":
            continue
        systemctl.stop([one.unit])
        for link in _boot_links(tree, one.unit):  # else the next boot starts both; the next apply makes the link again
            disk.remove(tree.at(link))
            disk.sync_folder(tree.at(link).parent)
        restore(tree, systemctl, keep=False, only=one.replica)
        systemctl.reload()
        if one.old_unit:
            problem = systemctl.start([one.old_unit])
        else:
            output = systemctl.run([one.runtime, "start", one.old_container or ""], _ASK_S)
            problem = output.error if output.code else None
        told.append(f"{one.old} {'could not be started again: ' + one_line(problem, 120) if problem else 'runs again'}")
    return "; ".join(told)


def restore(tree: Tree, systemctl: Systemctl, keep: bool, only: Optional[str] = None) -> None:
    """Undo what `begin` did, but for starting. `keep`: the replicas run on, so the old ones
    stay out of the boot. Raises OSError, CommandTimeout."""
    begun = dict(records(tree))
    for name in [only] if only is not None else sorted(begun):
        if name not in begun:
            continue
        one, links = begun[name].handover, begun[name].links
        if one.old_unit:
            path = tree.at(drop_in(one.old_unit))
            disk.remove(path)
            try:
                path.parent.rmdir()
            except OSError:
                pass  # it has others, or is gone
            for link, target in links.items() if not keep else ():
                disk.make_folders(tree.at(link).parent)
                disk.link(tree.at(link), target)
        if _comes_back(one) and not keep and _there(systemctl, one):
            _must(systemctl, ["docker", "update", f"--restart={one.restart}", one.old_container or ""])
        if only is not None:
            del begun[name]
            _write(tree, begun)


def _text(one: Handover) -> str:
    lines = [
        systemd.comment(f"Written by nearsocket: replica {one.replica} takes over from this unit, which stays as it is."),
        "# `pyinfra INVENTORY deploys/remove.py` takes this away and lets the unit start at boot again.",
        "[Unit]",
        f"ConditionPathExists=!{programs.CURRENT}",
    ]
    if one.how is Adopt.NEXT_RESTART:
        lines += ["# When it ends, however it does, the replica starts.", f"OnSuccess={one.unit}", f"OnFailure={one.unit}"]
    return "\n".join([*lines, "[Service]", "Restart=no", ""])


def _boot_links(tree: Tree, unit: str) -> dict[str, str]:
    """The links that start the unit with others: `*.wants/` and `*.requires/`, wherever they point."""
    folders = [folder for kind in ("wants", "requires") for folder in sorted(tree.at(UNITS).glob(f"*.{kind}"))]
    found = [folder / unit for folder in folders if (folder / unit).is_symlink()]
    return {f"{UNITS}/{path.relative_to(tree.at(UNITS))}": str(path.readlink()) for path in found}


def _runs(systemctl: Systemctl, one: Handover) -> bool:
    if one.old_unit:
        return systemctl.show([one.old_unit])[one.old_unit].active not in ("inactive", "failed")
    return _container_runs(systemctl, one)


def _container_runs(systemctl: Systemctl, one: Handover) -> bool:
    words = [one.runtime, "container", "inspect", "--format", "{{.State.Running}}", one.old_container or ""]
    try:
        output = systemctl.run(words, _ASK_S)
    except (OSError, CommandTimeout):
        return True  # a runtime that does not answer is no proof that the engine is gone
    return output.code == 0 and output.text.strip() == "true"


def _there(systemctl: Systemctl, one: Handover) -> bool:
    """Whether the old container exists. One that is gone has no restart policy to be put back."""
    output = systemctl.run([one.runtime, "container", "inspect", "--format", "{{.Name}}", one.old_container or ""], _ASK_S)
    return output.code == 0 or "no such" not in output.error.lower()


def refuse_too_old(systemctl: Systemctl, given: Iterable[Handover]) -> None:
    """Raises NearsocketError where a handover needs what this systemd does not have: a unit's end that starts another one.

    `OnSuccess=` came with systemd 249 (its NEWS); an older one ignores the line, and nobody would start the replica.
    """
    if not any(one.how is Adopt.NEXT_RESTART for one in given):
        return
    output = systemctl.run(["systemctl", "--version"], _ASK_S)
    match = re.match(r"systemd (\d+)", output.text)
    if match is None or int(match[1]) < _ON_SUCCESS_SINCE:
        found = f"systemd {match[1]}" if match else one_line(output.text or output.error, 60) or "no answer"
        raise NearsocketError(
            f"expected systemd {_ON_SUCCESS_SINCE} or newer for `adopt: next-restart`, found {found}",
            "say `adopt: now` when the old engine may be stopped, or `adopt: observe` until then",
        )


def _must(systemctl: Systemctl, words: list[str]) -> None:
    output = systemctl.run(words, _ASK_S)
    if output.code:
        raise OSError(f"{' '.join(words[:2])}: {one_line(output.error, 200) or f'exit code {output.code}'}")


def _write(tree: Tree, begun: Mapping[str, Taken]) -> None:
    disk.make_folders(tree.adopted.parent)
    if not begun:
        disk.remove(tree.adopted)
        return
    value = {name: {"handover": handover.to_value(one.handover), "links": dict(one.links)} for name, one in sorted(begun.items())}
    disk.replace(tree.adopted, (json.dumps(value, indent=1) + "\n").encode(), 0o600)

"""Having systemd do what a policy decided about the start that runs this proof.

An explicit stop is never followed by a restart, whatever the engine ends with, and an explicit restart takes the running start
job into its own, so that whoever waits for the start waits on (systemd: service_stop() sets forbid_restart; job_install() merges
start and restart). An exit code of the proof could do neither, and any fault of it would end an engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from nearsocket.model import places, verdict
from nearsocket.model.settings import OnFar
from nearsocket.model.start import Start
from nearsocket.model.text import in_words
from nearsocket.model.verdict import Action, with_action
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.tell import WARNING, tell
from nearsocket.onhost.verify import guarded, publish

#: systemd ends this program with its unit; until then the unit's next command (traffic in) must not run.
_END_S = 30.0


def carry_out(tree: Tree, start: Start, systemctl: Systemctl, wait: Callable[[float], None] = time.sleep) -> None:
    """Stop or restart the unit, as its policy has it, and wait to be ended with it. Where systemd does not take the job, that is
    said, in the verdict too, and the engine serves on."""
    stops = start.verify.policy is OnFar.FAIL
    _mark(tree, start, stops)
    problem = systemctl.ask("stop" if stops else "restart", start.unit)
    if problem is None:
        wait(_END_S)
        return
    tell(f"kept: systemd did not take the {'stop' if stops else 'restart'}: {problem}", WARNING)
    try:
        publish.unmark(tree.root, start.replica, start.verify.metrics)
        _undone(tree, start.replica, f"kept: {problem}")
    except OSError as error:
        tell(f"the verdict could not be corrected: {in_words(error)}", WARNING)


def _mark(tree: Tree, start: Start, stops: bool) -> None:
    """What the unit's next commands look at: no traffic is let in, and after a stop the unit is `failed`. Then the metrics say why
    nobody serves. The job does not wait for either."""
    try:
        disk.replace(tree.at(places.acted_marker(start.replica)), b"proven far; docs/verify.md\n", 0o644)
    except OSError as error:
        tell(f"the unit's other commands will not hear of it: {in_words(error)}", WARNING)
    if not stops:
        return
    try:
        publish.write_stopped(tree.root, start.verify.metrics, start.replica)
    except OSError as error:
        tell(f"no metrics: {in_words(error)}", WARNING)


def _undone(tree: Tree, replica: str, reason: str) -> None:
    with guarded.verdicts(tree.root):
        found = verdict.readable(publish.last(tree.root, replica))
        if found is not None and found.action is not Action.NONE:
            publish.write(tree.root, replica, with_action(found, Action.NONE, reason).to_json())

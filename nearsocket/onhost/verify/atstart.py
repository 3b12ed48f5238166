"""ExecStartPost of a replica, behind health: prove where this start's memory lies, say so everywhere, and act by the policy.

Exit 0, whatever is known of the start. Where it is proven far and its policy stops or restarts it, systemd is asked for that
(act.py): so nothing else ends an engine, no fault of the proof, no source that hangs, no time that runs out, no exit code.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Optional

from nearsocket.model import places, prove
from nearsocket.model.errors import EXIT_CLEAN, NearsocketError, UsageError
from nearsocket.model.finding import Status
from nearsocket.model.start import Start
from nearsocket.model.text import fault, in_words
from nearsocket.model.verdict import Action, Held, Trigger, Verdict, Word
from nearsocket.onhost import apikey, options
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.startfile import load_start
from nearsocket.onhost.tell import ERROR, INFO, NOTICE, WARNING, tell
from nearsocket.onhost.verify import act, gather, policy, publish, request, supervise
from nearsocket.onhost.verify.supervise import Voice

#: The last seconds of the limit are for deciding and writing.
_RESERVE_S = 20.0
#: A request takes a part of the time; one look at the processes as much at most.
_REQUEST_S, _LOOK_S = 60.0, 45.0


def main(words: Sequence[str], tree: Tree = Tree(), systemctl: Systemctl = Systemctl()) -> int:  # noqa: B008 - frozen values
    """The whole program; its exit code."""
    try:
        given = options.parse(words, ("replica", "policy", "timeout"))
        if "replica" not in given:
            raise UsageError("expected --replica NAME, found none")
        start = load_start(tree, given["replica"])
        limit_s = float(start.verify.timeout_s)
        proof = lambda voice: verify(tree, start, limit_s - _reserve(limit_s) / 2, voice)  # noqa: E731
        if supervise.within(limit_s, proof, "the proof of this start"):
            act.carry_out(tree, start, systemctl)
    except NearsocketError as error:
        tell(f"not verified: {error.message}", WARNING)
    except Exception as error:  # also words of another version's unit, and no room for a child
        tell(f"not verified: {fault(error)}", WARNING)
    return EXIT_CLEAN


def verify(tree: Tree, start: Start, limit_s: float, voice: Voice) -> bool:
    """Judge, publish and decide; whether the policy acts."""
    end = time.monotonic() + limit_s - _reserve(limit_s) / 2
    _begun(tree, start, voice)
    note = _asked(tree, start, end) if start.verify.request else None
    found = _settled(tree, start, (note,) if note else (), end)
    decided = policy.decided(tree, start, found, lambda made: _published(tree, made, voice))
    level = {Word.FAR: ERROR, Word.UNKNOWN: WARNING, Word.NEAR: INFO}.get(decided.word, INFO)
    level = NOTICE if decided.word is Word.NEAR and decided.held is not Held.FORCE else level
    voice.tell(f"verdict on this start: {decided.line}", level)
    voice.status(f"{decided.line} ({decided.judged_at})")
    for finding in decided.findings:
        if finding.status in (Status.FAIL, Status.WARN, Status.UNKNOWN):
            voice.tell(f"{finding.status.value} {finding.id}: {finding.summary}", level)
    for text in decided.notes:
        voice.tell(f"note: {text}")
    return decided.action is not Action.NONE


def _reserve(limit_s: float) -> float:
    return min(_RESERVE_S, limit_s / 2)


def _begun(tree: Tree, start: Start, voice: Voice) -> None:
    """Before anything can go wrong the metrics say that there is a start without a verdict."""
    folder = gather.start_folder(tree, start.replica)
    moment = prove.started_at(folder.rpartition("/")[2]) if folder else None
    value = {"replica": start.replica, "metrics": start.verify.metrics, "started_at": moment or publish.now()}
    try:
        publish.write_metrics(tree.root, value, judged=False)
    except OSError as error:
        voice.tell(f"no metrics: {in_words(error)}", WARNING)


def _asked(tree: Tree, start: Start, end: float) -> Optional[str]:
    """Send the request; a note where it was not answered."""
    key = None
    name = start.verify.api_key
    if name is not None:
        try:
            key = apikey.load(tree.at(start.secrets[name]))
        except (NearsocketError, KeyError):
            return f"no request was sent: the secret {name} could not be read"
    left_s = end - time.monotonic()
    return request.send(start.engine, start.health, key, max(1.0, min(_REQUEST_S, left_s / 2)))


def _settled(tree: Tree, start: Start, notes: tuple[str, ...], end: float) -> Verdict:
    """Look until nothing more can come, or the time is over: logs and buffers appear with the first collective."""
    pause_s = 1.0
    while True:
        left_s = end - time.monotonic()
        found = gather.look(tree, start, Trigger.START, max(2.0, min(_LOOK_S, left_s)), notes)
        if prove.settled(found) or time.monotonic() + pause_s >= end:
            return found
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 15.0)


def _published(tree: Tree, made: Verdict, voice: Voice) -> None:
    """Report and metrics; what cannot be written is said, and the verdict holds all the same."""
    try:
        publish.write(tree.root, made.replica, made.to_json())
    except OSError as error:
        voice.tell(f"the verdict could not be written to {places.verdict_file(made.replica)}: {in_words(error)}", WARNING)
    try:
        publish.write_metrics(tree.root, made.value())
    except OSError as error:
        voice.tell(f"no metrics: {in_words(error)}", WARNING)

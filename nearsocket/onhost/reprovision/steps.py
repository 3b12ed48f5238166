"""The steps of an upgrade in their order. Each may have been done before, by a client that is gone: then it is not done again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Optional

from nearsocket.model.driver import family, transaction
from nearsocket.model.driver.family import Family
from nearsocket.model.driver.orders import Action, Answer, Phase, State
from nearsocket.model.driver.preflight import Grade, Look
from nearsocket.model.driver.transaction import Transaction
from nearsocket.model.errors import NearsocketError
from nearsocket.model.host import Package
from nearsocket.model.verdicts.reading import listed
from nearsocket.onhost import hook
from nearsocket.onhost.apply import freeze, journal, startproof
from nearsocket.onhost.reprovision import changing, checks, facts, kept, proof, rehearse, starting, stopping
from nearsocket.onhost.reprovision.apt import ASK_S
from nearsocket.onhost.reprovision.checks import Found
from nearsocket.onhost.reprovision.work import Work


def status(work: Work) -> Answer:
    """How far this host is. Reads only."""
    mine = family.of(work.apt.installed()) if work.tree.at("/var/lib/dpkg/status").exists() else family.Family(None)
    here = facts.manifest(work.tree)
    loaded = proof.loaded(work.tree)
    names = facts.names(here)
    if work.state is not None and work.state.unfinished:  # said before anything is done, and no driver taken back for it
        facts.refuse_older_units(work.tree, here, names)
    split = tuple(f"{package.name} {package.version}" for package in mine.split)
    ran = None
    if here and work.state is not None and work.state.unfinished:
        ran = tuple(replica.name for replica in here.replicas if replica.unit in work.state.units)
    answer = Answer(Action.STATUS, work.state, installed=mine.version, loaded=loaded, replicas=names, split=split, ran=ran)
    return dataclasses.replace(answer, boot_id=journal.this_boot(work.tree), held=kept.held(work.tree))


def preflight(work: Work) -> Answer:
    """Everything that could stop it, looked at. Reads only."""
    return _seen(work, _look(work), Action.PREFLIGHT)


def rehearsed(work: Work) -> Answer:
    """And tried, as far as that can be while replicas serve."""
    found = _look(work)
    answer = _seen(work, found, Action.REHEARSE)
    if found.stopped:
        return answer
    return dataclasses.replace(
        answer, looks=(*answer.looks, *rehearse.rehearse(work.tree, work.apt, found, transaction.upstream(work.order.to)))
    )


def prepare(work: Work) -> Answer:
    """The host as it is, kept; replicas drained and stopped. Nothing is stopped where the preflight finds something."""
    state = work.state
    if state is not None and state.unfinished:
        state = work.known()
        notes: tuple[str, ...] = ()
        if state.back and work.order.forward:
            state = stopping.with_running(work.systemctl, state, facts.manifest(work.tree))
            state = kept.write(work.tree, state.at(Phase.STOPPING, back=False, started=(), measured=()))
            notes = ("it was on its way back: turned round, as you asked",)
    else:
        found = _look(work)
        if found.stopped:
            return _seen(work, found, Action.PREPARE, error=listed(look for look in found.looks if look.grade.value == "stop"))
        state, notes = stopping.begin(work.tree, work.apt, work.systemctl, work.order, found, facts.manifest(work.tree))
    if state.phase is Phase.STOPPING:
        here = facts.manifest(work.tree)
        replicas = here.replicas if here else ()
        hook.forget(work.tree, replicas)
        state = stopping.stop(work.tree, work.systemctl, state, facts.names(here))
        notes = (*notes, *(said for one in replicas if (said := hook.failed(work.tree, one.name))))
    return Answer(Action.PREPARE, state, notes=notes, touched=True)


def upgrade(work: Work) -> Answer:
    """The one transaction; then every kernel that may boot has the module."""
    state = work.known()
    if changing.done(state.phase) or state.back:
        return Answer(Action.UPGRADE, state, touched=True)
    mine = family.of(work.apt.installed())
    goal = transaction.upstream(state.to)
    state = kept.write(work.tree, state.at(Phase.UPGRADING))
    # What an earlier try left half done is mended first: which packages are of the family is known then.
    if mine.half:
        work.apt.mend()
        mine = family.of(work.apt.installed())
    if mine.version != goal or mine.split or mine.half:
        words = forward_words(work, state)
        _judge(work, state, words, mine)
        changing.change(work.apt, dataclasses.replace(state, to=goal), words)
    else:
        changing.hold_again(work.apt, state)
    changing.modules(work.tree, work.apt, goal)
    return Answer(Action.UPGRADE, kept.write(work.tree, state.at(Phase.UPGRADED)), touched=True)


def forward_words(work: Work, state: State) -> tuple[str, ...]:
    """What apt is given to go on to the new driver, from wherever an earlier try left the packages. Raises NearsocketError."""
    words, here = _words(work, state), work.apt.installed()
    if _has(here, state.packages):
        return words  # not begun yet
    return (*words, *transaction.away(here, [word.partition("=")[0] for word in words], state.packages))


def _words(work: Work, state: State) -> tuple[str, ...]:
    """What the transaction names: what was looked at before anything was stopped, whatever a killed try made of the family."""
    if state.words:
        return state.words
    before = family.of(work.apt.installed())
    if before.version is None and state.packages:
        before = family.of(Package(name, version, "ii") for name, version in state.packages.items())
    wanted = transaction.make(before, state.to, transaction.offered(work.apt.madison(transaction.candidates(before, state.to))))
    if wanted.missing or not wanted.words:
        raise NearsocketError(f"expected {state.to} of {listed(wanted.missing[:4])}, found it in no repository", "apt-get update")
    return wanted.words


def _judge(work: Work, state: State, words: tuple[str, ...], mine: Family) -> None:
    """What the rehearsal judged, judged again: hours may have gone by. Raises NearsocketError, before anything is changed."""
    pairs = tuple((name, version) for name, found, version in (word.partition("=") for word in words) if found)
    wrong = checks.refused(work.apt, Transaction(pairs), mine, words, state.packages)
    if wrong:
        raise NearsocketError(f"expected apt to change the driver's packages alone, found: {wrong}", "apt-get -s install shows it")


def _has(here: Iterable[Package], packages: Mapping[str, str]) -> bool:
    """Whether all of these are installed whole, at these versions."""
    return packages.items() <= {package.name: package.version for package in here if package.status[1:2] == "i"}.items()


def _way_back(work: Work, state: State, mine: Family) -> tuple[str, ...]:
    """What apt is given to go back; nothing where the packages never changed. Raises NearsocketError where there is no way back:

    then nothing is written, and the host can still go forward.
    """
    if mine.version == state.frm and not mine.half and not mine.split and _has(work.apt.installed(), state.packages):
        return ()
    if not state.packages:
        raise NearsocketError(
            f"expected the packages of {state.frm} to go back to, found that the upgrade was not made here",
            "mend what failed, then go on forward: --resume",
        )
    brought = tuple(word.partition("=")[0] for word in state.words)
    ours = (*state.packages, *brought)  # what a broken transaction brought goes again
    words = changing.previous_words(work.tree, state.packages)
    words = (*words, *transaction.away(work.apt.installed(), state.packages, brought))
    wrong = checks.refused(work.apt, Transaction(tuple(sorted(state.packages.items()))), mine, words, ours)
    if wrong:
        raise NearsocketError(
            f"expected a way back to {state.frm}, found: {wrong}", "mend what failed, then go on forward: --resume"
        )
    return words


def back(work: Work) -> Answer:
    """The packages before, where they still exist; nothing where they never changed. Judged before it is begun."""
    state = work.known()
    if state.back and changing.done(state.phase):
        return Answer(Action.BACK, state, touched=True)
    goal = state.frm
    words = _way_back(work, state, family.of(work.apt.installed()))
    here = facts.manifest(work.tree)
    state = stopping.with_running(work.systemctl, state, here)
    state = kept.write(work.tree, state.at(Phase.UPGRADING, back=True, started=(), measured=()))
    kept.hold(work.tree, facts.names(here), f"{stopping.under_way(state)}, and on the way back to {goal}")
    stopping.all_down(work.systemctl, state.units)
    if words:
        changing.change(work.apt, state, words)
    else:
        changing.hold_again(work.apt, state)
    changing.modules(work.tree, work.apt, goal)
    return Answer(Action.BACK, kept.write(work.tree, state.at(Phase.UPGRADED)), touched=True)


def reboot(work: Work) -> Answer:
    """Trigger the reboot, and only that; nothing where the module in memory is the one to come already."""
    state = work.known()
    boot_id = journal.this_boot(work.tree)
    loaded = proof.loaded(work.tree)
    if state.phase is Phase.REBOOTING and state.boot_id != boot_id:
        return Answer(Action.REBOOT, state, loaded=loaded, boot_id=boot_id, touched=True)
    if state.phase not in (Phase.UPGRADED, Phase.REBOOTING) or loaded == transaction.upstream(state.goal):
        return Answer(Action.REBOOT, state, loaded=loaded, boot_id=boot_id, notes=("no reboot is needed",), touched=True)
    state = kept.write(work.tree, state.at(Phase.REBOOTING, boot_id=boot_id))
    said = work.apt.run(["systemctl", "--no-block", "reboot"], ASK_S)
    if said.code:
        raise NearsocketError(f"expected systemd to begin a reboot, found: {said.error or said.text}", "systemctl list-jobs")
    return Answer(Action.REBOOT, state, loaded=loaded, boot_id=boot_id, touched=True)


def after(work: Work) -> Answer:
    """The new boot, proven: versions, NVML, CDI, GPUs in containers; and what engines compiled for the old driver is cleared."""
    state = work.known()
    goal = transaction.upstream(state.goal)
    if state.phase is Phase.PROVEN:  # asked again: until it answers it counts for nothing, and nobody closes the upgrade by it
        state = kept.write(work.tree, state.at(Phase.UPGRADED))
    if proof.loaded(work.tree) is None:
        work.apt.run(["modprobe", "nvidia"], ASK_S)  # many servers load it at the first use, and nothing has used it in this boot
    host = proof.settled(work.tree, work.eyes, goal, state.gpus)
    notes = proof.containers(work.tree, work.apt, host, goal)
    notes = (*notes, *starting.seen_inside(work, state, host))
    if not state.started:  # what runs already compiled what is there
        notes = (*notes, *proof.clear(work.tree, state.caches))
    return Answer(Action.AFTER, kept.write(work.tree, state.at(Phase.PROVEN)), notes=notes, loaded=goal, touched=True)


def finish(work: Work) -> Answer:
    """All is proven: what was kept for the way back goes. Raises NearsocketError where something is left that --resume mends."""
    state = work.known()
    if state.phase is not Phase.PROVEN:
        raise NearsocketError(
            f"expected the driver to be proven before the upgrade is closed, found {state.phase.value}", "--resume"
        )
    here = facts.manifest(work.tree)
    hooked = [said for one in (here.replicas if here else ()) if (said := startproof.hooked(work.tree, one.name))]
    if hooked and not state.back:
        raise NearsocketError(hooked[0], "mend what the hook calls, then --resume")
    kept.let_all_go(work.tree)
    kept.forget_packages(work.tree)
    return Answer(Action.FINISH, kept.write(work.tree, state.at(Phase.DONE)), touched=True)


def _look(work: Work) -> Found:
    """What the host shows, and whether it may be changed at all: a freeze is to be found before anything is stopped anywhere."""
    found = checks.look(work.tree, work.apt, work.order.to, work.order.disturb)
    frozen = freeze.in_force(work.tree, work.order.freeze)
    if frozen is None:
        return found
    why = work.order.override_freeze
    said = Look("freeze", Grade.WARN if why else Grade.STOP, f"the host is {frozen}", "" if why else freeze.HINT)
    return dataclasses.replace(found, looks=(said, *found.looks))


def _seen(work: Work, found: Found, action: Action, error: Optional[str] = None) -> Answer:
    return Answer(
        action,
        work.state,
        found.looks,
        found.wanted.words,
        found.family.version,
        found.host.driver.module_loaded,
        journal.this_boot(work.tree),
        facts.names(facts.manifest(work.tree)),
        error=error,
    )


STEPS: Mapping[Action, Callable[[Work], Answer]] = {
    Action.STATUS: status,
    Action.PREFLIGHT: preflight,
    Action.REHEARSE: rehearsed,
    Action.PREPARE: prepare,
    Action.UPGRADE: upgrade,
    Action.REBOOT: reboot,
    Action.AFTER: after,
    Action.START: starting.start,
    Action.FINISH: finish,
    Action.BACK: back,
}

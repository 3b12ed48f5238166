"""The preflight: everything that could stop the upgrade later, looked at before anything is stopped. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.driver import family, preflight, transaction
from nearsocket.model.driver.family import Family
from nearsocket.model.driver.preflight import Grade, Look
from nearsocket.model.driver.transaction import Simulation, Transaction
from nearsocket.model.host import Host
from nearsocket.model.verdicts.reading import listed
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.reprovision import apt as apts
from nearsocket.onhost.reprovision import facts
from nearsocket.onhost.reprovision.apt import Apt


@dataclass(frozen=True)
class Found:
    """What there is to do. `already`: the packages are at the version, only the reboot and the proofs are left."""

    host: Host
    family: Family
    wanted: Transaction
    looks: tuple[Look, ...]
    already: bool

    @property
    def stopped(self) -> bool:
        """Whether anything forbids to begin."""
        return any(look.grade is Grade.STOP for look in self.looks)


def look(tree: Tree, apt: Apt, to: str, disturb: bool) -> Found:
    """Look at everything. Raises OSError, CommandTimeout, NearsocketError where the host does not answer."""
    host = facts.host_now(tree)
    if not tree.at("/var/lib/dpkg/status").exists():
        text = "not supported here: packages of dpkg alone (Debian, Ubuntu) are upgraded"
        stop = Look("system", Grade.STOP, text, "upgrade by hand; the audit and the proofs work here all the same")
        return Found(host, Family(None), Transaction(()), (stop,), False)
    mine = family.of(apt.installed())
    already = mine.version == transaction.upstream(to) and not mine.split
    looks = [*preflight.whole(mine, apt.audit(), transaction.upstream(to))]
    wanted, simulation = Transaction(()), None
    if not already and mine.version is not None:
        wanted = transaction.make(mine, to, transaction.offered(apt.madison(transaction.candidates(mine, to))))
        said, simulation = _transaction(apt, mine, wanted, to)
        looks.append(said)
        looks += preflight.loaded(host, mine)
    releases = facts.kernels(host)
    coming = tuple(name for name, _ in wanted.wanted)
    built = tuple(package.name for package in mine.prebuilt) if already else wanted.along
    if simulation is not None:
        built = transaction.modules(simulation, to)
        wanted = transaction.with_parts(wanted, simulation)
    looks += preflight.kernels(mine, releases, facts.headers(tree, releases), facts.compiler(), built)
    if already:
        looks += preflight.on_disk(transaction.upstream(to), {name: facts.modinfo(tree, name, apt.run) for name in releases})
    looks.append(preflight.secure_boot(facts.secure_boot(tree), mine, facts.enrolled(tree, apt.run)))
    if wanted.wanted and not wanted.missing:
        looks += preflight.disk(facts.free(tree), apt.sizes(wanted.wanted), facts.initrd_bytes(tree), facts.devices(tree))
    here = facts.manifest(tree)
    looks.append(preflight.held_gpus(host, here, disturb))
    looks.append(preflight.fabric(host, mine, coming if not already else [package.name for package in mine.members]))
    looks.append(preflight.toolkit(host, mine))
    deaf = facts.waiting_units(tree, here) if here else ()
    if deaf:
        text = f"{listed(deaf)} would start by itself at the boot, unproven: the unit is of an older nearsocket"
        looks.append(Look("replicas", Grade.STOP, text, "run deploys/site.py first"))
    return Found(host, mine, wanted, tuple(looks), already)


def _transaction(apt: Apt, mine: Family, wanted: Transaction, to: str) -> tuple[Look, Optional[Simulation]]:
    """What is wrong with it, and what apt would do; None where it does not say."""
    if wanted.missing:
        text = f"no repository offers {to} of {listed(wanted.missing[:4])}"
        return Look("packages", Grade.STOP, text, "apt-get update; apt-cache madison shows what there is"), None
    wrong, simulation = _simulated(apt, wanted, mine, wanted.words)
    if wrong:
        return Look("transaction", Grade.STOP, wrong, "apt-get -s install shows the whole"), simulation
    return Look("transaction", Grade.OK, f"{len(wanted.words)} packages to {to}"), simulation


def refused(apt: Apt, wanted: Transaction, mine: Family, words: Sequence[str] = (), before: Iterable[str] = ()) -> Optional[str]:
    """Why apt must not be asked for it; None where it may. `words`: what it is given where that is not what it names (archives);
    `before`: the members before a transaction that may have broken half-way.

    Raises OSError, CommandTimeout.
    """
    return _simulated(apt, wanted, mine, words or wanted.words, before)[0]


def _simulated(
    apt: Apt, wanted: Transaction, mine: Family, words: Sequence[str], before: Iterable[str] = ()
) -> tuple[Optional[str], Optional[Simulation]]:
    said = apt.simulate(words)
    if said.code:
        return apts.problem(said), None
    simulation = transaction.simulated(said.text)
    wrong = transaction.refusals(simulation, wanted, mine, apt.holds(), apt.installed(), before)
    return listed(wrong[:4]) if wrong else None, simulation

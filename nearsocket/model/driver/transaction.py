"""One transaction to a driver's version: what it names, what apt says that it would do, and what of that is refused. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model.driver import family as families
from nearsocket.model.driver import names
from nearsocket.model.driver.family import Family
from nearsocket.model.host import Package
from nearsocket.model.verdicts import driverversions

#: A driver's version: 580.105.08, or a package's whole one such as 580.105.08-0ubuntu1.
TARGET = re.compile(r"(?:\d+:)?\d{3,}\.\d+(?:\.\d+)?(?:-[0-9A-Za-z.+~]+)?\Z", re.ASCII)
_MADISON = re.compile(r"^\s*(\S+)\s*\|\s*(\S+)\s*\|", re.MULTILINE)
_INSTALL = re.compile(r"^Inst (\S+?(?::i386)?)(?::\S+)? (?:\[([^\]]+)\] )?\((\S+)", re.MULTILINE)
#: A kernel of its own, which the next boot would take: no module was looked at for it.
_KERNEL = re.compile(r"linux-image(-unsigned|-extra)?-|linux-(generic|virtual|lowlatency|server|nvidia|aws|gcp|azure|oracle)(-|\Z)")
_REMOVE = re.compile(r"^(?:Remv|Purg) (\S+?(?::i386)?)(?::\S+)?(?= |$)", re.MULTILINE)


@dataclass(frozen=True)
class Transaction:
    """Package and full version, all or nothing. `missing`: members that no repository offers at the version.

    `along`: the distribution's built modules, named without a version: apt takes those that fit.
    """

    wanted: tuple[tuple[str, str], ...]
    along: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """What apt-get install is given."""
        return (*(f"{name}={version}" for name, version in self.wanted), *self.along)


@dataclass(frozen=True)
class Simulation:
    """What apt-get -s says: package to its old (None: new) and its new version, and what would be removed."""

    installs: Mapping[str, tuple[Optional[str], str]] = field(default_factory=dict)
    removes: tuple[str, ...] = ()


def offered(madison: str) -> dict[str, tuple[str, ...]]:
    """Package to the versions that repositories offer, newest first, of `apt-cache madison` (`name | version | source`)."""
    found: dict[str, list[str]] = {}
    for name, version in _MADISON.findall(madison):
        if version not in found.setdefault(name, []):
            found[name].append(version)
    return {name: tuple(versions) for name, versions in found.items()}


def candidates(family: Family, target: str) -> tuple[str, ...]:
    """Every name that a member may have at the target, to ask apt about."""
    every = (*family.named, *family.prebuilt)
    return tuple(dict.fromkeys(name for member in every for name in _called(family, member, target)))


def _called(family: Family, member: Package, target: str) -> tuple[str, ...]:
    """What that member may be called at the target, the likeliest first.

    One with another branch's name is there for who asks for that name (Ubuntu: empty, at the new branch's version): it keeps it.
    """
    called = names.renamed(member.name, upstream(target), family.version)
    own = names.branch(member.name)
    if own is None or family.version is None or own == names.major(family.version):
        return called
    return tuple(dict.fromkeys((member.name, *called)))


def upstream(target: str) -> str:
    """The driver's own version in a target."""
    return driverversions.package_version(Package("", target, "")) or target


def make(family: Family, target: str, offers: Mapping[str, Sequence[str]]) -> Transaction:
    """The transaction that takes every member to the target: each to the whole version that was asked for where it has one (parts
    of one driver are packaged apart), else to the one that most members have.

    Two repositories name and build the same driver differently, and their packages must not mix. A tool that is not offered stays.
    """
    choices: dict[str, list[tuple[str, str]]] = {}
    for member in family.named:
        called = _called(family, member, target)
        choices[member.name] = [(name, v) for name in called for v in offers.get(name, ()) if upstream(v) == upstream(target)]
    parts = {member: pairs for member, pairs in choices.items() if not names.is_helper(member)}
    if target != upstream(target) and not any(v == target for pairs in parts.values() for _, v in pairs):
        return Transaction((), (), tuple(parts))
    missing = tuple(member for member, pairs in parts.items() if not pairs)
    have = Counter(version for pairs in parts.values() for version in {version for _, version in pairs})
    wanted = dict(max(pairs, key=lambda pair: (pair[1] == target, have[pair[1]])) for pairs in choices.values() if pairs)
    along = tuple(
        name
        for package in family.prebuilt
        for name in names.renamed(package.name, upstream(target))[:1]
        if name in offers or name == package.name
    )
    return Transaction(tuple(sorted(wanted.items())), along, missing)


def with_parts(wanted: Transaction, simulation: Simulation) -> Transaction:
    """The same, with the parts that apt brings by itself named too (those with the version in their name).

    Where it breaks half-way, apt goes on only with words that close every dependency themselves.
    """
    parts = {name: new for name, (_, new) in simulation.installs.items() if families.comes_along(name)}
    return dataclasses.replace(wanted, wanted=tuple(sorted({**parts, **dict(wanted.wanted)}.items())))


def away(here: Iterable[Package], kept: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """Removals that close a transaction which broke half-way, as words for apt: of `others` what is installed and not `kept`.

    Where one branch's packages took the place of some of another's, apt does not replace the rest by itself.
    """
    gone = set(others) - set(kept)
    installed = {package.name for package in here}
    return tuple(f"{name}-" for name in sorted(gone & installed) if not names.has_version(name) and not names.goes_along(name))


def modules(simulation: Simulation, target: str) -> tuple[str, ...]:
    """The built modules that a simulation brings for the target.

    One that it leaves as it is stays at the driver before: it asks for no more than that version of it, and nothing stops the
    driver from going past it.
    """
    series = names.major(upstream(target))
    return tuple(name for name in simulation.installs if names.is_module(name) and names.branch(name) in (None, series))


def simulated(text: str) -> Simulation:
    """The lines `Inst name [old] (new ...)` and `Remv name` of apt-get -s."""
    installs = {name: (old or None, new) for name, old, new in _INSTALL.findall(text)}
    return Simulation(installs, tuple(dict.fromkeys(_REMOVE.findall(text))))


def refusals(
    simulation: Simulation,
    wanted: Transaction,
    family: Family,
    holds: Iterable[str],
    here: Iterable[Package] = (),
    before: Iterable[str] = (),
) -> tuple[str, ...]:
    """What of a simulation is not what was asked for, a line each: a foreign package removed, changed or its hold broken, another
    kernel, a member left. A new package that the driver depends on is no refusal.

    `here`, `before`: what is installed, and the members' names before, where a transaction may have broken half-way.
    """
    mine = family.names | set(before) | {name for name in simulation.removes if families.comes_along(name)}
    own, held = mine | {name for name, _ in wanted.wanted}, set(holds)
    there = {
        (package.name, package.version) for package in (*family.members, *family.split, *family.prebuilt, *family.beside, *here)
    }
    left = [
        f"{name} would stay as it is instead of {version}"
        for name, version in wanted.wanted
        if simulation.installs.get(name, (None, ""))[1] != version and (name, version) not in there
    ]
    foreign = [name for name in (*simulation.installs, *simulation.removes) if name not in own]
    broken = [f"{name} is held, and the transaction changes it" for name in foreign if name in held]
    changed = [
        f"{name} {old} would become {new}"
        for name, (old, new) in simulation.installs.items()
        if old is not None and name not in own and name not in held
    ]
    booted = [
        f"{name}: another kernel would come"
        for name, (old, _) in simulation.installs.items()
        if old is None and _KERNEL.match(name)
    ]
    tools = {name for name in mine if names.goes_along(name)}
    removed = [
        f"{name} would be removed" for name in simulation.removes if name in tools or (name not in held and name not in mine)
    ]
    # A member may go only where another branch's package takes its place, or with the version in its name.
    named = {package.name for package in family.named}
    gone = [f"{name} would be removed" for name in simulation.removes if name in named - tools and name in dict(wanted.wanted)]
    return (*broken, *removed, *changed, *booted, *gone, *left)

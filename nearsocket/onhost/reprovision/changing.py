"""The one transaction, forward or back: holds are let go and set again whatever happens; then modules and RAM disks are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from nearsocket.model.driver import family
from nearsocket.model.driver import names as naming
from nearsocket.model.driver.orders import Phase, State
from nearsocket.model.errors import NearsocketError
from nearsocket.model.verdicts.reading import listed
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect import modulefile
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.reprovision import apt as apts
from nearsocket.onhost.reprovision import facts, kept
from nearsocket.onhost.reprovision.apt import Apt

_INITRAMFS_S = 900.0


def change(apt: Apt, state: State, words: Sequence[str]) -> None:
    """Install these. Raises NearsocketError, one line, where the packages are not all there afterwards, OSError, CommandTimeout.

    What dpkg cannot configure (a module that does not build) the transaction replaces: it decides, not dpkg's word before.
    """
    apt.mend()
    held = apt.holds()
    mine = family.of(apt.installed())
    try:
        apt.mark("unhold", sorted(mine.names & held))
        said = apt.install(words)
    finally:
        hold_again(apt, state)
    if said.code:
        raise NearsocketError(f"expected apt to install {len(words)} packages, found: {apts.problem(said)}", _look(said.text))
    now = family.of(apt.installed())
    if now.version != state.goal or now.half:
        left = [f"{package.name} {package.version}" for package in (*now.half, *now.split)]
        found = now.version or listed(left[:4])
        raise NearsocketError(f"expected the driver's packages at {state.goal}, found: {found}", "dpkg -l | grep nvidia")


def hold_again(apt: Apt, state: State) -> None:
    """Hold what was held, and nothing else of the family. A package that came for one that was held is held too.

    Raises OSError, CommandTimeout.
    """
    every = apt.installed()
    here = {package.name for package in every if package.status[1:2] not in ("n", "c")}
    # A transaction that broke half-way left no family: what was held is known by its name alone.
    names = (family.of(every).names | set(state.packages)) & here
    version = state.to if not state.back else state.frm
    other = state.frm if not state.back else state.to
    wanted = {new for old in state.holds for new in (old, *naming.renamed(old, version, other)) if new in here}
    held = apt.holds() & (names | wanted)
    apt.mark("hold", sorted(wanted - held))
    apt.mark("unhold", sorted(held - wanted))


def modules(tree: Tree, apt: Apt, goal: str) -> None:
    """Every kernel that may boot has the module of that version, and a RAM disk that is whole. Raises NearsocketError."""
    host = facts.host_now(tree)
    for release in facts.kernels(host):
        found = facts.modinfo(tree, release, apt.run)
        if found != goal:
            raise NearsocketError(
                f"expected kernel {release} to have the module {goal}, found {found or 'none'}",
                f"dkms status; modinfo -k {release} {modulefile.names(tree.root)[0]}",
            )
        _ram_disk(tree, apt, release)


def _ram_disk(tree: Tree, apt: Apt, release: str) -> None:
    """Made anew where there is one: it may hold the module, or the files that keep nouveau away."""
    image = tree.at(f"/boot/initrd.img-{release}")
    if not image.exists():
        return
    try:
        said = apt.run([*apts.JOINED, "update-initramfs", "-u", "-k", release], _INITRAMFS_S)
    except FileNotFoundError:
        return  # a RAM disk that another tool makes; the packages' own triggers called it
    if said.code:
        raise NearsocketError(
            f"expected update-initramfs to make {release}'s RAM disk, found: {apts.problem(said)}", "df /boot; update-initramfs -u"
        )
    if image.stat().st_size == 0:
        raise NearsocketError(
            f"expected a RAM disk at /boot/initrd.img-{release}, found an empty file", "df /boot; update-initramfs -u"
        )
    try:
        listing = apt.run(["lsinitramfs", str(image)], _INITRAMFS_S)
    except (FileNotFoundError, CommandTimeout):
        return
    if listing.code or not listing.text.strip():
        raise NearsocketError(
            f"expected a RAM disk that can be read at /boot/initrd.img-{release}, found: {apts.problem(listing)}",
            "update-initramfs -u",
        )


def previous_words(tree: Tree, packages: Mapping[str, str]) -> tuple[str, ...]:
    """The kept archives of the driver before, as apt-get takes files; those that are not kept by name and version."""
    words = []
    for name, version in sorted(packages.items()):
        archive = next(iter(apts.archives(tree.at(kept.PREVIOUS), name, version)), None)
        words.append(str(archive) if archive else f"{name}={version}")
    return tuple(words)


def _look(text: str) -> Optional[str]:
    if "No space left" in text:
        return "make room (df -h), then go on: --resume"
    return "/var/log/apt/term.log has the whole"


def done(phase: Phase) -> bool:
    """Whether the packages were changed before."""
    return phase in (Phase.UPGRADED, Phase.REBOOTING, Phase.PROVEN, Phase.DONE)

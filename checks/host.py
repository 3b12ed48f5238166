"""The host itself: whether it could be read, and what can change it behind the engine's back."""

from __future__ import annotations

from collections.abc import Iterator

from nearsocket.model.check import check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host
from nearsocket.model.verdicts import automatic, reachable, reloads, scope, tuned


@check(id="host.reachable")
def reached(host: Host) -> Iterator[Finding]:
    """The host could be read, and every source answered in time.

    - pass: sources were read; those that this user may not read are named (run as root to see them), and so are tools that
      ran and answered with an error.
    - warn: some sources gave no answer in time or broke; the findings that need them are unknown.
    - fail: the host did not answer in time, or answers and cannot be audited as it is: no login, no Python 3.9, no sudo.
    - unknown: what the host answered is cut or another program's, or the snapshot holds nothing that was read.
    - not-applicable cannot occur: the question always arises.
    """
    yield reachable.read_well(host)


@check(id="host.tuned-profile")
def tuned_profile(host: Host) -> Iterator[Finding]:
    """tuned's profile is one for servers, and what it sets is in force.

    tuned writes kernel parameters again at each start. Where another tool sets the same ones differently, the last writer
    wins and nobody knows which. A profile such as hpc-compute already sets zone_reclaim_mode and numa_balancing: this
    check reads what the profile says, it does not fight it.

    - pass: a profile is active and its kernel parameters are the ones in force.
    - warn: a power-saving profile, or a kernel parameter in force that differs from what the profile sets.
    - unknown: tuned's files could not be read.
    - not-applicable: no tuned, no active profile, or no GPU.
    - fail cannot occur: a profile alone breaks nothing.
    """
    yield scope.without_near(host) or tuned.judge_profile(host)


@check(id="host.unattended-upgrades")
def unattended_upgrades(host: Host) -> Iterator[Finding]:
    """No automatic upgrade can replace the NVIDIA driver under running engines.

    After such an upgrade the kernel module in memory and the libraries on disk differ: what runs goes on, and the next
    container that starts finds no GPU.

    - pass: no automatic upgrade is switched on, or the driver's packages are held or excluded from it.
    - warn: automatic upgrades are on and the driver's packages are open to them.
    - unknown: timers, settings or packages could not be read.
    - not-applicable: no GPU, no systemd, or the driver did not come from packages, so that no upgrade replaces it.
    - fail cannot occur: nothing is broken yet; driver.versions-match says when it is.
    """
    yield scope.without_driver(host) or automatic.judge_upgrades(host)


@check(id="host.daemon-reload-risk")
def daemon_reload_risk(host: Host) -> Iterator[Finding]:
    """A `systemctl daemon-reload` leaves running containers their GPUs.

    With systemd as the cgroup manager, a reload writes each container's device rules anew from what the runtime told
    systemd. Devices that a hook injected later (`--gpus`, the nvidia runtime's legacy mode) are not among them. runc 1.1.3 to
    1.1.6 left out listed ones without a link in /dev/char, and systemd before 240 finds them by it alone. Package upgrades
    reload too. Where systemd has a scope of the container,
    its own rules (`systemctl show -p DeviceAllow`) decide; else how the container was made does.

    - pass: every GPU container is privileged, or its devices are in the rules (CDI, `--device`), or cgroupfs is used.
    - warn: the next reload (seen with systemd 252) or update of the container (257) can take the GPUs from it.
    - unknown: containers or Docker's cgroup driver could not be read, or there are no rules to see and Docker 29 chose by itself.
    - not-applicable: no GPU, or no running container asked for one.
    - fail cannot occur: the loss itself is container.gpus-visible's.
    """
    absent = scope.without_gpu(host) or (None if reloads.strangers(host) else reloads.nothing_to_lose(host))
    if absent:
        yield absent
        return
    yield from reloads.judge_reloads(host)

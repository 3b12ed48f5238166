"""The NVIDIA driver's life cycle: one version everywhere, held, alone, persistent, and there after the next boot."""

from __future__ import annotations

from collections.abc import Iterator

from nearsocket.model import near
from nearsocket.model.check import check
from nearsocket.model.finding import Finding, passed, unknown, warned
from nearsocket.model.host import Host
from nearsocket.model.verdicts import automatic, driverversions, kernels, scope
from nearsocket.model.verdicts.groups import quoted
from nearsocket.model.verdicts.reading import because, named, told, why


@check(id="driver.versions-match")
def versions_match(host: Host) -> Iterator[Finding]:
    """The NVIDIA module in memory, the libraries, NVML, the module on disk and the packages are one version.

    An upgrade replaces libraries and the module on disk, not the one in memory. What runs goes on; a container that
    starts later fails (nvidia-smi then exits with 18). A reboot, or a rollback of the packages, ends it. Where NVSwitches join
    the GPUs, fabric manager is one of these places, and must run.

    - pass: the module in memory and at least one other place tell the same version, and none tells another.
    - warn: packages or the module on disk are another version: the next boot brings it.
    - fail: library or NVML differ from the module in memory, nvidia-smi says so itself, no module is loaded, or there are
      NVSwitches and fabric manager is another version or does not run.
    - unknown: the module's version could not be read, nothing is there to compare it with, or fabric manager may run unseen.
    - not-applicable: no GPU, or every GPU is handed to a virtual machine.
    """
    yield scope.without_driver(host) or driverversions.judge_versions(host)


@check(id="driver.package-holds")
def package_holds(host: Host) -> Iterator[Finding]:
    """The packages that carry the driver are held, all of them, at one version.

    - pass: all are held at one version.
    - warn: none is held, so that any upgrade replaces the driver; or some are, so that an upgrade splits it.
    - fail: all are held at different versions: the package manager reports held broken packages.
    - unknown: packages or holds could not be read.
    - not-applicable: no GPU, every GPU is handed to a virtual machine, or the driver did not come from packages.
    """
    yield scope.without_driver(host) or automatic.judge_holds(host)


@check(id="driver.conflicting-module")
def conflicting_module(host: Host) -> Iterator[Finding]:
    """No other module (nouveau, nova_core, vfio-pci) claims a GPU.

    Whether modprobe's files or the kernel's command line keep the others away stands in the evidence: one that is kept away
    and loaded all the same came from an old initial RAM disk, which is then what to renew.

    - pass: none of them drives a GPU or is loaded.
    - warn: nouveau or nova_core is loaded and may be first at the next boot; or some GPUs are kept for virtual machines.
    - fail: nouveau or nova_core drives a GPU.
    - unknown: the loaded modules could not be read.
    - not-applicable: no GPU, or every GPU is handed to a virtual machine.
    """
    yield scope.without_driver(host) or kernels.judge_conflicts(host)


@check(id="driver.persistence")
def persistence(host: Host) -> Iterator[Finding]:
    """Persistence mode is on, so that the driver keeps its state when the last process leaves.

    Without it every start initialises the GPU anew, and clocks and power limits that were set are lost. The mode is judged,
    not the daemon: a daemon that runs with --no-persistence-mode does not help.

    - pass: NVML says that the mode is on.
    - warn: it is off.
    - unknown: NVML was not read or does not say.
    - not-applicable: no GPU, or every GPU is handed to a virtual machine (such GPUs are left out).
    - fail cannot occur: it costs time at a start, it breaks nothing.
    """
    absent = scope.without_driver(host)
    if absent:
        yield absent
    for gpu in () if absent else near.usable(host):
        set_it = f"sudo nvidia-smi -i {quoted(gpu.pci)} -pm 1; sudo systemctl enable --now nvidia-persistenced"
        if gpu.persistence is None:
            summary = f"not known: {why(host, 'nvml')}"
            yield unknown(named(gpu), summary, because(host, "nvml"), f"nvidia-smi -i {quoted(gpu.pci)} -q | grep Persistence")
        elif gpu.persistence:
            yield passed(named(gpu), "persistence mode is on", (told(f"nvml persistence {gpu.pci}", "enabled"),))
        else:
            summary = "persistence mode is off: each start initialises the GPU anew"
            yield warned(named(gpu), summary, (told(f"nvml persistence {gpu.pci}", "disabled"),), set_it)


@check(id="driver.dkms-next-kernel")
def dkms_next_kernel(host: Host) -> Iterator[Finding]:
    """The kernel that the next boot takes has an NVIDIA module, of the libraries' version.

    A kernel upgrade without headers, or a DKMS build that failed, shows only after the reboot: the host comes back without
    GPUs.

    - pass: the boot loader's default kernel (the newest one where the default is not told) has the module.
    - warn: its module is another version than the libraries; or the newest kernel lacks it and the default is not told.
    - fail: the default kernel has no module.
    - unknown: the installed kernels could not be read.
    - not-applicable: no GPU, every GPU is handed to a virtual machine, or no kernel here has such a module on disk.
    """
    yield scope.without_driver(host) or kernels.judge_next_kernel(host)

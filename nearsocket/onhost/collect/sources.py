"""The table of sources: name, reader, time limit, and what must be read before."""

from __future__ import annotations

from nearsocket.onhost.collect import containers, driver, kernel, ncclconf, ncclfiles, nodes, nvml, packages, pci, processes, units
from nearsocket.onhost.collect.runner import Job

#: What others wait for comes first. Limits in seconds; a command's own limit is shorter, so that its name stands in the reason.
JOBS = (
    Job("nvml", nvml.nvml, 15),
    Job("kernel.images", kernel.images, 10),
    Job("processes", processes.processes, 24, after=("nvml",)),
    Job("nodes", nodes.nodes),
    Job("cpus", nodes.cpus),
    Job("pci", pci.pci, 12),
    Job("kernel.release", kernel.release),
    Job("kernel.cmdline", kernel.cmdline),
    Job("kernel.sysctl", kernel.sysctl),
    Job("kernel.mm", kernel.mm),
    Job("kernel.modules", kernel.modules),
    Job("os.release", kernel.os_release),
    Job("meminfo", kernel.meminfo),
    Job("mounts", kernel.mounts),
    Job("numactl", nodes.numactl),
    Job("nvidia.topo", driver.topo, 16),
    Job("nvidia.smi", driver.smi, 16),
    Job("docker.info", containers.docker_info),
    Job("containers", containers.containers, 20),
    Job("driver.files", driver.files),
    Job("driver.module", driver.module),
    Job("driver.libraries", driver.libraries),
    Job("driver.modinfo", driver.modinfo, after=("kernel.images",)),
    Job("fabricmanager", driver.fabricmanager, 12),
    Job("dev.char", driver.dev_char),
    Job("container.toolkit", driver.toolkit),
    Job("packages", packages.packages, 12),
    Job("packages.holds", packages.holds, 12),
    Job("packages.upgrades", packages.upgrades),
    Job("dkms", packages.dkms, 12),
    Job("modprobe", packages.modprobe),
    Job("cdi", containers.cdi),
    Job("zfs.arcstats", kernel.arcstats),
    Job("tuned", kernel.tuned),
    Job("units", units.units, 18),
    Job("timers", units.timers),
    Job("nccl.conf", ncclconf.conf, 8, after=("processes",)),
    Job("nccl.logs", ncclfiles.logs, 10, after=("processes",)),
)

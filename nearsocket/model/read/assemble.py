"""The host from its parts. Never raises on a snapshot that could be loaded: what cannot be read is None and has a note."""

from __future__ import annotations

from typing import Optional

from nearsocket.model.host import Host
from nearsocket.model.parsers import arcstats, cmdline, containers, mountinfo, packages, pci, take, units
from nearsocket.model.read import buffers, crosscheck, devices, driver, gpus, processes, replicas, topology
from nearsocket.model.read.notes import Notes
from nearsocket.model.read.topo import rows
from nearsocket.model.snapshot import Snapshot

#: Sources whose data is a list; all others with data are maps.
_LISTS = frozenset(
    {"containers", "containers.scopes", "images", "dev.char", "units", "timers", "processes", "nccl.logs", "verdicts", "baselines"}
)
#: Sources that are one text.
_TEXTS = frozenset(
    {
        *("kernel.release", "kernel.cmdline", "kernel.modules", "os.release", "meminfo", "mounts", "numactl", "nvidia.topo"),
        *("nvidia.smi", "packages", "packages.holds", "dkms", "zfs.arcstats", "generation", "generation.fingerprint"),
    }
)


def host(snapshot: Snapshot, near: Optional[frozenset[int]] = None) -> Host:
    """The typed host that this snapshot tells of. `near`: the user's word on the GPUs' nodes (`--near`)."""
    notes = Notes()
    _shapes(snapshot, notes)
    nodes, sockets = topology.topology(snapshot, notes)
    crosscheck.numactl(snapshot.text("numactl"), nodes, notes)
    entries = pci.entries(snapshot.data("pci"))
    found_gpus = gpus.gpus(snapshot, entries, rows(snapshot, notes), nodes, notes)
    boxes = containers.containers(snapshot.data("containers"))
    services = units.units(snapshot.data("units"))
    minors = {file.minor: at for at, file in gpus.information(snapshot).items() if file.minor is not None}
    seen = processes.processes(snapshot, found_gpus, boxes, minors, notes)
    running = tuple(item.process for item in seen)
    files = buffers.merge(mapping for item in seen for mapping in item.mappings)
    arc = arcstats.arcstats(snapshot.text("zfs.arcstats"))
    return Host(
        name=snapshot.host,
        taken_at=snapshot.taken_at,
        uid=take.number(snapshot.privilege.get("uid")),
        kernel=take.text(snapshot.text("kernel.release").strip()),
        os_id=driver.os_id(snapshot.text("os.release")),
        sockets=sockets,
        nodes=nodes,
        gpus=found_gpus,
        nics=devices.nics(entries, nodes, notes),
        mounts=mountinfo.mounts(snapshot.text("mounts")),
        processes=running,
        replicas=replicas.replicas(running, files, found_gpus, boxes, services),
        buffers=files,
        containers=boxes,
        packages=packages.packages(snapshot.text("packages")),
        holds=packages.holds(snapshot.text("packages.holds")),
        driver=driver.driver(snapshot, notes),
        modules=packages.modules(snapshot.text("kernel.modules")),
        units=services,
        sysctl=driver.sysctl(take.text_map(snapshot.data("kernel.sysctl"))),
        sources=dict(snapshot.sources),
        arc_bytes=arc.get("size"),
        arc_min_bytes=arc.get("c_min"),
        near=near,
        notes=notes.lines(),
        cmdline=cmdline.cmdline(snapshot.text("kernel.cmdline")),
        program={key: str(value) for key, value in snapshot.program.items() if isinstance(value, (str, int, float))},
    )


def _shapes(snapshot: Snapshot, notes: Notes) -> None:
    """Note the sources that were read and yet have not their shape (docs/snapshot.md)."""
    for name, source in snapshot.sources.items():
        if not source.ok:
            continue
        if name in _TEXTS:
            fits = source.text is not None
        else:
            fits = source.text is not None or isinstance(source.data, list if name in _LISTS else dict)
        if not fits:
            notes.add(ascii(name)[1:-1][:40], f"expected {_expected(name)}, found {type(source.data).__name__}; taken as not read")


def _expected(name: str) -> str:
    return "a text" if name in _TEXTS else "a list" if name in _LISTS else "a map"

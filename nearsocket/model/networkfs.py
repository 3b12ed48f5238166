"""Which network file system a path lies on: many engines that load from one at a time slow each other down. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from nearsocket.model.machine import Mount

#: As /proc/mounts names them: file systems whose bytes come over the network from a place that hosts share.
_KINDS = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "wekafs", "afs", "9p", "glusterfs", "virtiofs"),
        *(
            "fuse.glusterfs",
            "fuse.ceph",
            "fuse.ceph-fuse",
            "fuse.juicefs",
            "fuse.sshfs",
            "fuse.s3fs",
            "fuse.mount-s3",
            "fuse.gcsfuse",
        ),
        *("fuse.rclone", "fuse.seaweedfs", "fuse.moosefs"),
    }
)


def source(mounts: Iterable[Mount], path: str) -> Optional[str]:
    """What is mounted there (`server:/models`), where that is a network file system; None elsewhere. Mounts in the kernel's order:
    of several at one point the last one counts."""
    best: Optional[Mount] = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return f"{best.kind.partition('4')[0]} {best.source}" if best and best.kind in _KINDS else None


def sources(mounts: Iterable[Mount], paths: Iterable[str]) -> frozenset[str]:
    """The network file systems that these paths lie on."""
    every = tuple(mounts)
    return frozenset(found for path in paths if (found := source(every, path)) is not None)

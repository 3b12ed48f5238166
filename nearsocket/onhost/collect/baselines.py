"""The baselines that probes kept on this host, as they are: texts of `nearsocket.baseline/1`."""

from __future__ import annotations

from nearsocket.model import places
from nearsocket.model.snapshot import Source
from nearsocket.model.text import decode
from nearsocket.onhost.apply import disk
from nearsocket.onhost.collect.files import Context, absent, ok

#: A baseline has some 4 KiB; a host keeps one for each set of GPUs, driver, NCCL and image that it ever had.
_CAP_BYTES, _MOST = 1 << 18, 64


def baselines(context: Context) -> Source:
    """The newest files, one text each; absent where none was ever kept."""
    folder = context.path(places.BASELINES)
    try:
        paths = sorted(folder.glob("*.json"), key=lambda path: path.lstat().st_mtime, reverse=True)
    except OSError:
        paths = []
    if not paths:
        return absent("no baseline was kept here")
    texts = []
    for path in paths[:_MOST]:
        try:
            texts.append(decode(disk.read(path, _CAP_BYTES)))
        except OSError:
            continue  # counted below
    left = len(paths) - len(texts)
    return ok(texts, f"{left} of {len(paths)} baselines were not read" if left else None)

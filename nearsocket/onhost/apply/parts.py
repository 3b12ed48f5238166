"""One part of a generation put into the one in force: the host's tuning alone, or the replicas alone. Pure."""

from __future__ import annotations

import dataclasses
from typing import Optional

from nearsocket.model.generation import Generation, Link
from nearsocket.model.order import Part

#: Files of the host's tuning lie in these folders of a generation; all else belongs to the replicas.
_TUNING = ("sysctl.d/", "tmpfiles.d/")


def merged(old: Optional[Generation], new: Generation, part: Part) -> Generation:
    """`new` in that part, `old` (None: nothing) in the other."""
    tune, engine = (new, old) if part is Part.TUNE else (old, new)
    tuning, serving = (tune.manifest if tune else None), (engine.manifest if engine else None)
    files = [entry for entry in (tuning.files if tuning else ()) if entry.path.startswith(_TUNING)]
    files += [entry for entry in (serving.files if serving else ()) if not entry.path.startswith(_TUNING)]
    links = [link for link in (tuning.links if tuning else ()) if _tunes(link)]
    links += [link for link in (serving.links if serving else ()) if not _tunes(link)]
    sources = {**(engine.contents if engine else {}), **(tune.contents if tune else {})}
    if engine:
        sources.update({path: data for path, data in engine.contents.items() if not path.startswith(_TUNING)})
    manifest = dataclasses.replace(
        new.manifest,
        fingerprint=serving.fingerprint if serving else new.manifest.fingerprint,
        files=tuple(sorted(files, key=lambda entry: entry.path)),
        links=tuple(sorted(links, key=lambda link: link.path)),
        units=serving.units if serving else (),
        replicas=serving.replicas if serving else (),
        sysctl=dict(tuning.sysctl) if tuning else {},
        reapply=tuning.reapply if tuning else (),
    )
    return Generation(manifest, {entry.path: sources[entry.path] for entry in files})


def _tunes(link: Link) -> bool:
    return any(f"/{folder}" in link.target for folder in _TUNING)

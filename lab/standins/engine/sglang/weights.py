"""Weights: files that are really read, so that the page cache fills as a server's does. Nothing is kept of them."""

from __future__ import annotations

from pathlib import Path

CHUNK = 4 << 20


def files(path: str) -> list[Path]:
    """The weight files of a model folder, or the file itself; none where the path is no such thing (a name of a hub)."""
    place = Path(path)
    if place.is_file():
        return [place]
    if not place.is_dir():
        return []
    return sorted(one for one in place.iterdir() if one.suffix in (".safetensors", ".bin", ".pt") and one.is_file())


def read(path: str, rank: int, count: int) -> int:
    """Read this rank's share, every `count`-th chunk; returns the bytes read. Raises OSError."""
    total = 0
    for file in files(path):
        with file.open("rb", buffering=0) as source:
            size = file.stat().st_size
            for start in range(rank * CHUNK, size, count * CHUNK):
                source.seek(start)
                total += len(source.read(CHUNK))
    return total

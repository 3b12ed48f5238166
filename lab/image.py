"""Images: made once for a recipe, kept in the cache under the recipe's hash, complete or not there at all."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from lab import tools
from lab.build import build, clear
from lab.errors import LabError
from lab.folders import cache_folder, locked, make_folder, need_space, remove_tree
from lab.recipe import Recipe
from lab.say import say

#: Room that a build needs at its peak, in MiB: the unpacked packages, the disk, and downloads (measured, rounded up).
NEEDED_MIB = {"small": 1200, "full": 2400, "dkms": 2000, "older": 2000}


@dataclass(frozen=True)
class Image:
    """A finished image: kernel, first initrd, and the raw disk that machines use as a read-only base."""

    digest: str
    folder: Path

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The first initrd, without a lab's keys."""
        return self.folder / "initrd"

    @property
    def disk(self) -> Path:
        """The base disk; nobody writes to it."""
        return self.folder / "disk.raw"


def cached(recipe: Recipe) -> Image | None:
    """The recipe's image if the cache has it."""
    image = Image(recipe.digest, cache_folder() / f"image-{recipe.digest}")
    return image if image.folder.is_dir() else None


def ensure(recipe: Recipe) -> Image:
    """The recipe's image, built now if the cache lacks it; two builds of one cache wait for each other."""
    image = cached(recipe)
    if image:
        return image
    tools.need((*tools.TO_BUILD, *(() if tools.is_root() else tools.TO_BUILD_WITHOUT_ROOT)))
    cache = make_folder(cache_folder(), "NEARSOCKET_LAB_CACHE")
    with locked(cache / "lock", "image"):
        image = cached(recipe)  # the one that held the lock may have built it
        if image:
            return image
        for leftover in cache.glob("build-*"):  # of a build that was killed: its lock went with it
            clear(leftover)
            remove_tree(leftover)
        need_space(cache, NEEDED_MIB.get(recipe.profile, 1200), "NEARSOCKET_LAB_CACHE")
        return _build(recipe, cache)


def _build(recipe: Recipe, cache: Path) -> Image:
    started = time.monotonic()
    say(
        "image",
        f"building {recipe.profile} {recipe.suite} ({len(recipe.packages)} packages and what they need), once for this recipe",
    )
    work = Path(tempfile.mkdtemp(prefix="build-", dir=cache))
    try:
        work.chmod(0o711)  # another user of a user namespace walks through it
        build(recipe, work)
        final = cache / f"image-{recipe.digest}"
        work.rename(final)
    except OSError as error:
        raise LabError(
            f"expected to build an image in {cache}, found: {error.strerror or error}",
            "free some space, or set NEARSOCKET_LAB_CACHE to a folder with room",
        ) from None
    finally:
        remove_tree(work)
    image = Image(recipe.digest, final)
    used_mib = image.disk.stat().st_blocks * 512 >> 20
    say("image", f"ready after {time.monotonic() - started:.0f} s, {used_mib} MiB")
    return image


def forget() -> int:
    """Remove every image from the cache; returns how many."""
    cache = cache_folder()
    if not cache.is_dir():
        return 0
    with locked(cache / "lock", "image"):
        images = [*cache.glob("image-*"), *cache.glob("build-*")]
        for folder in images:
            clear(folder)
            remove_tree(folder)
        shutil.rmtree(cache, ignore_errors=True)
    return len(images)

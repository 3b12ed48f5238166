"""`nearsocket image`: apply the patch kit, prove that an image carries it, build the image."""

from __future__ import annotations

import json
from pathlib import Path

import click

from nearsocket import __version__, paths
from nearsocket.control import imagekit, program
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.image.kit import Kit, read
from nearsocket.model.image.order import Order
from nearsocket.model.image.tree import State, Verdict, demand, judge
from nearsocket.model.text import one_line
from nearsocket.onhost.image import engine as engines
from nearsocket.onhost.image.apply import apply as apply_to
from nearsocket.onhost.image.build import build as build_image
from nearsocket.onhost.image.folder import package_folder, read_tree
from nearsocket.onhost.image.verify import Verified, verify_container, verify_image

KIT = click.option("--kit", "folder", type=click.Path(path_type=Path), metavar="DIR", help="The kit; default: templates/image.")
ENGINE = click.option("--engine", type=click.Choice(engines.KNOWN), help="Default: the first of the two that answers.")


@click.group("image")
def image_group() -> None:
    """The patched SGLang image: chunked PCIe all-reduce, refused on anything that the kit was not made for."""


@image_group.command("apply")
@click.option("--root", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The folder that holds sglang/.")
@KIT
def apply(root: Path, folder: Path | None) -> int:
    """Patch the sglang package in a folder: checked by SHA-256 before and after, all or nothing.

    Exit codes: 0 applied, or applied before; 2 refused, nothing changed; 64 wrong usage.
    """
    kit = _kit(folder)
    changed, verdict = apply_to(root, kit)
    click.echo(f"{kit.patch} {'applied to' if changed else 'is in place in'} SGLang {verdict.release.version} in {root}")
    click.echo(f"  off until the engine's environment has {kit.variable}=1", err=True)
    return 0


@image_group.command("verify")
@click.option("--image", metavar="NAME", help="A stored image; nothing of it is run.")
@click.option("--container", metavar="NAME", help="A container, running or not; nothing is run in it.")
@click.option("--root", metavar="DIR", help="The folder that holds sglang/: here, or inside the image or container.")
@ENGINE
@KIT
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def verify(
    image: str | None, container: str | None, root: str | None, engine: str | None, folder: Path | None, as_json: bool
) -> int:
    """Prove by SHA-256 that a stored image, a container or a folder carries exactly this patch.

    Exit codes: 0 it does, 1 it does and something may keep Python from using it, 2 it does not, 64 wrong usage.
    """
    if bool(image) + bool(container) > 1 or not (image or container or root):
        raise UsageError("expected one of --image, --container and --root", "see: nearsocket image verify --help")
    kit = _kit(folder)
    if image:
        found = verify_image(engines.find(engine), image, kit, root)
    elif container:
        found = verify_container(engines.find(engine), container, kit, root)
    else:
        found = _folder(Path(root or ""), kit)
    if as_json:
        click.echo(json.dumps({"schema": "nearsocket.image-verify/1", "patch": kit.patch, **found.__dict__}))
    else:
        _tell(found, kit, image or container or str(root), bool(image or container))
    return 1 if found.doubt else 0


@image_group.command("build")
@click.option("--tag", required=True, metavar="NAME:TAG", help="The image's name; an older image keeps it where this fails.")
@click.option("--base", metavar="NAME@sha256:DIGEST", help="The image to build on, by digest.")
@click.option("--archive", type=click.Path(path_type=Path), metavar="FILE", help="Load this saved image instead of building.")
@ENGINE
@click.option("--python", default="python3", show_default=True, metavar="PATH", help="The interpreter inside the image.")
@click.option("--space-gib", type=click.FloatRange(0), metavar="GIB", help="Free room to ask for; default: by what must be done.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=3600.0, show_default=True, metavar="S")
@KIT
def build(
    tag: str,
    base: str | None,
    archive: Path | None,
    engine: str | None,
    python: str,
    space_gib: float | None,
    timeout_s: float,
    folder: Path | None,
) -> int:
    """Build the patched image on this machine with docker or podman, or load it from an archive. On a fleet: deploys/image.py.

    Exit codes: 0 built, loaded, or there already; 2 refused, the older image keeps its name; 64 wrong usage.
    """
    order = Order(
        tag=tag,
        files=_kit(folder).files,
        version=__version__,
        base=base,
        archive=str(archive.resolve()) if archive else None,
        engine=engine,
        python=python,
        space_gib=space_gib,
        timeout_s=timeout_s,
    )
    click.echo(str(build_image(order.checked(), program.build())))
    return 0


@image_group.command("manifest")
@click.argument(
    "wheels", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="WHEEL ..."
)
@KIT
def manifest(wheels: tuple[Path, ...], folder: Path | None) -> int:
    """Print the kit's manifest for these wheels, after a person read what changed between the releases (docs/image.md)."""
    click.echo(imagekit.manifest(imagekit.kit_files(folder or paths.templates_folder() / "image"), wheels), nl=False)
    return 0


def _kit(folder: Path | None) -> Kit:
    return read(imagekit.kit_files(folder or paths.templates_folder() / "image"))


def _folder(root: Path, kit: Kit) -> Verified:
    package = package_folder(root, kit)
    verdict: Verdict = judge(kit, read_tree(package, kit))
    demand(verdict, kit, str(package))
    if verdict.state is not State.PATCHED:
        raise NearsocketError(
            f"{package}: expected SGLang {verdict.release.version} with {kit.patch}, found it {verdict.state.value}",
            f"nearsocket image apply --root {root}",
        )
    return Verified(verdict.release.version, str(package), None)


def _tell(found: Verified, kit: Kit, name: str, has_environment: bool) -> None:
    click.echo(f"{name}: SGLang {found.release} with {kit.patch} in {found.package}")
    if has_environment and found.variable is None:
        click.echo(f"  its environment sets no {kit.variable}: off unless the start sets it to 1", err=True)
    elif has_environment:
        click.echo(f"  its environment has {kit.variable}={one_line(str(found.variable), 40)}", err=True)
    if found.doubt:
        click.echo(f"  warning: {found.doubt}", err=True)

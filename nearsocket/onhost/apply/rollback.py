"""Going back to a generation that is still here, after seeing that it can serve: files, images, models."""

from __future__ import annotations

from typing import Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Generation
from nearsocket.onhost.apply import state
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout

_ASK_S = 60.0


def find(tree: Tree, systemctl: Systemctl, number: Optional[int]) -> tuple[Generation, int]:
    """The generation to go back to (None: the newest before the one in force) and its number.

    Raises NearsocketError, one line, where it is not here, damaged, or its image or model is gone; OSError.
    """
    current, numbers = tree.number(), tree.numbers()
    before = [n for n in numbers if current is not None and n < current]
    chosen = number if number is not None else (before[-1] if before else None)
    have = ", ".join(map(str, numbers)) or "none"
    if chosen is None or chosen not in numbers:
        wanted = f"generation {number}" if number is not None else f"one before {current}"
        raise NearsocketError(f"expected {wanted} to go back to, found {have}", "deploys/site.py applies the settings anew")
    manifest = state.manifest_of(tree, chosen)
    observed, contents = state.observe(tree, chosen, manifest)
    damaged = state.drifted(manifest, observed)
    if damaged:
        raise NearsocketError(
            f"expected generation {chosen} as it was written, found {damaged[0]} changed or gone", f"generations here: {have}"
        )
    for replica in manifest.replicas:
        if not tree.at(replica.model).exists():
            raise NearsocketError(f"expected the model {replica.model} of replica {replica.name}, found none", "bring it back")
        try:
            output = systemctl.run([replica.runtime, "image", "inspect", "--format", "{{.Id}}", replica.image], _ASK_S)
        except CommandTimeout as error:
            raise OSError(str(error)) from None
        if output.code:
            raise NearsocketError(
                f"expected the image {replica.image} of replica {replica.name}, found: {output.error or 'none'}",
                f"{replica.runtime} pull {replica.image}",
            )
    return Generation(manifest, contents), chosen

"""Options that several commands have."""

from __future__ import annotations

import click

from nearsocket.model import cpulist


class Nodes(click.ParamType[frozenset[int]]):
    """A list of nodes such as `0` or `0-1,3`."""

    name = "nodes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        """The set of these nodes."""
        if isinstance(value, frozenset):
            return value
        try:
            nodes = cpulist.parse(str(value))
        except ValueError as error:
            self.fail(f"{error}", param, ctx)
        return nodes or self.fail("expected a list of nodes such as 0 or 0-1,3, found nothing", param, ctx)


#: The user's word on where the GPUs are.
near = click.option("--near", type=Nodes(), metavar="NODES", help="The GPUs' nodes, such as 0 or 0-1, where nothing else tells.")

"""`nearsocket probe`: measures on a host: all-reduce, the restart lottery, prompt reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from nearsocket.commands import options, probing
from nearsocket.control.probe import engines, measure
from nearsocket.control.probe.bases import Wish
from nearsocket.control.probe.engines import Found
from nearsocket.control.probe.measure import AllreduceWish, LotteryWish, Reading
from nearsocket.control.target import Target
from nearsocket.control.transport.process import Children
from nearsocket.model import cpulist
from nearsocket.model.errors import UsageError
from nearsocket.model.probe import planning, sizes
from nearsocket.model.probe.order import Backend
from nearsocket.model.probe.prefill import PrefillOrder
from nearsocket.model.probe.report import ProbeReport
from nearsocket.model.probe.thermal import Limits
from nearsocket.model.text import one_line

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@click.group("probe")
def probe_group() -> None:
    """Measure on a host, and judge by its own figures.

    Exit codes: 0 all pass or not applicable, 1 warnings, 2 failures or refused, 3 a core finding is unknown, 64 wrong usage.
    """


def ranks(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every probe that starts ranks."""
    for option in (
        click.option("--replica", "replicas", multiple=True, metavar="NAME", help="Only this replica; may be repeated."),
        click.option("--python", metavar="PATH", help="Run bare, without a container: a Python on the host that has torch."),
        click.option("--gpus", metavar="LIST", help="With --python: only these GPUs, such as 0,1, counted by PCI address."),
        click.option("--ranks-per-gpu", "each", type=click.IntRange(1, 8), default=1, help="Several ranks on a GPU: a rehearsal."),
        click.option("--backend", type=click.Choice([one.value for one in Backend]), default="nccl", show_default=True),
        click.option("--sizes", "size_list", metavar="LIST", help="Such as 12K,1M,48M; 8 KiB to 256 MiB otherwise."),
        click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the ranks; may be repeated."),
        click.option("--limit-s", type=options.Number(5, 3600), default=300.0, show_default=True, help="Seconds for one start."),
        click.option("--disturb", is_flag=True, help="Measure although somebody holds the GPUs."),
        options.near,
    ):
        command = option(command)
    return probing.common(command)


@probe_group.command()
@click.argument("words", metavar="[TARGET]", nargs=-1)
@click.option("--rounds", type=click.IntRange(1, 50), default=5, show_default=True, help="How often all sizes are gone through.")
@click.option("--contrast", is_flag=True, help="Also forced near and forced far, in turn.")
@click.option("--sweep", multiple=True, metavar="NAME=V,V [NAME=V,V ...]", help="Also each combination of these, in turn.")
@click.option("--passes", type=click.IntRange(2, 50), default=5, show_default=True, help="Starts of each setting in a sweep.")
@click.option("--keep-baseline", "keep", is_flag=True, help="Keep these figures on the host as its baseline.")
@ranks
def allreduce(
    words: tuple[str, ...], rounds: int, contrast: bool, sweep: tuple[str, ...], passes: int, keep: bool, **given: Any
) -> int:
    """Time all-reduces in the replica's image, environment and binding; check every element; judge by the host's baseline.

    TARGET: @local (default), [user@]host, or an inventory with what is served. Without an inventory: --python PATH.
    """
    settings = tuple(word for word in words if "=" in word)
    if settings and not sweep:
        raise UsageError(f"expected one TARGET, found {one_line(settings[0], 60)!r}", "settings stand behind --sweep")
    swept = planning.sweep_settings([*(part for word in sweep for part in word.split()), *settings]) if sweep else ()
    wish = _wish(given, rounds)
    return _run([word for word in words if "=" not in word], wish, AllreduceWish(contrast, swept, passes, keep), given)


@probe_group.command()
@click.argument("words", metavar="[TARGET]", nargs=-1)
@click.option(
    "--draws", type=click.IntRange(1, 200), default=10, show_default=True, help="Starts as configured, and as many naive."
)
@click.option("--fill", is_flag=True, help="Fill the near nodes with page cache before each, as reading weights does.")
@ranks
def lottery(words: tuple[str, ...], draws: int, fill: bool, **given: Any) -> int:
    """Start and end a small group of ranks many times: where do its buffers land, as configured and without any binding?"""
    given["size_list"] = given["size_list"] or "12K,48M"
    return _run(list(words), _wish(given, 1), LotteryWish(draws, fill), given)


@probe_group.command()
@click.argument("words", metavar="[TARGET]", nargs=-1)
@click.option("--replica", metavar="NAME", help="Of an inventory's replicas, this one.")
@click.option("--url", help="The engine, as the host itself reaches it; else the inventory's replica, else port 30000.")
@click.option("--against", metavar="URL", help="A second engine, asked in turn with the first.")
@click.option(
    "--api-key-file",
    "keys",
    multiple=True,
    metavar="FILE",
    help="On the host: the key that the engine wants; a second: --against's.",
)
@click.option("--api", type=click.Choice(["sglang", "openai"]), help="Else the replica's engine's, else SGLang's own.")
@click.option("--lengths", default="9000", show_default=True, help="Tokens of the prompts, such as 9000,37000.")
@click.option("--repeat", type=click.IntRange(1, 100), default=5, show_default=True, help="Prompts of each length in each part.")
@click.option(
    "--bound", type=options.Number(0.01, 50), default=0.5, show_default=True, help="Percent that the two baselines may differ."
)
@click.option("--cached-at-most", type=click.IntRange(0, 64), default=0, help="Tokens that every prompt shares (a BOS token: 1).")
@click.option("--start-below", type=click.IntRange(20, 100), default=65, show_default=True, help="Degrees C to begin at.")
@click.option("--abort-at", type=click.IntRange(30, 110), default=85, show_default=True, help="Degrees C to end at.")
@click.option("--thermal-guard/--no-thermal-guard", "guarded", default=True, help="Watch the GPUs' temperatures by NVML.")
@click.option("--limit-s", type=options.Number(5, 7200), default=1800.0, show_default=True, help="Seconds for all prompts.")
@probing.common
def prefill(
    words: tuple[str, ...],
    replica: str | None,
    url: str | None,
    against: str | None,
    keys: tuple[str, ...],
    api: str | None,
    lengths: str,
    repeat: int,
    bound: float,
    cached_at_most: int,
    start_below: int,
    abort_at: int,
    guarded: bool,
    limit_s: float,
    **given: Any,
) -> int:
    """Time cold prompts against a running engine; void where a token came from its cache."""
    asked = engines.lengths(lengths)
    engines.key_files(keys, 2 if against else 1)
    limits = Limits(start_below, abort_at) if guarded else None

    def act(target: Target, children: Children) -> list[ProbeReport]:
        one = Found(url, "sglang") if url else engines.found(target, replica, given["timeout_s"], children)
        urls = (one.url, against) if against else (one.url,)
        files = engines.key_files(keys, len(urls), one.key_file)
        order = PrefillOrder(urls, api or one.api, asked, repeat, cached_at_most, min(limit_s, 600.0), limit_s, limits, files)
        return [engines.measure(target, order, bound / 100, children)]

    return probing.each(list(words), given, act)


def _wish(given: dict[str, Any], rounds: int) -> Wish:
    variables = {}
    for word in given["variables"]:
        name, equals, value = word.partition("=")
        if not equals or not _VARIABLE.match(name):
            raise UsageError(f"--env: expected NAME=VALUE, found {one_line(word, 60)!r}")
        variables[name] = value
    if given["gpus"] is not None and given["python"] is None:
        raise UsageError("--gpus: expected --python beside it; a replica has its own GPUs")
    return Wish(
        Backend(given["backend"]),
        given["python"],
        _indices(given["gpus"]),
        given["each"],
        sizes.parse(given["size_list"]) if given["size_list"] else sizes.DEFAULT,
        rounds,
        limit_s=given["limit_s"],
        environment=variables,
        replicas=given["replicas"],
    )


def _indices(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(sorted(cpulist.parse(text)))
    except ValueError as error:
        raise UsageError(f"--gpus: {error}") from None
    if not found:
        raise UsageError("--gpus: expected indices such as 0,1, found none")
    return found


def _run(words: Sequence[str], wish: Wish, what: AllreduceWish | LotteryWish, given: dict[str, Any]) -> int:
    reading = Reading(given["timeout_s"], given["near"], given["disturb"])
    return probing.each(words, given, lambda target, children: measure.measure(target, wish, reading, what, children))

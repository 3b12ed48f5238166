"""One rank's process, from its fork to the moment when it holds its communicator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from nearsocket.model import cpulist
from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe import order as orders
from nearsocket.model.probe.order import Lacking, RanksOrder, to_line
from nearsocket.model.text import fault
from nearsocket.onhost.collect.files import text_or_none
from nearsocket.onhost.probe import rank as ranks
from nearsocket.onhost.probe.memory import bind_memory


def live(order: RanksOrder, number: int, port: int, pairs: Mapping[tuple[int, int], Any], writing: int) -> Any:
    """The child's whole life before it holds; what it holds, since buffers go with their owner."""

    def say(event: Any) -> None:
        data = memoryview(to_line(event))
        while data:
            data = data[os.write(writing, data) :]

    backend = None
    try:
        place = order.ranks[number]
        if place.bind:
            bind_memory(place.bind)
            _bind_cpus(place.bind)
        backend = _backend(order, number, port, pairs)
        ranks.work(order, number, backend, say)
    except Lacking as error:
        say({"error": error.message, "lacks": True})
    except NearsocketError as error:
        say({"error": error.message})
    except BaseException as error:  # torch raises what it likes; the parent wants a line
        say({"error": fault(error)})
    return backend


def _backend(order: RanksOrder, number: int, port: int, pairs: Mapping[tuple[int, int], Any]) -> ranks.Backend:
    count, place = len(order.ranks), order.ranks[number]
    if order.backend is orders.Backend.STANDIN:
        from nearsocket.onhost.probe.standin import StandinRank

        peers = {b if a == number else a: pairs[a, b][0 if a == number else 1] for a, b in pairs if number in (a, b)}
        return StandinRank(place, number, count, peers)
    from nearsocket.onhost.probe.torchrank import TorchRank

    return TorchRank(order.backend, place, number, count, port, order.limit_s)


def _bind_cpus(nodes: tuple[int, ...]) -> None:
    """As numactl --cpunodebind: the nodes' CPUs, as far as this process may use them."""
    wanted: set[int] = set()
    for node in nodes:
        wanted |= cpulist.parse(text_or_none(f"/sys/devices/system/node/node{node}/cpulist") or "")
    mine = wanted & os.sched_getaffinity(0)
    if mine:
        os.sched_setaffinity(0, mine)

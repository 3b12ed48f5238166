"""Containers that asked for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from nearsocket.model.check import check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host
from nearsocket.model.verdicts import reloads, scope


@check(id="container.gpus-visible")
def gpus_visible(host: Host) -> Iterator[Finding]:
    """Running containers that asked for GPUs still have them.

    A daemon-reload can strip a running container of its GPUs: what it has open goes on working, what it opens next fails
    ("Failed to initialize NVML: Unknown Error"). From outside it shows as a container without any process on a GPU;
    what a container can open is only seen from inside, and this check goes into none.

    - pass: processes of the container hold GPUs.
    - warn: the container's CDI names are no longer defined, so that it cannot be made anew.
    - fail: it asked for a device or UUID that the host does not have.
    - unknown: no process of it holds a GPU (idle, or stripped), or containers or processes could not be read.
    - not-applicable: no GPU, or no running container asked for one.
    """
    absent = scope.without_gpu(host) or reloads.nothing_to_lose(host)
    if absent:
        yield absent
        return
    for container in reloads.with_gpus(host):
        yield reloads.judge_visible(host, container)

"""Near is the GPUs' socket, the user's word comes first, and what is not known stays unknown."""

from __future__ import annotations

import dataclasses
from typing import Any

from nearsocket.model import near
from nearsocket.model.host import Host, Socket
from tests import build


def four_nodes(**changes: Any) -> Host:
    """Two sockets of two nodes each: 0 and 1 on socket 0, 2 and 3 on socket 1."""
    nodes = tuple(dataclasses.replace(build.node(0), id=n, socket=n // 2) for n in range(4))
    sockets = tuple(Socket(s, (2 * s, 2 * s + 1), build.node(0).cpus) for s in (0, 1))
    return build.host(nodes=nodes, sockets=sockets, **changes)


def test_near_is_the_gpus_own_socket() -> None:
    host = build.host()
    assert near.of_process(host, host.processes[0]) == {1}
    assert near.of_processes(host, host.processes) == {1}
    assert near.of_buffer(host, host.buffers[0]) == {1}
    assert near.of_host(host) == {1}


def test_all_nodes_of_the_socket_are_near_even_where_the_node_itself_is_not_agreed() -> None:
    gpus = (build.gpu(0, node=None, socket=1), build.gpu(1, node=3, socket=1))
    host = four_nodes(gpus=gpus)
    assert near.of_process(host, host.processes[0]) == {2, 3}
    assert near.of_processes(host, host.processes) == {2, 3}


def test_a_group_over_two_sockets_has_both_near_but_each_rank_only_its_own() -> None:
    host = build.host(gpus=(build.gpu(0, node=0, socket=0), build.gpu(1)))
    assert near.of_buffer(host, host.buffers[0]) == {0, 1}
    assert near.of_process(host, host.processes[0]) == {0}
    assert near.of_process(host, host.processes[1]) == {1}


def test_the_users_word_overrides_what_the_host_says() -> None:
    host = build.host(near=frozenset({0}))
    assert near.of_host(host) == near.of_buffer(host, host.buffers[0]) == near.of_processes(host, host.processes) == {0}
    assert near.of_device(host, host.gpus[0]) == near.of_process(host, host.processes[0]) == {0}
    assert near.of_host(build.host(near=frozenset({0}), gpus=(), processes=())) == {0}


def test_one_gpu_without_a_node_makes_the_group_unknown() -> None:
    host = build.host(gpus=(build.gpu(0), build.gpu(1, node=None, socket=None)))
    assert near.of_processes(host, host.processes) is None
    assert near.of_process(host, host.processes[0]) == {1}
    assert near.of_host(host) is None


def test_a_gpu_that_is_not_in_the_list_is_unknown() -> None:
    host = build.host(gpus=(build.gpu(0),))
    assert near.of_process(host, host.processes[1]) is None


def test_no_gpu_is_unknown_not_empty() -> None:
    host = build.host(gpus=(), processes=())
    assert near.of_host(host) is None
    assert near.of_gpus(host, ()) is None


def test_the_node_alone_is_near_where_its_socket_is_not_known() -> None:
    host = build.host(gpus=(build.gpu(0, socket=None), build.gpu(1, socket=9)))
    assert near.of_process(host, host.processes[0]) == {1}
    assert near.of_process(host, host.processes[1]) == {1}


def test_a_helper_without_a_gpu_follows_its_replica() -> None:
    helper = dataclasses.replace(build.process(4244), gpus=(), gpu_bytes={}, buffers=(), rank=None)
    processes = (build.process(4242, 0), build.process(4243, 1), helper)
    host = build.host(processes=processes)
    assert near.of_process(host, helper) == {1}
    stray = dataclasses.replace(helper, pid=77)
    assert near.of_process(host, stray) is None


def test_a_buffer_whose_processes_hold_no_gpu_follows_its_replica() -> None:
    processes = tuple(build.process(4242 + rank, rank, gpus=()) for rank in (0, 1))
    host = build.host(processes=processes, replicas=(build.replica(processes, gpus=(build.gpu(0).pci,)),))
    assert near.of_buffer(host, host.buffers[0]) == {1}
    assert near.of_buffer(host, build.buffer("other1", pids=(1,))) is None


def test_a_gpu_handed_to_a_virtual_machine_does_not_count() -> None:
    host = build.host(gpus=(build.gpu(0, node=0, socket=0, driver="vfio-pci"), build.gpu(1)))
    assert near.of_host(host) == {1}
    assert [gpu.index for gpu in near.usable(host)] == [1]

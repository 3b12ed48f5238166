"""Nodes of one package: one socket under SNC and NPS, several where they are as far apart as sockets are."""

from __future__ import annotations

from nearsocket.model.host import Host
from nearsocket.model.near import one_socket
from nearsocket.model.read import host
from tests.snapshots import base, machine
from tests.snapshots.machine import NodeSpec


def one_package(distances: tuple[str, ...], cpus: tuple[str, ...] = ("0-7", "8-15")) -> Host:
    specs = tuple(NodeSpec(at, cpus[at], text) for at, text in enumerate(distances))
    files = machine.cpu_files({0: f"{cpus[0].split('-')[0]}-{cpus[-1].split('-')[1]}"})
    return host(base.host(sources={"nodes": machine.node_files(specs), "cpus": files}))


def test_nodes_of_one_package_as_far_apart_as_sockets_are_sockets() -> None:
    made = one_package(("10 20", "20 10"))
    assert [node.socket for node in made.nodes] == [0, 1] and not one_socket(made)
    assert [(socket.id, socket.nodes, len(socket.cpus)) for socket in made.sockets] == [(0, (0,), 8), (1, (1,), 8)]
    assert any("as far from its other nodes as a socket" in note for note in made.notes)


def test_nodes_of_one_package_at_snc_distances_stay_one_socket() -> None:
    for near_by in ("12", "17", "19"):
        made = one_package((f"10 {near_by}", f"{near_by} 10"))
        assert [node.socket for node in made.nodes] == [0, 0]
        assert not any("as far" in note for note in made.notes)


def test_four_nodes_of_one_package_are_cut_where_they_are_far() -> None:
    rows = ("10 12 21 21", "12 10 21 21", "21 21 10 12", "21 21 12 10")
    made = one_package(rows, ("0-3", "4-7", "8-11", "12-15"))
    assert [node.socket for node in made.nodes] == [0, 0, 1, 1]

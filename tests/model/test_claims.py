"""What sources say about a device's node, and what they agree on."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model.host import Node, NodeClaim
from nearsocket.model.read import claims
from nearsocket.model.read.claims import Place
from nearsocket.model.read.notes import NOTES_MAX, Notes, quoted
from tests import build

#: Four nodes of four CPUs, two a socket.
NODES = tuple(dataclasses.replace(build.node(0), id=n, socket=n // 2, cpus=frozenset(range(4 * n, 4 * n + 4))) for n in range(4))
ONE = (dataclasses.replace(NODES[0]),)


def agree(*said: NodeClaim, nodes: tuple[Node, ...] = NODES) -> tuple[Place, tuple[str, ...]]:
    notes = Notes()
    return claims.agree("GPU x", said, nodes, notes), notes.lines()


def number(text: str, nodes: tuple[Node, ...] = NODES) -> NodeClaim:
    return claims.by_number("sysfs", text, nodes)


def cpus(text: str, nodes: tuple[Node, ...] = NODES) -> NodeClaim:
    return claims.by_cpus("nvml", text, nodes)


@pytest.mark.parametrize(
    ("claim", "node", "named"),
    [
        (number("2"), 2, {2}),
        (number("2\n"), 2, {2}),
        (number("2-3"), None, {2, 3}),
        (number("1-2"), None, set()),
        (number("-1"), None, set()),
        (number("N/A"), None, set()),
        (number("9"), None, set()),
        (number(""), None, set()),
        (cpus("4-7"), 1, {1}),
        (cpus("5"), 1, {1}),
        (cpus("0-7"), None, {0, 1}),
        (cpus("0-15"), None, set()),
        (cpus("90"), None, set()),
        (cpus("x"), None, set()),
        (cpus(""), None, set()),
    ],
)
def test_a_claim_names_one_node_several_of_a_socket_or_none(claim: NodeClaim, node: int | None, named: set[int]) -> None:
    assert (claim.node, set(claim.nodes)) == (node, named)


def test_the_text_is_kept_as_read() -> None:
    assert number("-1").text == "-1" and cpus("0-15").text == "0-15"


def test_claims_that_name_one_node_agree() -> None:
    assert agree(number("2"), cpus("8-11")) == (Place(2, 1), ())


def test_a_source_that_says_none_does_not_disagree() -> None:
    assert agree(number("-1"), cpus("8-11")) == (Place(2, 1), ())


def test_the_node_inside_the_sockets_list_is_the_node() -> None:
    assert agree(number("3"), cpus("8-15")) == (Place(3, 1), ())


def test_a_sockets_list_alone_settles_the_socket_and_not_the_node() -> None:
    assert agree(number("-1"), cpus("8-15")) == (Place(None, 1), ())


def test_two_nodes_of_one_socket_disagree_on_the_node_alone() -> None:
    place, notes = agree(number("2"), cpus("12-15"))
    assert place == Place(None, 1)
    assert notes == ("topology: GPU x: sources disagree on its node (sysfs says '2', nvml says '12-15')",)


def test_two_sockets_disagree_on_both() -> None:
    assert agree(number("0"), cpus("12-15"))[0] == Place(None, None)
    assert agree(number("0"), cpus("8-15"))[0] == Place(None, None)


def test_no_word_on_a_host_with_several_nodes_is_not_known() -> None:
    place, notes = agree(number("-1"), cpus("0-15"))
    assert place == Place(None, None) and len(notes) == 1
    assert agree()[1] == ("topology: GPU x: no source names its node (none was read)",)


def test_no_word_on_a_host_with_one_node_is_that_node_with_a_note() -> None:
    place, notes = agree(number("-1", ONE), nodes=ONE)
    assert place == Place(0, 0)
    assert notes == ("topology: GPU x: no source names its node; the host has one node, 0",)


def test_no_word_on_a_host_without_nodes_needs_no_note() -> None:
    assert agree(nodes=()) == (Place(None, None), ())


def test_notes_are_few_and_each_stands_once() -> None:
    notes = Notes()
    for n in range(NOTES_MAX * 2):
        notes.add("a", str(n // 2))
    assert len(notes.lines()) == NOTES_MAX and notes.lines()[:2] == ("a: 0", "a: 1")
    assert quoted("\x1b[1m\n") == "'\\x1b[1m\\n'" and quoted({"a": 1}) == "'dict'" and quoted(None) == "None"

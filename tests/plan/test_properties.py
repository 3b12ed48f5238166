"""What holds for every plan, whatever the host and the wishes."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearsocket.control.render import render
from nearsocket.model.generation import Record, from_json
from nearsocket.model.host import Engine, Host
from nearsocket.model.plan import cpus
from nearsocket.model.plan.make import plan
from nearsocket.model.settings import GIB, Layer, ReplicaSettings, Settings
from nearsocket.model.verdicts.scope import one_socket
from tests.plan.hosts import machines, replica
from tests.plan.rendered import TEMPLATES

LAYERS = st.none() | st.sets(st.sampled_from(Layer)).map(frozenset)


@st.composite
def wishes(draw: st.DrawFn) -> Settings:
    """Up to four replicas, by count or by index, with any binding."""
    made: list[ReplicaSettings] = []
    for name in "abcd"[: draw(st.integers(0, 4))]:
        words = draw(st.none() | st.lists(st.integers(0, 9).map(str), min_size=1, max_size=4))
        made.append(
            replica(
                name,
                gpus=words,
                count=draw(st.integers(1, 4)),
                engine=draw(st.sampled_from(Engine)),
                binding=draw(LAYERS),
                host_memory_bytes=draw(st.none() | st.integers(1, 600).map(lambda size: size * GIB)),
            )
        )
    return Settings(tuple(made))


SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SLOW
@given(machines(), wishes())
def test_every_plan_keeps_its_promises(host: Host, wanted: Settings) -> None:
    made = plan(host, wanted)
    assert made == plan(host, wanted)
    refused = {refusal.subject for refusal in made.refusals}
    placed = {one.name for one in made.replicas}
    assert {one.name for one in wanted.replicas} <= placed | refused
    assert all(refusal.reason and refusal.hint and "\n" not in refusal.reason for refusal in made.refusals)
    taken = [gpu.pci for one in made.replicas for gpu in one.gpus]
    assert len(taken) == len(set(taken))
    given_cpus = [cpu for one in made.replicas for cpu in one.cpus]
    assert len(given_cpus) == len(set(given_cpus))
    ports = [one.port for one in made.replicas if one.settings.port is None]
    assert len(ports) == len(set(ports))
    siblings = cpus.siblings(host)
    for one in made.replicas:
        sockets = {host.gpu(gpu.pci).socket for gpu in one.gpus}  # type: ignore[union-attr]
        assert set(one.sockets) == sockets
        assert all(host.socket_of(node) in sockets for node in one.near | one.memory_nodes)
        for node in map(host.node, one.near):
            assert node is not None
            assert not node.memoryless
            assert node.cpus
        for cpu in one.cpus:
            assert siblings[cpu] <= one.cpus
        if len(sockets) > 1:
            assert one.shm is None
            assert not one.uses(Layer.NUMACTL)
            assert not one.uses(Layer.CPUSET)
        if one.name not in refused:
            assert one.cpus
            asked = one.settings.binding
            several = not one_socket(host)
            held = any(state.used for state in one.layers)
            assert held or asked == frozenset() or not several
            assert asked is None or {state.layer for state in one.layers if state.used} <= asked
            assert len(sockets) == 1 or not held or one.uses(Layer.PER_RANK)


@SLOW
@given(machines(), st.integers(1, 4))
def test_the_shares_of_a_socket_differ_by_a_core_at_most_and_the_system_keeps_one(host: Host, count: int) -> None:
    socket = host.sockets[0].id
    names = [str(n) for n in range(count)]
    shares = cpus.share(host, dict.fromkeys(names, (socket,)), {})
    every = cpus.cores(host, socket)
    if len(every) < count:
        assert shares.short == ((socket, len(every), tuple(names)),)
        return
    sizes = [sum(core <= share.cpus for core in every) for share in shares.of.values()]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert bool(shares.system) is (len(every) > count)
    assert sum(sizes) + sum(core <= shares.system for core in every) == len(every)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(machines(), wishes())
def test_what_can_be_planned_can_be_rendered_and_read_back(host: Host, wanted: Settings) -> None:
    made = plan(host, wanted)
    if made.refused:
        return
    generation = render(made, Record("me", "2026-01-31T12:00:00Z", "0"), TEMPLATES)
    assert from_json(generation.manifest.to_json()) == generation.manifest
    assert {entry.path for entry in generation.manifest.files} == set(generation.contents)
    assert render(made, Record("other", "", "1"), TEMPLATES).manifest.digest == generation.manifest.digest


@SLOW
@given(machines(), wishes())
def test_an_automatic_choice_stays_on_one_socket_where_one_is_large_enough(host: Host, wanted: Settings) -> None:
    sizes = {s.id: sum(gpu.socket == s.id for gpu in host.gpus) for s in host.sockets}
    for one in plan(host, wanted).replicas:
        if not one.settings.gpus.wanted and max(sizes.values()) >= len(one.gpus):
            assert len(one.sockets) == 1

"""What must hold for the shared verdicts whatever sources say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.finding import Status
from nearsocket.model.host import Mount, NodeClaim, PciLink
from nearsocket.model.verdicts.gpunode import judge_claims
from nearsocket.model.verdicts.mountpolicy import judge_policy
from nearsocket.model.verdicts.pcie import judge_link
from tests import build

NODES = st.integers(0, 5)
CLAIMS = st.builds(
    lambda source, node, spans, text: NodeClaim(source, node, text, spans if node is None else frozenset({node})),
    st.sampled_from(["sysfs", "nvml", "nvidia-smi topo"]),
    st.none() | NODES,
    st.frozensets(NODES, max_size=4),
    st.text(max_size=12),
)
SOCKETS = st.dictionaries(NODES, st.none() | st.integers(0, 1), max_size=6)
LINKS = st.builds(
    PciLink,
    st.none() | st.sampled_from([2.5, 8.0, 16.0, 32.0]),
    st.none() | st.sampled_from([0, 1, 8, 16, 63, 255]),
    st.none() | st.sampled_from([2.5, 16.0, 32.0]),
    st.none() | st.sampled_from([0, 1, 8, 16, 63, 255]),
)


@given(st.lists(CLAIMS, max_size=4), SOCKETS)
def test_a_gpus_node_passes_only_where_no_two_sources_name_different_sockets(
    claims: list[NodeClaim], sockets: dict[int, int | None]
) -> None:
    finding = judge_claims("GPU 0", claims, sockets)
    assert finding.evidence
    assert finding.summary.isprintable()
    named = {claim.node for claim in claims if claim.node is not None}
    if finding.status is Status.PASS and len(sockets) != 1:
        assert len(named) <= 1
    if len(named) > 1 and len(sockets) != 1:
        assert finding.status in (Status.FAIL, Status.WARN)
    if not claims and len(sockets) != 1:
        assert finding.status is not Status.PASS


@given(
    LINKS,
    st.lists(LINKS, max_size=4),
    st.dictionaries(st.sampled_from(["gen", "width", "max_gen", "max_width"]), st.none() | st.integers(0, 300)),
)
def test_a_link_passes_only_at_the_gpus_full_width(own: PciLink, above: list[PciLink], nvml: dict[str, int | None]) -> None:
    bridges = tuple(f"0000:0{n}:01.0" for n in range(len(above)))
    gpu = build.gpu(0, link=own, bridges=bridges, bridge_links=dict(zip(bridges, above, strict=True)))
    finding = judge_link(gpu, nvml)
    if finding.status is Status.PASS and own.width in (1, 8, 16) and own.max_width in (1, 8, 16):
        assert own.width >= own.max_width


@given(
    st.text(max_size=20) | st.from_regex(r"(bind|prefer|interleave)(=static)?:[0-5](-[0-5])?", fullmatch=True),
    st.frozensets(NODES, min_size=1),
)
def test_a_mounts_policy_passes_only_where_every_node_it_names_is_near(policy: str, near: frozenset[int]) -> None:
    finding = judge_policy("a mount", Mount("/dev/shm", "tmpfs", "shm", (), policy), near)
    if finding.status is Status.PASS:
        first, _, last = policy.rpartition(":")[2].partition("-")
        assert set(range(int(first), int(last or first) + 1)) <= near

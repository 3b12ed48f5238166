"""A generation in force that cannot be read while its replicas are held: named, with a way out that ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nearsocket.model.driver.orders import Action, Phase
from nearsocket.onhost.reprovision import kept
from tests.onhost.apply.made import Host as Installation
from tests.onhost.apply.made import generation
from tests.onhost.reprovision.conftest import UNITS, Site, records, waiting
from tests.onhost.reprovision.standin import NEW
from tests.onhost.reprovision.test_steps import WHOLE


@pytest.mark.parametrize("damage", [lambda data: data[:50], lambda data: b"\xff\xfe" + data, lambda _data: b""])
def test_half_a_manifest_is_named_by_every_step_and_the_way_out_that_is_named_ends_the_upgrade(
    site: Site, damage: Callable[[bytes], bytes]
) -> None:
    site.good(*WHOLE[1:5])
    path = site.tree.current / "manifest.json"
    path.write_bytes(damage(path.read_bytes()))
    for action in (Action.STATUS, Action.START, Action.BACK, Action.AFTER):
        answer = site.do(action, replica="a")
        assert str(answer.error).startswith("generation 1, the one in force, cannot be read: ")
        assert "hold-starts there (where it is there), deploys/site.py or deploys/rollback.py, then --resume" in str(answer.hint)
    assert (site.versions, kept.held(site.tree), site.state.back) == ({NEW}, ("a", "b"), False)
    installation = Installation(site.root)
    installation.system = site.machine
    made = generation({name: waiting(name) for name in "ab"}, extra=records("a", "b"))
    assert "a driver upgrade to" in str(installation.apply(made).error)
    kept.let_all_go(site.tree)  # rm -r
    assert installation.apply(made).error is None
    site.good(*WHOLE[1:])
    assert (site.up, site.state.phase, site.versions) == (set(UNITS), Phase.DONE, {NEW})


def test_a_start_record_that_is_no_text_is_a_note(site: Site) -> None:
    site.good(*WHOLE[1:4])
    (site.tree.current / "replicas/a.json").write_bytes(b"\xff\xfe{")
    assert "replica a: whether its container sees its GPUs is not known: its start record: " in site.good(Action.AFTER).notes[1]

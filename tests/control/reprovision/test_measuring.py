"""All-reduces after an upgrade: held against the figures of the driver before, for the same GPUs, image, NCCL and host."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.control.probe.bases import Wish
from nearsocket.control.reprovision import measuring
from nearsocket.control.reprovision.measuring import Compared
from nearsocket.control.rollout.job import Place
from nearsocket.control.target import Ssh, Target, Way
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Evidence, Finding, Status
from nearsocket.model.probe import planning
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.report import ProbeReport
from nearsocket.model.probe.series import Series
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from tests.onhost.reprovision.standin import NEW, OLD
from tests.plan.hosts import asked, replica

OLD_KEY = Key("sha256:ab", OLD, "2.30.7", "engine", "nccl", ("0000:c1:00.0", "0000:e1:00.0"))
SIZE = 1 << 20


def series(*rounds: float) -> tuple[Series, ...]:
    return (Series(SIZE, 2, rounds, max(rounds)),)


def snapshot(*kept: Baseline) -> Snapshot:
    source = Source(SourceStatus.OK, data=[one.to_json() for one in kept])
    return Snapshot("r1", "2026-01-01T00:00:00Z", None, {}, {}, {"baselines": source})


def kept(*rounds: float, at: str = "2026-01-01T00:00:00Z", **key: Any) -> Baseline:
    return Baseline(dataclasses.replace(OLD_KEY, **key), at, series(*rounds))


class Measured:
    """What the host measures now, and what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.report = ProbeReport("r1", "a", "allreduce", (), {planning.CONFIGURED: series(100.0, 101.0)})
        self.report = dataclasses.replace(self.report, key=dataclasses.replace(OLD_KEY, driver=NEW))
        self.wishes: list[Wish] = []
        self.pauses: list[float] = []
        self.later: list[ProbeReport] = []
        monkeypatch.setattr(measuring, "measure", self._measure)

    def _measure(self, _target: Target, wish: Wish, *_: Any) -> list[ProbeReport]:
        self.wishes.append(wish)
        return [self.later.pop(0) if self.later and len(self.wishes) > 1 else self.report]

    def against(self, before: Snapshot) -> tuple[str, ...]:
        return self.compared(before).notes

    def compared(self, before: Snapshot) -> Compared:
        target = Target("r1", Way.SSH, ssh=Ssh("r1"), settings=asked(replica("a", port=30000)))
        place = Place(target, None, Children())  # type: ignore[arg-type]
        return measuring.compared(place, before, OLD, 60.0, pause=self.pauses.append)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Measured:
    return Measured(monkeypatch)


def test_as_fast_as_with_the_driver_before_is_a_note_and_the_kept_sizes_are_measured(now: Measured) -> None:
    notes = now.against(snapshot(kept(99.0, 102.0)))
    assert len(notes) == 1
    assert notes[0].startswith("replica a: all-reduces as fast as its baseline at 1 sizes")
    assert [(wish.sizes, wish.replicas) for wish in now.wishes] == [((SIZE,), ("a",))]


@pytest.mark.parametrize("rounds", [(40.0, 41.0), (85.0, 86.0)], ids=["far", "a little"])
def test_slower_beyond_the_noise_is_a_failure_however_little(now: Measured, rounds: tuple[float, ...]) -> None:
    with pytest.raises(NearsocketError, match="all-reduces are slower than with the driver before"):
        now.against(snapshot(kept(*rounds)))
    assert (len(now.wishes), now.pauses) == (3, [20.0, 20.0]), "measured again before a driver is taken back for it"


def test_slower_once_is_measured_again_and_noted(now: Measured) -> None:
    """Whatever goes on behind a boot takes time from ranks too; it ends."""
    now.later = [dataclasses.replace(now.report, tables={planning.CONFIGURED: series(85.0, 86.0)})]
    found = now.compared(snapshot(kept(85.0, 86.0)))
    assert len(now.wishes) == 2
    assert "slower than with the driver before" in found.notes[0]
    assert found.notes[0].endswith("; measured again")
    assert "as fast as its baseline" in found.notes[1]
    assert found.good == ("a",)


def test_wrong_sums_are_not_measured_again(now: Measured) -> None:
    wrong = Finding("probe.allreduce", Status.FAIL, "a", "wrong sums", (Evidence("rank 0", "one"),), "look")
    now.report = dataclasses.replace(now.report, findings=(wrong,))
    with pytest.raises(NearsocketError):
        now.against(snapshot())
    assert len(now.wishes) == 1


def test_other_gpus_images_or_nccls_figures_are_not_held_against_it(now: Measured) -> None:
    others = [kept(10.0, gpus=("0000:01:00.0",)), kept(10.0, image="other"), kept(10.0, nccl="2.23.4"), kept(10.0, fingerprint="x")]
    assert "no baseline" in now.against(snapshot(*others))[0]


def test_of_several_drivers_figures_the_one_before_counts(now: Measured) -> None:
    older = kept(10.0, 11.0, at="2027-01-01T00:00:00Z", driver="535.1.2")
    assert "as fast as" in now.against(snapshot(older, kept(100.0, 101.0)))[0]


def test_wrong_sums_are_a_failure_without_any_figures(now: Measured) -> None:
    wrong = Finding("probe.allreduce", Status.FAIL, "a", "wrong sums", (Evidence("rank 0", "one"),), "look")
    now.report = dataclasses.replace(now.report, findings=(wrong,))
    with pytest.raises(NearsocketError, match="fail: wrong sums"):
        now.against(snapshot())


def test_a_host_that_serves_nothing_is_not_measured(now: Measured) -> None:
    place = Place(Target("r1", Way.SSH, ssh=Ssh("r1")), None, Children())  # type: ignore[arg-type]
    assert measuring.compared(place, snapshot(), OLD, 60.0) == Compared(("nothing is served there: no all-reduce was measured",))
    assert now.wishes == []


def test_what_cannot_be_measured_says_nothing_of_the_driver(now: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> list[ProbeReport]:
        raise NearsocketError("r1: expected 2 to 16 ranks, found 1")

    monkeypatch.setattr(measuring, "measure", refused)
    told = "replica a: no all-reduce was measured: r1: expected 2 to 16 ranks, found 1"
    assert now.compared(snapshot()) == Compared((told,))


def test_an_image_without_torch_is_a_note(now: Measured) -> None:
    void = Finding("probe.allreduce", Status.UNKNOWN, "a", "it could not run: no torch", (Evidence("rank 0", "one"),), "look")
    now.report = dataclasses.replace(now.report, findings=(void,), tables={})
    assert now.compared(snapshot()) == Compared(("replica a: no all-reduce was measured: it could not run: no torch",))


def test_whose_sums_were_right_has_good_all_reduces_with_figures_to_compare_or_without(now: Measured) -> None:
    assert now.compared(snapshot(kept(99.0, 102.0))).good == ("a",)
    assert now.compared(snapshot()).good == ("a",)

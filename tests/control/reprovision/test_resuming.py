"""What a deploy inside pyinfra makes of the record that an earlier rollout left on its host."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.control.reprovision.deploy import _to_resume
from nearsocket.control.reprovision.job import Reprovision
from nearsocket.control.rollout.run import Manner
from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout.progress import Phase, Progress
from tests.onhost.reprovision.standin import NEW, OLD

JOB = Reprovision(NEW, "ops", ())
LEFT = Progress("0123456789ab", "reprovision", "them@there", "2030-01-01T00:00:00Z", "r2", {"r1": NEW, "r2": NEW}, OLD)
MINE = Manner("ops")


def test_a_host_that_is_at_the_end_of_its_rollout_is_nobodys() -> None:
    assert _to_resume(None, "r2", JOB, MINE) is None
    assert _to_resume(LEFT.at(Phase.VERIFIED), "r2", JOB, MINE) is None


@pytest.mark.parametrize("phase", [Phase.BEGUN, Phase.APPLIED, Phase.FAILED, Phase.ROLLED_BACK])
def test_one_that_is_not_is_refused_until_somebody_says_what_to_do(phase: Phase) -> None:
    left = LEFT.at(phase)
    with pytest.raises(NearsocketError, match="found reprovision 0123456789ab by them@there") as refused:
        _to_resume(left, "r2", JOB, MINE)
    assert "--data resume=true goes on with it" in str(refused.value.hint)
    assert "--data anew=true begins anew" in str(refused.value.hint)
    assert _to_resume(left, "r2", JOB, dataclasses.replace(MINE, resume=True)) == left
    assert _to_resume(left, "r2", JOB, dataclasses.replace(MINE, anew=True)) is None
    assert _to_resume(left, "r2", JOB, dataclasses.replace(MINE, check=True)) is None


def test_another_jobs_or_another_drivers_rollout_is_not_gone_on_with() -> None:
    mine = dataclasses.replace(MINE, resume=True)
    with pytest.raises(NearsocketError, match="expected to resume a rollout of 'reprovision', found site"):
        _to_resume(dataclasses.replace(LEFT, job="site"), "r2", JOB, mine)
    with pytest.raises(NearsocketError, match="expected the inventory that rollout 0123456789ab began with"):
        _to_resume(LEFT, "r2", dataclasses.replace(JOB, to=OLD), mine)

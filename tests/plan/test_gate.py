"""How a runtime hands out GPUs, and what is refused where it cannot."""

from __future__ import annotations

import pytest

from nearsocket.model import read
from nearsocket.model.plan.make import plan
from nearsocket.model.plan.runtime import gpu_gate
from nearsocket.model.plan.values import Gate
from nearsocket.model.settings import Runtime
from tests.plan.hosts import CDI_INFO, asked, four_on_one_socket, replica
from tests.snapshots.base import absent


def test_docker_with_cdi_and_no_file_for_it_takes_gpus_by_request() -> None:
    host = read.host(four_on_one_socket(cdi=False, **{"docker.info": CDI_INFO}))
    assert gpu_gate(host, Runtime.DOCKER, host.gpus)[0] is Gate.GPUS
    assert gpu_gate(host, Runtime.PODMAN, host.gpus)[0] is Gate.CDI_INDEX


@pytest.mark.parametrize(("cdi", "toolkit", "refused"), [(False, False, True), (False, True, False), (True, False, False)])
def test_a_docker_by_which_no_container_gets_a_gpu_is_refused(cdi: bool, toolkit: bool, refused: bool) -> None:
    without = {} if toolkit else {"container.toolkit": absent("no nvidia-ctk")}
    made = plan(read.host(four_on_one_socket(cdi=cdi, **without)), asked(replica()))
    assert bool(made.refused) == refused
    if refused:
        [one] = made.refusals
        assert "--gpus needs, is not there" in one.reason
        assert "cdi-spec-dirs" in str(one.hint)

"""Equal container ids, and the unit that runs a container."""

from __future__ import annotations

import pytest

from nearsocket.model.containment import same_container, unit_of
from tests import build

LONG = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (LONG, LONG, True),
        (LONG, LONG[:12], True),
        (LONG[:12], LONG, True),
        (LONG, LONG[:11], False),
        (LONG, "", False),
        (None, None, False),
        (LONG, "f" * 12, False),
    ],
)
def test_a_short_form_of_twelve_digits_names_the_container(one: str | None, other: str | None, same: bool) -> None:
    assert same_container(one, other) is same


@pytest.mark.parametrize(
    "command",
    [
        "/usr/bin/docker run --name sglang x",
        "/usr/bin/podman start -a sglang",
        "docker run --name=sglang x",
        "nerdctl restart sglang",
    ],
)
def test_the_unit_that_names_the_container_runs_it(command: str) -> None:
    found = unit_of(build.container(), (build.unit(id="other.service", exec_start="/bin/x sglang"), build.unit(exec_start=command)))
    assert found is not None and found.id == "sglang.service"


def test_an_active_unit_comes_before_one_that_is_not() -> None:
    command = "docker run --name sglang x"
    units = (build.unit(id="old.service", active="inactive", exec_start=command), build.unit(exec_start=command))
    found = unit_of(build.container(), units)
    assert found is not None and found.id == "sglang.service"


def test_an_image_counts_only_where_one_active_unit_alone_names_it() -> None:
    box = build.container(name="by-chance")
    assert unit_of(box, (build.unit(),)) == build.unit()
    assert unit_of(box, (build.unit(), build.unit(id="b.service"))) is None
    assert unit_of(box, (build.unit(active="inactive"),)) is None
    assert unit_of(None, (build.unit(),)) is None

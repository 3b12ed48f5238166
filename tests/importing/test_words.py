"""How an engine's command is read: where its model stands, what is the plan's business, what is never guessed."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control.importing import words
from nearsocket.control.importing.engines import read_engines
from nearsocket.model.host import Engine
from tests import build
from tests.importing.inspects import SGLANG, docker, host


@pytest.mark.parametrize(
    ("rest", "arguments"),
    [
        (["--numa-bind", "MODEL"], ()),
        (["--numa-bind-nodes", "0", "1", "--numa-bind", "MODEL"], ()),
        (["--port", "8000", "MODEL"], ()),
        (["--host", "::", "--trust-remote-code", "MODEL", "--seed", "1"], ("--trust-remote-code", "--seed", "1")),
        (["--max-model-len=4096", "MODEL"], ("--max-model-len=4096",)),
        (["--enable-prefix-caching", "--tensor-parallel-size", "2", "MODEL"], ("--enable-prefix-caching",)),
    ],
)
def test_vllms_model_is_found_behind_options(rest: list[str], arguments: tuple[str, ...]) -> None:
    command = ["vllm", "serve", *("/srv/models/glm" if word == "MODEL" else word for word in rest)]
    (engine,) = read_engines(host(docker(command))).found
    assert (engine.model, engine.arguments, engine.command) == ("/srv/models/glm", arguments, ())


def test_a_word_that_may_be_an_options_value_is_no_model() -> None:
    found = read_engines(host(docker(["vllm", "serve", "--served-model-name", "a", "/srv/models/glm"])))
    assert (found.found, found.lost) == ((), 1)
    assert any("name it first, or by --model" in left.reason for left in found.left)


def test_an_engine_behind_a_shell_is_lost_and_said() -> None:
    inspected = docker(["bash", "-c", "python3 -m sglang.launch_server --model-path /srv/models/glm"])
    base = host(inspected)
    ranks = tuple(build.process(pid, container=inspected["Id"], engine=Engine.SGLANG) for pid in (4001, 4002))
    running = build.replica(ranks, name="glm-main", container=inspected["Id"])
    found = read_engines(dataclasses.replace(base, processes=ranks, replicas=(running,)))
    assert (found.found, found.lost) == ((), 1)
    (left,) = [left for left in found.left if left.what.startswith("the engine behind the command 'bash -c")]
    assert "give them as the container's command" in left.reason


def test_numactl_in_front_is_the_plans_business() -> None:
    found = read_engines(host(docker(["numactl", "-N", "1", "--membind=1", *SGLANG])))
    assert found.found[0].command == ()
    assert "numactl -N 1 --membind=1" in {left.what for left in found.left}


@given(
    st.lists(
        st.sampled_from(["--tp", "2", "--port", "80", "--host", "x", "--a=b", "<redacted>", "--api-key", "", "-x", "m"]),
        max_size=12,
    )
)
def test_no_word_of_a_command_is_lost_but_those_that_are_told(rest: list[str]) -> None:
    found = words.parse(["python3", "-m", "sglang.launch_server", *rest], 2)
    if found is None:
        return
    assert not any("<redacted>" in word for word in (*found.whole, *found.rest))
    kept = [word for word in found.whole if word in rest]
    assert len(kept) + rest.count("<redacted>") + len(found.hidden) >= len(rest)

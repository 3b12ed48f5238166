"""The reviewed renderings: name to generation. `python -m tests.plan` writes them anew; the difference is then reviewed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from nearsocket.control import fleet
from nearsocket.control.planning import files
from nearsocket.control.render import render
from nearsocket.model import read
from nearsocket.model.generation import Generation, Record
from nearsocket.model.host import Engine, Host
from nearsocket.model.plan.make import plan
from nearsocket.model.settings import Hooks, Layer, OnChange, OnFar, Relief, Runtime, Settings, TuneSettings, Verify
from tests.plan.hosts import asked, eight, four_on_one_socket, replica
from tests.snapshots.machines import snc4

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "data" / "plan"
RECIPE = ROOT / "inventories" / "recipes" / "glm-5.3-flash-sglang.yaml"
RECORD = Record("", "", "0")
TEMPLATES = ROOT / "templates"


def made(host: Host, settings: Settings) -> Generation:
    """The generation of these settings on that host."""
    wanted = plan(host, settings)
    assert not wanted.refused, wanted.refusals
    return render(wanted, RECORD, TEMPLATES)


def recipe() -> Settings:
    """What the recipe asks for."""
    settings = fleet.read(RECIPE).targets[0].settings
    assert settings is not None
    return settings


def recipe_docker() -> Generation:
    """The recipe as it is, on a Docker with CDI."""
    return made(read.host(four_on_one_socket()), recipe())


def recipe_podman() -> Generation:
    """The recipe under podman."""
    settings = recipe()
    replicas = tuple(dataclasses.replace(one, runtime=Runtime.PODMAN) for one in settings.replicas)
    return made(read.host(four_on_one_socket()), dataclasses.replace(settings, replicas=replicas))


def recipe_old_docker() -> Generation:
    """The recipe on a Docker without CDI: `--gpus`."""
    return made(read.host(four_on_one_socket(cdi=False)), recipe())


def over_two_sockets() -> Generation:
    """Eight GPUs over two sockets under vLLM: bound rank by rank, no mount; the host tuned."""
    one = replica("wide", count=8, engine=Engine.VLLM, on_change=OnChange.REFUSE, relief=Relief.NEAR)
    return made(eight(), asked(one, tune=TuneSettings(numa_balancing=0, zone_reclaim_mode=1, transparent_hugepages="madvise")))


def awkward(policy: OnFar = OnFar.WARN) -> Generation:
    """Four nodes a socket; values with everything that a grammar could trip over; secrets, hooks, a cpuset."""
    one = replica(
        "odd",
        binding=frozenset({Layer.CPUSET, Layer.SHM}),
        model="/srv/model's/50% $off",
        arguments=("--chat-template={{ 'a' }} \\ \"b\" %n $HOME ${X}", "", ";", "ä"),
        environment={"PROMPT": "100 % \"quoted\" $HOME 'x' \\n #"},
        secrets={"HF_TOKEN": "/etc/secrets/hf"},
        mounts=("/srv/cache:/cache:rw",),
        hooks=Hooks(("/usr/local/bin/lb", "drain", "a b"), ("/usr/local/bin/lb", "undrain")),
        listen="0.0.0.0",
        verify=Verify(policy),
    )
    return made(read.host(snc4()), asked(one))


CASES: Mapping[str, Callable[[], Generation]] = {
    "recipe-docker": recipe_docker,
    "recipe-podman": recipe_podman,
    "recipe-old-docker": recipe_old_docker,
    "over-two-sockets": over_two_sockets,
    "awkward": awkward,
}


def write_all() -> None:
    """Write every case's files."""
    for name, make in CASES.items():
        for path, content in files(make()).items():
            target = FOLDER / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

"""Engines that are defined and do not run are told and never imported; so is what a compose file says otherwise by now."""

from __future__ import annotations

from typing import Any

import pytest

from nearsocket.control.importing.engines import read_engines
from nearsocket.control.importing.values import Import, Left
from nearsocket.model import read
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from nearsocket.onhost.collect import composefile, containers, defined
from tests.importing.inspects import docker, snapshot

FILE = "/srv/llm/compose.yaml"
SGLANG = ["python3", "-m", "sglang.launch_server", "--model-path", "/srv/models/glm", "--tp", "2"]
#: As docker compose v2.29 labels a container.
LABELS = {
    "com.docker.compose.config-hash": "0" * 64,
    "com.docker.compose.container-number": "1",
    "com.docker.compose.depends_on": "db:service_started:false,cache:service_healthy:true",
    "com.docker.compose.image": "sha256:" + "a" * 64,
    "com.docker.compose.oneoff": "False",
    "com.docker.compose.project": "llm",
    "com.docker.compose.project.config_files": FILE,
    "com.docker.compose.project.working_dir": "/srv/llm",
    "com.docker.compose.service": "glm",
    "com.docker.compose.version": "2.29.7",
}
YAML = """services:
  glm:
    image: lmsysorg/sglang:v0.5.23
    command: python3 -m sglang.launch_server --model-path /srv/models/glm --tp 2
    restart: unless-stopped
  db:
    image: postgres:16
"""


def told(*running: dict[str, Any], stopped: tuple[dict[str, Any], ...] = (), text: str = YAML, units: Any = ()) -> Import:
    """What an import says of a host with these containers, that compose file and these units at rest."""
    whole = snapshot(*running)
    at_rest = [{key: containers.describe("docker", one)[key] for key in defined._KEPT} for one in stopped]
    more = {
        "containers.stopped": Source(SourceStatus.OK, data=at_rest),
        "compose": Source(SourceStatus.OK, data={FILE: composefile.without_secrets(text)}),
        "units.at-rest": Source(SourceStatus.OK, data=list(units)),
    }
    return read_engines(read.host(Snapshot(**{**vars(whole), "sources": {**whole.sources, **more}})))


def service(**changes: Any) -> dict[str, Any]:
    return docker(SGLANG, Config__Labels=LABELS, **changes)


def down(**changes: Any) -> dict[str, Any]:
    return docker(SGLANG, Id="cd" * 32, Name="/llm-glm-1", State={"Status": "exited", "Pid": 0}, Config__Labels=LABELS, **changes)


def about(found: Import, words: str) -> list[Left]:
    return [left for left in found.left if words in left.what]


def test_a_stopped_engine_is_told_with_its_restart_policy_and_what_it_waits_for_and_not_imported() -> None:
    found = told(stopped=(down(),))
    assert (found.found, found.lost) == ((), 0)
    (left,) = about(found, "llm-glm-1")
    assert left.what == f"the engine in docker container llm-glm-1, service glm of {FILE}"
    assert "it does not run (exited; restart policy unless-stopped, depends on db, cache)" in left.reason
    assert "is not imported" in left.reason
    assert not [one for one in found.left if one.subject == "glm"], "the service is told once, with its container"


def test_other_stopped_containers_are_nobodys_business() -> None:
    web = docker(["nginx"], Id="ef" * 32, Name="/web", State={"Status": "exited"}, HostConfig__DeviceRequests=None)
    web["Config"] = {**web["Config"], "Image": "nginx:1"}
    ours = docker(SGLANG, Id="01" * 32, Name="/nearsocket-sglang-a", State={"Status": "exited"})
    assert told(stopped=(web, ours)).left == ()


@pytest.mark.parametrize(
    "more",
    [
        "  new:\n    image: vllm/vllm-openai:v1\n",
        "  new:\n    image: mine\n    command: [vllm, serve, m]\n",
        "  new:\n    image: mine\n    gpus: all\n",
        "  new:\n    image: mine\n    runtime: nvidia\n",
        "  new:\n    image: mine\n    deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}\n",
    ],
)
def test_a_service_that_has_no_container_is_told(more: str) -> None:
    found = told(service(), text=YAML + more + "    restart: always\n    depends_on: {db: {condition: service_started}}\n")
    assert [engine.name for engine in found.found] == ["glm-main"]
    (left,) = [left for left in found.left if left.subject == "new"]
    assert left.what == f"service new of {FILE}"
    assert left.reason.startswith("no container of it is there (restart policy always, depends on db)")
    assert not about(found, "service db")


def test_a_running_service_says_what_it_waits_for_and_that_its_file_is_as_it_was() -> None:
    found = told(service())
    assert [left.what for left in found.left if left.what.startswith("depends_on")] == ["depends_on db, cache"]
    assert "restart policy unless-stopped" in {left.what for left in found.left}
    assert not about(found, f"service glm of {FILE}")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("v0.5.23", "v0.5.24", "image lmsysorg/sglang:v0.5.24 (it runs lmsysorg/sglang:v0.5.23)"),
        ("--tp 2", "--tp 4", "the words python3 -m sglang.launch_server --model-path /srv/models/glm --tp 4"),
        ("--tp 2", "--tp 2 --enable-metrics", "--enable-metrics"),
    ],
)
def test_a_file_that_changed_since_the_start_is_told_and_what_runs_is_read(old: str, new: str, said: str) -> None:
    found = told(service(), text=YAML.replace(old, new))
    assert found.found[0].arguments == ()
    (left,) = about(found, f"service glm of {FILE}")
    assert left.reason.startswith("the file has changed since it was started")
    assert said in left.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("v0.5.23", "${TAG:-v0.5.24}"),
        ("--tp 2", "--tp $$RANKS"),
        ("--tp 2", "--tp ${RANKS}"),
        ("    command: python3 -m sglang.launch_server --model-path /srv/models/glm --tp 2\n", ""),
        ("python3 -m sglang.launch_server --model-path /srv/models/glm --tp 2", "--model-path /srv/models/glm --tp 2"),
    ],
)
def test_what_a_file_leaves_to_variables_or_to_the_image_is_no_change(old: str, new: str) -> None:
    inspected = service()
    if "$$" in new:
        inspected["Args"][-1] = "$RANKS"
    assert not about(told(inspected, text=YAML.replace(old, new)), f"service glm of {FILE}")


def test_a_secret_that_was_taken_out_on_both_sides_is_no_change() -> None:
    inspected = docker([*SGLANG, "--api-key", "canary"], Config__Labels=LABELS)
    found = told(inspected, text=YAML.replace("--tp 2", "--tp 2 --api-key canary"))
    assert not about(found, f"service glm of {FILE}")
    assert "canary" not in str(found)


def test_a_service_that_its_files_no_longer_have_is_told() -> None:
    (left,) = about(told(service(), text="services: {db: {image: x}}\n"), "service glm")
    assert "has no such service any more" in left.reason


@pytest.mark.parametrize("text", ["services: [", "a: b\n", "services: []\n", "!!python/object:os.system x\n"])
def test_a_file_that_is_none_is_told_in_one_line(text: str) -> None:
    found = told(service(), text=text)
    (left,) = about(found, f"compose file {FILE}")
    assert left.reason.startswith("not read: ")
    assert "\n" not in left.reason
    assert len(found.found) == 1


def test_a_unit_at_rest_is_told_with_its_file() -> None:
    unit = {
        "id": "glm.service",
        "active": "failed",
        "enabled": "enabled",
        "restart": "always",
        "fragment": "/etc/systemd/system/glm.service",
    }
    ours = {**unit, "id": "nearsocket-sglang-a.service"}
    (left,) = told(units=[unit, ours]).left
    assert (left.subject, left.what) == ("glm.service", "unit /etc/systemd/system/glm.service")
    assert "it does not run (failed; it starts at boot, Restart=always)" in left.reason


def test_a_snapshot_of_an_older_nearsocket_says_nothing_of_it() -> None:
    found = read_engines(read.host(snapshot(service())))
    assert {left.subject for left in found.left} == {"glm-main"}

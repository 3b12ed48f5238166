"""How the engine holds its buffers against findings: on the machine itself, under Docker, under Podman."""

from __future__ import annotations

import pytest

from lab import lifecycle
from lab.standins.engine import image
from tests.lab.host import LabHost
from tests.lab.judged import Judged, judged
from tests.lab.rows import AT_REST, DOCKER, ENGINE_ROWS, FILTER, FILTERED, HOST, PLACEMENT, PODMAN, EngineRow, fault

LOGS = (
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_DEBUG_SUBSYS", "INIT,ENV,BOOTSTRAP,SHM,ALLOC,ALLOC_HOST"),
    ("NCCL_DEBUG_FILE", "/nccl/nccl.%h.%p"),
)
#: As a person runs it; Docker and podman take the same words.
RUN = (
    "{runtime} run -d --name engine --network host --device nvidia.com/gpu=0 --device nvidia.com/gpu=1 --shm-size 1g {options}"
    " -v /var/log/nccl:/nccl -v /var/lib/weights.bin:/models/weights.bin:ro {environ}"
    " {image} --model-path /models/weights.bin --tp 2 --port 30000"
)
READY = """for _ in $(seq 600); do
    {runtime} logs engine 2>&1 | grep -q 'ready to roll' && exit 0
    [ "$({runtime} container inspect -f '{{{{.State.Running}}}}' engine)" = true ] || break
    sleep 0.5
done
{runtime} logs engine >&2; exit 1"""
ASK = """python3 -c 'import json, urllib.request
body = json.dumps({"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 2}).encode()
request = urllib.request.Request("http://127.0.0.1:30000/v1/chat/completions", body, {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=60))["usage"]["total_tokens"])'"""
DEAD = "for _ in $(seq 300); do pgrep -f ^sglang::scheduler_TP1 >/dev/null || exit 0; sleep 0.2; done; exit 1"
pytestmark = pytest.mark.timeout(1800)
#: Where nothing binds the buffers, where they land is drawn anew at each start.
DRAWS = 4


@pytest.fixture(scope="module")
def loaded(equipped: LabHost) -> LabHost:
    """The equipped machine with the engine's image in Docker and podman, saved for each row to start from."""
    equipped.reset("equipped")
    for runtime in (DOCKER, PODMAN):
        image.load(equipped.record.name, equipped.name, runtime, timeout_s=600)
    equipped.sh(f"{AT_REST}; head -c 30M /dev/zero >/var/lib/weights.bin; rm -f /var/tmp/engine.tar; echo '{FILTERED}' >{FILTER}")
    equipped.sh("sync; echo 3 >/proc/sys/vm/drop_caches")
    lifecycle.save(equipped.record, equipped.machine, "loaded")
    return equipped


def start(host: LabHost, row: EngineRow, where: str) -> None:
    """Start the engine; it serves when this returns."""
    if where == HOST:
        host.sh(f"standin-engine start {row.variables}")
        return
    pairs = [*(f"{key}={value}" for key, value in LOGS), *row.variables.split()]
    environ = " ".join(f"-e {pair}" for pair in pairs)
    host.sh("mkdir -p /var/log/nccl")
    host.sh(RUN.format(runtime=where, options=row.options[where], environ=environ, image=image.NAME))
    host.sh(READY.format(runtime=where), timeout_s=500)


def found_after_start(host: LabHost, row: EngineRow, where: str) -> Judged:
    """The machine put back, the engine started with the row's faults, asked once, and audited."""
    host.reset("loaded")
    for name in row.faults:
        host.sh(fault(name))
    if row.full:
        host.sh("lab-fill 0")
    start(host, row, where)
    assert host.sh(ASK) == "6"
    for name, content in row.late:
        host.sh(f"{fault(name, content)}; {DEAD}")
    return judged(host.name)


ROWS = [pytest.param(row, where, id=f"{row.name}-{where}") for row in ENGINE_ROWS for where in row.where]


@pytest.mark.parametrize(("row", "where"), ROWS)
def test_the_audit_tells_how_the_engine_holds_its_buffers(loaded: LabHost, row: EngineRow, where: str) -> None:
    for _draw in range(DRAWS if row.full else 1):
        found = found_after_start(loaded, row, where)
        if found.of(*PLACEMENT) == row.expected:
            break
    assert found.of(*PLACEMENT) == row.expected, found.said(*PLACEMENT)
    if row.name == "fallback":
        assert "fell back" in found.summaries["nccl.cumem-in-force"]


@pytest.mark.parametrize("runtime", [DOCKER, PODMAN])
def test_a_published_image_has_a_digest_that_both_engines_pull_and_run(loaded: LabHost, runtime: str) -> None:
    loaded.reset("loaded")
    reference = image.publish(loaded.record.name, loaded.name, runtime)
    assert reference.startswith("127.0.0.1:5000/nearsocket-standin/sglang@sha256:")
    loaded.sh(f"{runtime} rmi -f {image.NAME} 127.0.0.1:5000/{image.PUBLISHED} >/dev/null")
    for puller in (DOCKER, PODMAN):
        loaded.sh(f"{puller} pull -q {reference}", timeout_s=500)
        said = loaded.sh(
            f"{puller} run --rm --network none --entrypoint /bin/sh {reference} -c 'python3 -m sglang.launch_server --help'",
            timeout_s=300,
        )
        assert "stand-in" in said

"""`nearsocket rollout` over three two-socket machines with two replicas each: in order and unnoticed by a client, stopped and taken
back where one is proven far, resumed after a client that was killed.

The engine, its GPUs and their driver are stand-ins; kernels, systemd, Docker and SSH are real.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import site
from nearsocket.model.rollout import progress
from tests.lab import sites
from tests.lab.balancer import HOOK, HOOK_PATH, HOOK_PORT, Balancer, Client, balancing
from tests.lab.sites import Site

pytestmark = pytest.mark.timeout(5400)

REPLICAS = {"a": 30000, "b": 30001}
#: A folder of the engine's faults that only the generations of these tests look into.
FAULTS = "/run/nearsocket-standin/faults/rollout"
#: Both ranks in one process, so that NCCL takes no cuMem; and page cache takes the near node, the room too that a stop makes there.
FAR = f"""mkdir -p {FAULTS}; touch {FAULTS}/legacy
systemd-run --quiet --unit=reader sh -c 'while :; do lab-fill 1; sleep 1; done'"""
NEAR = f"rm {FAULTS}/legacy; systemctl stop reader"


@dataclass
class Fleet:
    """The machines as sites, in the inventory's order, and the folder of the fleet file; whether they serve already."""

    sites: list[Site]
    folder: Path
    served: bool = False
    last: dict[str, Any] = field(default_factory=dict)

    def file(self, **changes: Any) -> Path:
        """The fleet file: b by its bound mount. `changes`: of both replicas, those of the last file where none are told; `of_b`:
        of b alone, on top."""
        of_b, hosts = changes.pop("of_b", {}), []
        self.last = changes or self.last
        for one in self.sites:
            a, b = site.replicas(**self.last)
            wanted = [a, {**b, "binding": ["shm"], **of_b}]
            for replica in wanted:
                hook = [HOOK_PATH, "{}", one.host.name, replica["name"]]
                replica["hooks"] = {do: [word.format(do) for word in hook] for do in ("drain", "undrain")}
            hosts += yaml.safe_load(one.fleet(wanted).read_text())["hosts"]
        path = self.folder / "fleet.yaml"
        path.write_text(yaml.safe_dump({"hosts": hosts}, sort_keys=False))
        return path

    def start(self, fleet: Path, *options: str) -> subprocess.Popen[str]:
        """A client at work. It looks at one machine after another: emulated ones side by side are slower than any limit."""
        words = ["-m", "nearsocket", "rollout", str(fleet), "--timeout", "400", "--parallel", "1", "--json", *options]
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=fleet.parent,
            env=site.environment(fleet),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def roll(self, fleet: Path, *options: str) -> tuple[int, dict[str, Any]]:
        """A client that is left alone: its exit code and report."""
        client = self.start(fleet, *options)
        said, errors = client.communicate()
        assert "Traceback" not in errors, errors
        assert said, errors
        return client.returncode, json.loads(said)

    def starts(self) -> dict[tuple[str, str], str]:
        """Which start of each replica runs."""
        return {(one.host.name, name): one.invocation(name) for one in self.sites for name in REPLICAS}

    def generations(self) -> list[str]:
        """The generation in force on each, each whole."""
        return [one.generation() for one in self.sites]

    def all_serve(self) -> None:
        """Every replica of every machine answers."""
        for one in self.sites:
            one.serves(*REPLICAS.values())


@pytest.fixture(scope="module")
def machines(request: pytest.FixtureRequest, profile: str, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Three machines with the engine's image in their registries and the drain hook, nothing of nearsocket's on them."""
    made = sites.fresh_hosts(request, profile, "rollout", 3)
    for one in made:
        one.host.sh(f"cat >{HOOK_PATH} <<'END'\n{HOOK}END\nchmod 755 {HOOK_PATH}; mkdir -p {FAULTS}")
    # Put back before anything connects: a reset machine knows no connection made since, and keeps those of before.
    served = sites.all_saved(made, "serving")
    for one in made:
        one.host.sh(f"ss -Hltnp 'sport = :{HOOK_PORT}' | grep -o 'pid=[0-9]*' | cut -d= -f2 | sort -u | xargs -r kill")
    return Fleet(made, tmp_path_factory.mktemp("fleet"), served)


@pytest.fixture(scope="module")
def balanced(machines: Fleet) -> Iterator[tuple[Balancer, int]]:
    """The balancer before all replicas, and its port."""
    with balancing(machines.sites[0].host.record, REPLICAS) as made:
        yield made


@pytest.fixture(scope="module")
def serving(machines: Fleet, balanced: tuple[Balancer, int]) -> Fleet:
    """The fleet, taken by its first rollout to two replicas a machine; saved as `serving`."""
    if machines.served:
        return machines
    code, report = machines.roll(machines.file())
    assert code == 0, json.dumps(report, indent=1)
    assert [host["end"] for host in report["hosts"]] == ["verified"] * 3
    assert machines.generations() == ["1"] * 3
    sites.save_all(machines.sites, "serving")
    return machines


def test_a_change_goes_out_in_order_with_one_replica_down_at_most_and_no_request_fails(
    serving: Fleet, balanced: tuple[Balancer, int]
) -> None:
    balancer, port = balanced
    balancer.forget()
    before = serving.starts()
    with Client(port) as client:
        code, report = serving.roll(serving.file(environment={"CHANGE": "1"}))
    assert code == 0, json.dumps(report, indent=1)
    assert client.wrong == []
    assert client.answered > 10
    assert balancer.most_drained == 1
    order = [(machine, name) for do, machine, name in balancer.history if do == "drain"]
    assert order == [(one.host.name, name) for one in serving.sites for name in REPLICAS]
    assert all(before[replica] != now for replica, now in serving.starts().items())
    assert [replica["did"] for host in report["hosts"] for replica in host["replicas"]] == ["restarted"] * 6
    for one in serving.sites:
        one.near("b", (1,))
    code, report = serving.roll(serving.file(environment={"CHANGE": "1"}))
    assert (code, [host["end"] for host in report["hosts"]]) == (0, ["current"] * 3)


def test_a_second_host_that_is_proven_far_goes_back_and_is_near_the_third_is_untouched_and_a_resumed_rollout_ends(
    serving: Fleet, tmp_path: Path
) -> None:
    numbers, before = serving.generations(), serving.starts()
    _, second, third = serving.sites
    fleet = serving.file(of_b=by_cumem("far"))
    second.host.sh(FAR)
    code, report = serving.roll(fleet)
    assert code == 2
    assert [host["end"] for host in report["hosts"]] == ["verified", "rolled-back", "not-touched"], json.dumps(report, indent=1)
    assert "nccl.buffer-placement fail" in report["hosts"][1]["reason"]
    assert serving.generations() == [str(int(numbers[0]) + 1), numbers[1], numbers[2]]
    second.near("b", (1,))
    second.serves(*REPLICAS.values())
    assert {name: third.invocation(name) for name in REPLICAS} == {name: before[third.host.name, name] for name in REPLICAS}
    assert third.host.sh(f"grep -c far {progress.FILE} || :") == "0"

    code, errors = refused(serving, fleet)
    assert code == 2
    assert "expected no rollout that is not at its end" in errors

    second.host.sh(NEAR)
    code, report = serving.roll(elsewhere(fleet, tmp_path), "--resume")
    assert code == 0, json.dumps(report, indent=1)
    assert [host["end"] for host in report["hosts"]] == ["verified-earlier", "verified", "verified"]
    serving.all_serve()
    for one in serving.sites:
        one.near("b", (1,), sites.CUMEM)


def by_cumem(change: str) -> dict[str, Any]:
    """b's buffers in cuMem, and by nothing else on the near socket; no probe before its start sees what FAR plants."""
    environment = {"CHANGE": change, "NEARSOCKET_STANDIN_FAULTS": FAULTS}
    return {"binding": ["cumem"], "environment": environment, "probe": {"backend": "standin", "before_start": "never"}}


def refused(fleet: Fleet, file: Path, *options: str) -> tuple[int, str]:
    """A client that is refused: its exit code, and what it said on standard error."""
    client = fleet.start(file, *options)
    said, errors = client.communicate()
    assert said == ""
    assert "Traceback" not in errors
    return client.returncode, errors


def elsewhere(fleet: Path, folder: Path) -> Path:
    """The same inventory in another folder."""
    return Path(shutil.copy(fleet, folder / "the-same.yaml"))


#: Where one client after another is killed: the machine by its place, and what is to be seen there first.
KILLS = {
    "apply of the first": (0, "[ -e /etc/nearsocket/pending.json ]"),
    "between hosts": (0, f'grep -q \'"phase": "verified"\' {progress.FILE}'),
    "proof of the second": (1, f'grep -q \'"phase": "applied"\' {progress.FILE}'),
    "apply of the last": (2, f'grep -q \'"phase": "begun"\' {progress.FILE}'),
}


def killed(client: subprocess.Popen[str], one: Site | None = None, seen: str = "") -> None:
    """Kill a client once that is to be seen on the machine; without one, once it says that it looks at the hosts."""
    assert client.stderr
    try:
        if one is None:
            assert "looking at" in client.stderr.readline()
        else:
            one.host.sh(f"for _ in $(seq 3000); do {seen} && exit 0; sleep 0.3; done; exit 1", timeout_s=1800)
        assert client.poll() is None
    finally:
        client.send_signal(signal.SIGKILL)
        client.communicate()


def test_clients_that_are_killed_in_each_phase_are_resumed_from_other_folders_and_no_replica_is_lost(
    serving: Fleet, tmp_path: Path
) -> None:
    for one in serving.sites:  # what an earlier rollout left would be seen at once
        one.host.sh(f"rm -f {progress.FILE}")
    fleet, before = serving.file(environment={"CHANGE": "killed"}), serving.starts()
    killed(serving.start(fleet))
    assert serving.starts() == before
    resume: tuple[str, ...] = ()
    for phase, (at, seen) in KILLS.items():
        folder = tmp_path / phase.replace(" ", "-")
        folder.mkdir()
        killed(serving.start(elsewhere(fleet, folder), *resume), serving.sites[at], seen)
        resume = ("--resume",)
    code, report = serving.roll(elsewhere(fleet, tmp_path), "--resume")
    assert code == 0, json.dumps(report, indent=1)
    assert [host["end"] for host in report["hosts"]] == ["verified-earlier", "verified-earlier", "verified"]
    assert all(before[replica] != now for replica, now in serving.starts().items())
    serving.all_serve()
    code, report = serving.roll(fleet)
    assert (code, [host["end"] for host in report["hosts"]]) == (0, ["current"] * 3)


def test_a_client_that_is_killed_on_the_way_back_is_resumed_and_no_replica_is_lost(serving: Fleet, tmp_path: Path) -> None:
    one = serving.sites[1]
    one.host.sh(f"rm -f {progress.FILE}; {FAR}")
    fleet = serving.file(of_b=by_cumem("back"))
    only = ("--limit", one.host.name)
    killed(serving.start(fleet, *only), one, f'grep -q \'"phase": "failed"\' {progress.FILE}')
    one.host.sh(NEAR)
    code, report = serving.roll(elsewhere(fleet, tmp_path), "--resume", *only)
    assert code == 0, json.dumps(report, indent=1)
    assert [host["end"] for host in report["hosts"]] == ["verified"]
    one.near("b", (1,), sites.CUMEM)
    one.serves(*REPLICAS.values())

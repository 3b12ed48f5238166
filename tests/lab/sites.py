"""A machine with stand-ins that deploys take to a serving host: its fleet files, its runs, what there is to see on it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lab import lifecycle, site
from lab.errors import LabError
from lab.site import Ran
from lab.standins.engine import image
from lab.standins.equip import equip
from tests.lab.host import LabHost

#: Two ranks map four ring buffers of their own and four of the neighbour's each.
MAPPINGS = 16
#: Pages of one: a file of NCCL's, and the driver's memory with cuMem.
FILE, CUMEM = 2354, 2560
ASK = """python3 -c 'import json, sys, urllib.request
body = json.dumps({"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 2}).encode()
for port in sys.argv[1:]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body, {"Content-Type": "application/json"})
    print(json.load(urllib.request.urlopen(request, timeout=120))["usage"]["total_tokens"])' %s"""
#: All that a run could change: managed files and links with their times, containers, starts, mounts. Not the reports of the proofs,
#: which a timer makes.
SEEN = (
    "find /etc/nearsocket /etc/systemd/system /usr/local/lib/nearsocket -printf '%p %l %T@ %s\\n' | sort; "
    "for runtime in docker podman; do $runtime ps --all --quiet --no-trunc; done; "
    "systemctl show --property=Id,InvocationID,ActiveState 'nearsocket-sglang-*' 'nearsocket*.slice' 'run-nearsocket*.mount'; "
    "grep nearsocket /proc/mounts"
)


@dataclass(frozen=True)
class Site:
    """The machine, and the reference of the engine's image in its registry."""

    host: LabHost
    image: str

    def fleet(self, wanted: list[dict[str, Any]], **host: Any) -> Path:
        """Write the fleet file; its path."""
        return site.write_fleet(self.host.record, self.host.machine, self.image, wanted, **host)

    def counted(self, fleet: Path, name: str = "site.py", *options: str) -> tuple[Ran, int]:
        """One deploy, and how many commands the host was asked for."""
        return site.counted(self.host.record, self.host.machine, fleet, name, *options)

    def good(self, fleet: Path, name: str = "site.py", *options: str) -> str:
        """A deploy that must succeed; what it said."""
        ran = site.deploy(fleet, name, *options)
        assert ran.code == 0, ran.said
        assert "Traceback" not in ran.said, ran.said
        return ran.said

    def refused(self, fleet: Path, name: str = "site.py", *options: str) -> str:
        """A deploy that must end non-zero; what it said."""
        ran = site.deploy(fleet, name, *options)
        assert ran.code == 1, ran.said
        assert "Traceback" not in ran.said, ran.said
        return ran.said

    def settled(self, fleet: Path) -> None:
        """The host is as it should be: one more run is one command on the host, and changes nothing there."""
        before = self.host.sh(SEEN)
        ran, execs = self.counted(fleet)
        assert ran.code == 0, ran.said
        assert execs == ran.tries, ran.said
        assert "as it should be; 0 changes" in ran.said
        assert self.host.sh(SEEN) == before

    def rings(self, replica: str) -> tuple[int, dict[int, int]]:
        """How many mappings of ring buffers a replica has, and their pages by node."""
        said = self.host.sh(f"lab-rings {replica}")
        found = re.fullmatch(r"ranks (\d+) mappings (\d+)((?: node\d+ \d+)*)", said)
        assert found, said
        return int(found[2]), {int(n): int(pages) for n, pages in re.findall(r"node(\d+) (\d+)", found[3])}

    def near(self, replica: str, nodes: tuple[int, ...], pages: int = FILE) -> None:
        """All of a replica's ring buffers lie on these nodes."""
        mappings, found = self.rings(replica)
        assert mappings == MAPPINGS, (replica, mappings, found)
        assert sum(found.values()) == MAPPINGS * pages, found
        assert sum(found.get(node, 0) for node in nodes) == MAPPINGS * pages, found

    def invocation(self, replica: str) -> str:
        """Which start of a replica's unit runs."""
        return self.host.sh(f"systemctl show --property=InvocationID --value nearsocket-sglang-{replica}.service")

    def serves(self, *ports: int) -> None:
        """Every port answers a request."""
        assert self.host.sh(ASK % " ".join(map(str, ports))).split() == ["6"] * len(ports)

    def nothing(self, script: str) -> None:
        """The script finds nothing to print, whatever its commands end with."""
        assert self.host.sh(f"{{ {script}; }} || :") == ""

    def generation(self) -> str:
        """The generation in force, a number; nothing where there is none. It is whole, by its own manifest."""
        number = self.host.sh("readlink /etc/nearsocket/current || :").rpartition("/")[2]
        if number:
            manifest = json.loads(self.host.sh(f"cat /etc/nearsocket/generations/{number}/manifest.json"))
            sums = "".join(f"{entry['sha256']}  {entry['path']}\n" for entry in manifest["files"])
            self.host.sh(f"cd /etc/nearsocket/generations/{number}; printf '%s' '{sums}' | sha256sum --check --quiet")
        return number


def fresh(request: pytest.FixtureRequest, profile: str, name: str) -> Site:
    """A machine with stand-ins and the engine's image in its registry, in no engine; saved as `ready`.

    NEARSOCKET_LAB_SITE names one that is up in a person's own lab, for work at these tests; it is made so the first time.
    """
    return fresh_hosts(request, profile, name, 1)[0]


def fresh_hosts(request: pytest.FixtureRequest, profile: str, name: str, hosts: int) -> list[Site]:
    """As many such machines of one lab, in its order."""
    if profile != "full":
        pytest.skip("the small image has no container engine")
    named = os.environ.get("NEARSOCKET_LAB_SITE")
    if named is None:
        request.getfixturevalue("lab_state")
    record = lifecycle.up(lifecycle.Wish(name=named or name, shape="gpus", hosts=hosts, timeout_s=600 * hosts))
    sites = []
    for machine in record.machines:
        host = LabHost(record, machine)
        if not saved(Site(host, ""), "ready"):
            _make_ready(host)
        sites.append(Site(host, host.sh("cat /root/engine-image")))
    return sites


def saved(made: Site, snapshot: str) -> bool:
    """Whether a person's own lab has that snapshot from an earlier session; it is put back then."""
    try:
        made.host.reset(snapshot)
    except LabError:
        return False
    return True


def full(made: Site) -> Site:
    """The machine with nothing of nearsocket's on it, both nodes full of page cache."""
    made.host.reset("ready")
    made.host.sh("lab-fill 0; lab-fill 1")
    return made


def all_saved(made: list[Site], snapshot: str) -> bool:
    """Whether every machine has that snapshot; they are put back to it then."""
    return all(saved(one, snapshot) for one in made)


def save_all(made: list[Site], snapshot: str) -> None:
    """Save every machine under that name."""
    for one in made:
        one.host.sh("sync")
        lifecycle.save(one.host.record, one.host.machine, snapshot)


def served(made: Site, wanted: list[dict[str, Any]], snapshot: str, **host: Any) -> Site:
    """The machine with these replicas serving from generation 1, saved under that name; put back to it where it was saved."""
    if not saved(made, snapshot):
        made.host.reset("ready")
        made.good(made.fleet(wanted, **host))
        made.host.sh("sync")
        lifecycle.save(made.host.record, made.host.machine, snapshot)
    return made


def _make_ready(host: LabHost) -> None:
    equip(host.record, host.machine)
    site.prepare(host.record, host.machine)
    reference = image.publish(host.record.name, host.name, "docker")
    host.sh(f'docker image prune --all --force; test -z "$(docker images --quiet)"; echo {reference} >/root/engine-image; sync')
    lifecycle.save(host.record, host.machine, "ready")


def reshaped(made: Site, shape: str) -> Site:
    """The machine after a power cut and a boot with other firmware settings, its description of GPUs unchanged."""
    lifecycle.kill(made.host.record, made.host.machine)
    record = lifecycle.up(lifecycle.Wish(name=made.host.record.name, shape=shape, timeout_s=900))
    return replace(made, host=LabHost(record, record.machines[0]))

"""Power cuts at moments of an apply that nobody chose: afterwards there is one generation or the other, and the next run completes.

Twenty boots and forty deploys: `make lab-power`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import pytest

from lab import lifecycle, site
from lab.lifecycle import Wish
from lab.say import say
from tests.lab import sites
from tests.lab.sites import CUMEM, Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

#: NEARSOCKET_LAB_CUTS asks for fewer, for work at this test.
CUTS = int(os.environ.get("NEARSOCKET_LAB_CUTS", "20"))


def wanted(word: str) -> list[dict[str, object]]:
    return site.replicas(environment={"WORD": word})[:1]


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, profile: str) -> tuple[Site, float]:
    """A machine with one replica that serves from generation 1, saved as `served`; and the seconds that a change of it takes."""
    made = sites.fresh(request, profile, "power")
    made.good(made.fleet(wanted("old"), tune={"swappiness": 10}))
    made.host.sh("sync")
    lifecycle.save(made.host.record, made.host.machine, "served")
    started = time.monotonic()
    made.good(made.fleet(wanted("new"), tune={"swappiness": 5}))
    return made, time.monotonic() - started


def test_after_a_power_cut_at_any_moment_one_generation_is_whole_and_the_next_run_completes(served: tuple[Site, float]) -> None:
    made, whole_s = served
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    seen = []
    for cut in range(CUTS):
        made.host.reset("served")
        fleet = made.fleet(wanted("new"), tune={"swappiness": 5})
        client = subprocess.Popen(
            site.command("site.py"), env=site.environment(fleet), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        after_s = moments.uniform(0.2, 1.0) * whole_s
        try:
            time.sleep(after_s)  # the moment is the point: nothing is waited for
            lifecycle.kill(made.host.record, made.host.machine)
        finally:
            client.send_signal(signal.SIGKILL)
            client.wait()
        lifecycle.up(Wish(name=made.host.record.name, shape="gpus", timeout_s=900))
        where = f"cut {cut} after {after_s:.1f} of {whole_s:.1f} s, seed {seed}"
        number = made.generation()
        assert number in ("1", "2"), where
        word = made.host.sh("grep ^WORD= /etc/nearsocket/current/env/a.env")
        assert word == {"1": "WORD=old", "2": "WORD=new"}[number], where
        said = made.good(fleet, "site.py", "--diff")
        assert made.generation() == "2", f"{where}\n{said}"
        assert made.host.sh("sysctl -n vm.swappiness") == "5", where
        made.near("a", (0,), CUMEM)
        made.settled(fleet)
        seen.append((round(after_s, 1), number))
        say(made.host.name, f"{where}: generation {number}, completed")  # an hour without a word else
    # Cuts on either side of the switch, else the moments were no test.
    assert CUTS < 20 or {number for _, number in seen} == {"1", "2"}, seen

"""Where NCCL's pages land on this kernel, with the near node full of page cache: what binds them and what does not.

Judged by plain grep and awk on the machine (lab-pages). A row asserts what binds (policy of the mapping, nodes the process may
use) as well as the pages: an unbound start can land near by luck, so that rows that must not bind are drawn up to three times.
"""

from __future__ import annotations

import pytest

from tests.lab.host import RING_PAGES, LabHost, Placement

START = "lab-ranks start -p CPUAffinity=0-1"

#: A tmpfs of its own, bound to the near node, and the ranks' /dev/shm in their own mount namespace.
MOUNT = "mkdir -p /run/near && mount -t tmpfs -o size=400m,mpol={mpol} tmpfs /run/near"
OVER = "-p BindPaths=/run/near:/dev/shm"


@pytest.fixture
def full(host: LabHost) -> LabHost:
    """A clean machine with node 0 full of page cache."""
    host.sh("lab-fill 0")
    assert host.free_mib() < 140  # the ring buffers alone need 147 MiB
    return host


def near(found: Placement) -> None:
    """Every page of all sixteen ring buffers is on node 0."""
    assert found.files == 16
    assert found.pages == {0: RING_PAGES, 1: 0}


def draw_until_far(host: LabHost, start: str, draws: int = 3) -> Placement:
    """Start until pages are not near; the last draw's placement. The cache is filled anew before each draw after the first."""
    found = None
    for draw in range(draws):
        if draw:
            host.sh("lab-ranks stop; lab-fill 0")
        host.sh(start)
        found = host.placement()
        if found.near_share < 0.99:
            break
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("start", "policy"),
    [
        pytest.param("lab-ranks start", "default", id="unbound"),
        pytest.param(START, "default", id="cpus-only"),
        pytest.param(f"{START} -- numactl --cpunodebind=0", "default", id="cpunodebind-only"),
        pytest.param(f"{START} -- numactl --preferred=0", "prefer", id="preferred"),
    ],
)
def test_what_does_not_bind_lands_far(full: LabHost, start: str, policy: str) -> None:
    found = draw_until_far(full, start)
    assert found.policy.startswith(policy)
    assert found.mems == "0-1"
    assert found.files == 16
    assert found.near_share < 0.99


@pytest.mark.parametrize(
    ("start", "policy", "mems"),
    [
        pytest.param(f"{START} -- numactl --membind=0", "bind:0", "0-1", id="membind"),
        pytest.param(f"{START} -p NUMAPolicy=bind -p NUMAMask=0", "bind:0", "0-1", id="unit-NUMAPolicy"),
        pytest.param(f"{START} -p AllowedMemoryNodes=0", "default", "0", id="unit-AllowedMemoryNodes"),
    ],
)
def test_what_binds_the_process_lands_near(full: LabHost, start: str, policy: str, mems: str) -> None:
    full.sh(start)
    found = full.placement()
    near(found)
    assert (found.policy, found.mems) == (policy, mems)


@pytest.mark.parametrize(
    ("wrapper", "cpus"),
    [pytest.param("", "0-1", id="unbound"), pytest.param("-- numactl --membind=1", "2-3", id="against-membind-1")],
)
def test_a_mount_bound_to_the_near_node_lands_near_whoever_writes(full: LabHost, wrapper: str, cpus: str) -> None:
    full.sh(MOUNT.format(mpol="bind:0"))
    full.sh(f"lab-ranks start -p CPUAffinity={cpus} {OVER} {wrapper}")
    found = full.placement()
    near(found)
    assert (found.policy, found.mems) == ("bind:0", "0-1")


def test_a_mount_that_prefers_the_near_node_lands_far(full: LabHost) -> None:
    full.sh(MOUNT.format(mpol="prefer:0"))
    found = draw_until_far(full, f"{START} {OVER}")
    assert found.policy.startswith("prefer")
    assert found.near_share < 0.99


def test_a_bound_mount_outside_the_cpuset_is_ignored(full: LabHost) -> None:
    full.sh(MOUNT.format(mpol="bind:0"))
    full.sh(f"lab-ranks start {OVER} -p AllowedMemoryNodes=1")
    found = full.placement()
    assert found.mems == "1"
    assert found.pages == {0: 0, 1: RING_PAGES}


#: Somebody else's file in the cache, on the far node's account too: 5,120 pages.
OTHER = "dd if=/dev/urandom of=/var/tmp/other bs=1M count=20 status=none; sync; cd /var/tmp; cat other >/dev/null; lab-cached other"


@pytest.mark.parametrize("what", [1, 3])
def test_dropping_caches_relieves_the_near_node_and_evicts_everybodys_files(full: LabHost, what: int) -> None:
    assert int(full.sh(OTHER)) > 5000
    full.sh(f"sync; echo {what} >/proc/sys/vm/drop_caches")
    assert full.free_mib() > 700
    assert full.sh("lab-cached /var/tmp/other") == "0"
    full.sh(START)
    found = full.placement()
    near(found)
    assert (found.policy, found.mems) == ("default", "0-1")  # near by hope: nothing binds it


def test_advising_a_file_away_relieves_the_near_node_and_keeps_other_files(full: LabHost) -> None:
    assert int(full.sh(OTHER)) > 5000
    full.sh("for file in /var/tmp/weights-*; do dd if=$file iflag=nocache count=0 status=none; done")
    assert full.free_mib() > 700
    assert int(full.sh("lab-cached /var/tmp/other")) > 5000
    full.sh(START)
    found = full.placement()
    near(found)
    assert (found.policy, found.mems) == ("default", "0-1")


def test_this_kernel_has_no_reclaim_file_of_a_node(host: LabHost) -> None:
    assert host.sh("uname -r").startswith("6.12.")
    assert host.sh("ls /sys/devices/system/node/node0/reclaim 2>/dev/null || echo none") == "none"


#: Asks a cgroup to give memory back; where it has less than that, the kernel gives what it can and answers EAGAIN.
RECLAIM = "if ! echo {size} >/sys/fs/cgroup/{cgroup}/memory.reclaim; then echo less; fi"


def test_reclaim_of_a_cgroup_takes_only_what_was_charged_to_it(host: LabHost) -> None:
    host.sh("systemctl start weights.slice; systemd-run --quiet --wait --slice=weights.slice -p MemoryAccounting=yes lab-fill 0")
    assert host.free_mib() < 140
    host.fails("echo '900M nodes=0' >/sys/fs/cgroup/weights.slice/memory.reclaim")
    host.sh(RECLAIM.format(size="100M", cgroup="system.slice"))  # another cgroup's memory.reclaim does not reach it
    assert host.free_mib() < 300
    host.sh(RECLAIM.format(size="900M", cgroup="weights.slice"))
    assert host.free_mib() > 600
    host.sh(START)
    near(host.placement())


#: Whether zone_reclaim_mode moves most pages near: (multi-generational LRU, mode). Measured on this kernel.
HELPS = {("y", "1"): False, ("y", "7"): True, ("n", "1"): True, ("n", "7"): True}


@pytest.mark.parametrize(("lru_gen", "mode"), HELPS)
def test_zone_reclaim_mode_depends_on_the_kernels_lru_and_binds_nothing(full: LabHost, lru_gen: str, mode: str) -> None:
    full.sh(f"echo {lru_gen} >/sys/kernel/mm/lru_gen/enabled; sysctl -q vm.zone_reclaim_mode={mode}")
    full.sh(START)
    found = full.placement()
    assert (found.policy, found.mems) == ("default", "0-1")
    assert (found.near_share > 0.5) is HELPS[lru_gen, mode], found

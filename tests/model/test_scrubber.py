"""What identifies goes; what the judgement needs stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.scrub import Scrubber
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus, from_json

UUID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"


def named(*names: str) -> Scrubber:
    scrubber = Scrubber()
    for name in names:
        scrubber.host(name)
    return scrubber


def text(given_text: str) -> str:
    return named("gpu-box7.lab.example.org").text(given_text)


GONE = [
    (f"GPU-{UUID}", UUID),
    (f"root=UUID={UUID.upper()} ro", UUID.upper()),
    ("peer 10.20.30.40:22", "10.20.30.40"),
    ("inet6 fe80::1ff:fe23:4567:890a/64", "890a"),
    ("2001:470::17 is up", "2001:470"),
    ("link/ether 52:54:00:12:34:56", "52:54:00"),
    ("Serial Number: 1324021012345", "1324021012345"),
    ('{"serial": "X77-9"}', "X77-9"),
    ("on gpu-box7 and gpu-box7.lab.example.org", "gpu-box7"),
    ("/dev/mapper/GPU-BOX7--vg-root", "BOX7"),
]


@pytest.mark.parametrize(("before", "secret"), GONE)
def test_what_identifies_is_gone(before: str, secret: str) -> None:
    assert secret not in text(before)


STAYS = [
    "0000:c1:00.0 0000:c1:00.1",
    "pci0000:c0/0000:c0:01.0",
    "sglang::scheduler_TP0",
    "0-11,24-35",
    "ffffffff,00000000",
    "Node 0 MemTotal:       263825404 kB",
    "bind:1 default prefer (many):0",
    "7f2c3c000000 bind:1 file=/dev/shm/nccl-aB3dE9 (deleted) shmem dirty=2354 N1=2354 kernelpagesize_kB=4",
    "127.0.0.1 ::1 0.0.0.0",
    "580.95.05 6.12.0-1-amd64 0.24.04.1ubuntu 2.28.3-1+cuda13.0",
    "2026-01-31T12:00:00Z 12:34:56",
    "22:33 rw,relatime shared:1 - tmpfs tmpfs rw,size=1234k,mpol=bind:1",
]


@pytest.mark.parametrize("line", STAYS)
def test_what_the_judgement_needs_stays(line: str) -> None:
    assert text(line) == line


def test_one_thing_keeps_one_stand_in_and_two_get_two() -> None:
    other = UUID.replace("1b9d", "2222")
    scrubber = Scrubber()
    first, second = scrubber.text(f"GPU-{UUID} GPU-{other}").split()
    assert first != second
    assert scrubber.text(f"GPU-{UUID.upper()}") == first


def test_a_snapshot_loses_host_user_boot_and_serials_and_stays_a_snapshot() -> None:
    sources = {
        "kernel.sysctl": Source(SourceStatus.OK, data={"kernel/hostname": "secretlab-9", "vm/swappiness": "60"}),
        "nvml": Source(
            SourceStatus.OK, data={"gpus": [{"uuid": f"GPU-{UUID}", "serial": "132402", "pci": "0000:c1:00.0", "index": 0}]}
        ),
        "packages": Source(SourceStatus.OK, "docker.io\t1.2.3.4\tii"),
        "mounts": Source(SourceStatus.OK, "36 1 0:32 / /mnt rw - nfs4 10.9.8.7:/export rw"),
        "units": Source(SourceStatus.DENIED, reason="refused on secretlab-9"),
    }
    taken = Snapshot("secretlab-9", "2026-01-31T12:00:00Z", UUID, {"uid": 1000, "user": "jane"}, {"python": "3.11.2"}, sources)
    scrubbed = Scrubber().snapshot(taken)
    whole = scrubbed.to_json()
    for secret in ("secretlab", "jane", UUID, "132402", "10.9.8.7"):
        assert secret not in whole
    assert "1.2.3.4" in whole, "a version is no address"
    assert "0000:c1:00.0" in whole
    assert from_json(whole) == scrubbed
    assert (scrubbed.host, scrubbed.privilege["uid"]) == ("host-1", 1000)


def test_root_stays_root() -> None:
    assert Scrubber().snapshot(Snapshot("gpu1", "t", None, {"user": "root"}, {}, {})).privilege["user"] == "root"


def test_a_common_word_as_a_host_name_tears_nothing_apart() -> None:
    scrubber = named("localhost", "pc", "nvidia")
    assert scrubber.text("localhost pci nvidia-smi pc") == "localhost pci nvidia-smi pc"


@given(st.text(max_size=300))
def test_scrubbing_twice_is_scrubbing_once(anything: str) -> None:
    scrubber = named("gpu-box7")
    once = scrubber.text(anything)
    assert scrubber.text(once) == once

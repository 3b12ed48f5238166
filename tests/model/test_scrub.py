from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.scrub import scrub
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus, from_json

BOOT = "5d6f0fce-b36f-4fa9-a483-862bc11caea8"
LONG = "ab12" * 16
OTHER = "cd34" * 16
IMAGE = "registry.acme-corp.com:5000/team/sglang:v0.5"
GPU = "GPU-1b2c3d4e-aaaa-bbbb-cccc-0123456789ab"


def ok(data: Any = None, text: str | None = None) -> Source:
    return Source(SourceStatus.OK, text=text, data=data)


def make(host: str = "root@gpu7.rack3.acme-corp.com", user: str = "alice", **sources: Source) -> Snapshot:
    named = {name.replace("__", "."): source for name, source in sources.items()}
    return Snapshot(host, "2026-01-31T12:00:00Z", BOOT, {"uid": 1000, "user": user, "cap_eff": "0"}, {"version": "0.1.0"}, named)


SECRETS = {
    "kernel.sysctl": {"kernel/hostname": "gpu7", "vm/zone_reclaim_mode": "0"},
    "kernel.cmdline": f"root=UUID={BOOT} ip=10.1.2.3::10.1.2.1 nfsroot=filer.acme-corp.com:/x BOOT_IMAGE=/vmlinuz-6.1.0",
    "mounts": "31 25 0:56 / /home/alice/models rw - nfs4 filer:/export/models rw,addr=10.1.2.9,vers=4.2",
    "nvml": {"driver_version": "595.45.04", "gpus": [{"pci": "0000:3d:00.0", "uuid": GPU, "links": {"0000:3e:00.0": "PHB"}}]},
    "nvidia.smi": f"GPU 0: NVIDIA RTX PRO 6000 (UUID: {GPU})\n",
    "processes": [
        {
            "pid": 7,
            "cgroup": f"0::/system.slice/docker-{LONG}.scope",
            "command": ["python3", "--model", "/home/alice/m", "--host", "10.1.2.3", "--url", "https://hub.acme-corp.com/v1"],
            "shm_mount": f"1 2 0:56 / /dev/shm rw - tmpfs tmpfs rw,mpol=bind:0,source=/var/lib/docker/containers/{LONG}/mounts/shm",
        }
    ],
    "containers": [{"id": LONG, "name": "sglang", "image": IMAGE, "image_id": f"sha256:{OTHER}"}],
    "nccl.logs": [
        {
            "pid": 7,
            "path": "/run/nccl.gpu7.7",
            "text": "gpu7:7:8 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.2.3<0>\n"
            "gpu8:7:8 [0] NCCL INFO NCCL version 2.30.7+cuda13.0\ngpu7:7:8 [0] NCCL INFO MMAP allocated shareable host buffer "
            "/dev/shm/nccl-AbCdEf size 9637888\ngpu7:7:8 [0] NCCL INFO Using fe80::a236:9fff:fe12:3456 a0:36:9f:12:34:56",
        }
    ],
    "units": [{"id": "sglang.service", "exec_start": f"docker run {LONG[:12]} --user alice@gpu7"}],
    "packages": "libnccl2\t2.30.7.1-1+cuda13.0\tii\n",
    "nodes": {"node0/cpulist": "0-11", "node1/cpulist": "12-23"},
    "driver.files": {"gpus/0000:3d:00.0/information": f"GPU UUID: {GPU}\nSerial Number: 1324021000123\nBus Location: 0000:3d:00.0"},
}
CANARIES = (
    "gpu7", "gpu8", "acme", "rack3", "alice", "10.1.2", BOOT, GPU[4:], LONG, LONG[:12], OTHER, "filer", "fe80", "a0:36",
    "1324021000123", "team",
)  # fmt: skip


def full() -> Snapshot:
    return make(**{name.replace(".", "__"): _source(value) for name, value in SECRETS.items()})


def _source(value: Any) -> Source:
    return ok(text=value) if isinstance(value, str) else ok(value)


def test_nothing_that_names_the_owner_is_left() -> None:
    before, after = full().to_json(), scrub(full()).to_json()
    for canary in CANARIES:
        assert canary in before and canary not in after, canary


def test_what_verdicts_rest_on_stays() -> None:
    after = scrub(full())
    assert after.data("nodes") == SECRETS["nodes"] and after.text("packages") == SECRETS["packages"]
    assert after.data("nvml")["driver_version"] == "595.45.04" and list(after.data("nvml")["gpus"][0]["links"]) == ["0000:3e:00.0"]
    assert after.data("kernel.sysctl")["vm/zone_reclaim_mode"] == "0"
    log = after.data("nccl.logs")[0]["text"]
    assert "NCCL version 2.30.7+cuda13.0" in log and "/dev/shm/nccl-AbCdEf size 9637888" in log
    assert "mpol=bind:0" in after.data("processes")[0]["shm_mount"]
    assert after.data("containers")[0]["image"].endswith("/sglang:v0.5") and after.data("containers")[0]["name"] == "sglang"
    assert "BOOT_IMAGE=/vmlinuz-6.1.0" in after.text("kernel.cmdline") and "vers=4.2" in after.text("mounts")
    assert "gpus/0000:3d:00.0/information" in after.data("driver.files")
    assert after.taken_at == "2026-01-31T12:00:00Z" and after.privilege["uid"] == 1000


def test_one_thing_has_one_token_everywhere() -> None:
    after = scrub(full())
    (container,) = after.data("containers")
    assert container["id"] in after.data("processes")[0]["cgroup"] and container["id"][:12] in after.data("units")[0]["exec_start"]
    assert after.data("nvml")["gpus"][0]["uuid"] in after.text("nvidia.smi")
    assert after.host == "root@host-1" and after.data("kernel.sysctl")["kernel/hostname"] == "host-1"
    assert after.data("nccl.logs")[0]["text"].startswith("host-1:7:8 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.")
    assert "\nhost-2:7:8 [0]" in after.data("nccl.logs")[0]["text"]
    assert "/home/user-1/" in after.text("mounts") and after.privilege["user"] == "user-1"


def test_scrubbing_is_pure_and_a_second_time_changes_nothing_that_matters() -> None:
    snapshot = full()
    before = snapshot.to_json()
    first = scrub(snapshot)
    assert snapshot.to_json() == before and scrub(full()).to_json() == first.to_json()
    again = scrub(from_json(first.to_json()))
    assert again.data("nodes") == first.data("nodes") and again.host == "root@host-1"


@pytest.mark.parametrize(
    "host", ["vm", "kernel", "a", "node1", "cpu0", "gpu0", "localhost", "nvidia", "vllm", "10.0.0.5", "7", "docker"]
)
def test_a_host_s_odd_name_renames_nothing_of_the_kernel_s_or_the_engine_s(host: str) -> None:
    text = (
        "0::/kernel vm.zone_reclaim_mode=1 a python3 -m vllm.entrypoints.openai.api_server "
        "/sys/devices/system/node/node1/cpumap /dev/nvidia0 docker-x.scope"
    )
    after = scrub(
        make(host, processes=ok([{"command": [text]}]), nodes=ok({"node1/cpulist": "0"}), cpus=ok({"cpu0/topology/core_id": "0"}))
    )
    assert after.data("processes") == [{"command": [text]}]
    assert after.data("nodes") == {"node1/cpulist": "0"} and "cpu0/topology/core_id" in after.data("cpus")


def test_a_common_host_name_still_gives_way_where_it_is_surely_the_host_s() -> None:
    log = "vm:7:8 [0] NCCL INFO NCCL version 2.30.7"
    sysctl = {"kernel/hostname": "vm", "vm/swappiness": "60"}
    after = scrub(make("vm", kernel__sysctl=ok(sysctl), nccl__logs=ok([{"text": log}])))
    assert after.host == "host-1" and after.data("kernel.sysctl") == {"kernel/hostname": "host-1", "vm/swappiness": "60"}
    assert after.data("nccl.logs")[0]["text"] == log.replace("vm:", "host-1:")


def test_an_engine_s_name_as_a_user_keeps_the_engine_known() -> None:
    after = scrub(make(user="vllm", processes=ok([{"command": ["VLLM::Worker_TP0", "/home/vllm/x", "vllm"]}])))
    assert after.data("processes")[0]["command"][::2] == ["VLLM::Worker_TP0", "vllm"]


def test_an_image_has_one_name_in_a_container_at_rest_and_in_its_compose_file() -> None:
    image = "registry.corp.example:5000/team/sglang:v1"
    sources = {
        "containers.stopped": Source(SourceStatus.OK, data=[{"id": LONG, "image": image}]),
        "compose": Source(SourceStatus.OK, data={"/srv/compose.yaml": f'services:\n  a:\n    image: "{image}"\n'}),
    }
    after = scrub(Snapshot("h", "2026-01-01T00:00:00Z", None, {}, {}, sources))
    (text,) = after.data("compose").values()
    assert "corp" not in after.to_json()
    assert f'image: "{after.data("containers.stopped")[0]["image"]}"' in text


def test_public_images_and_cdi_names_stay() -> None:
    entries = [{"image": "lmsysorg/sglang:v1", "cdi_devices": ["nvidia.com/gpu=0"]}, {"image": "nvcr.io/nvidia/pytorch:25"}]
    assert scrub(make(containers=ok(entries))).data("containers") == entries


def test_reasons_and_missing_values_are_handled() -> None:
    snapshot = Snapshot("box9", "t", None, {}, {}, {"x": Source(SourceStatus.ERROR, reason="box9 at 10.9.9.9 said no")})
    after = scrub(snapshot)
    assert after.boot_id is None and after.source("x").reason == "host-1 at 192.0.2.2 said no"


def test_loopback_and_documentation_addresses_and_versions_of_three_parts_stay() -> None:
    text = "127.0.0.1 0.0.0.0 ::1 :: 192.0.2.7 2.30.7 595.45.04 12:34:56 0000:3d:00.0 sglang::scheduler"
    assert scrub(make(kernel__cmdline=ok(text=text))).text("kernel.cmdline") == text


def test_many_addresses_have_as_many_tokens() -> None:
    text = " ".join(f"10.0.{n // 256}.{n % 256}" for n in range(700))
    after = scrub(make(kernel__cmdline=ok(text=text))).text("kernel.cmdline").split()
    assert len(set(after)) == 700


@given(
    st.text(max_size=60),
    st.text(max_size=20),
    st.recursive(st.text(max_size=20) | st.none() | st.integers(), lambda x: st.lists(x, max_size=3)),
)
def test_no_text_breaks_it(text: str, host: str, data: Any) -> None:
    after = scrub(make(host, kernel__cmdline=ok(text=text), processes=ok(data)))
    assert json.loads(after.to_json())["schema"]

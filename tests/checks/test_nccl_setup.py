"""nccl.shm-size and nccl.conf-conflict."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.finding import Status
from nearsocket.model.host import Engine, Host
from nearsocket.model.verdicts.conf import ROOTS_FILE, parse
from tests import build
from tests.checks import hosts
from tests.checks.judge import judge, one

SHM, CONF = "nccl.shm-size", "nccl.conf-conflict"
MIB = 1 << 20


def room(size: int | None, free: int | None, buffers: bool = False, box: dict[str, Any] | None = None, **changes: Any) -> Host:
    files = (build.buffer(),) if buffers else ()
    return hosts.running(box=box, shm_size_bytes=size, shm_free_bytes=free, buffers=files, **changes)


ON = {"environ": {"NCCL_CUMEM_ENABLE": "1"}, "image": "lmsysorg/sglang:v0.5.23"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (room(1024 * MIB, 1000 * MIB), Status.PASS),
        (room(1024 * MIB, 500 * MIB, buffers=True), Status.PASS),
        (room(64 * MIB, 64 * MIB), Status.FAIL),
        (room(64 * MIB, 64 * MIB, box=ON), Status.WARN),
        (room(1024 * MIB, 3 * MIB), Status.FAIL),
        (room(1024 * MIB, 3 * MIB, buffers=True), Status.WARN),
        (room(128 * MIB, 40 * MIB, buffers=True), Status.WARN),
        (room(None, None), Status.UNKNOWN),
        (room(64 * MIB, 64 * MIB, nccl_log=hosts.log(hosts.P2P)), Status.NOT_APPLICABLE),
        (room(64 * MIB, 64 * MIB, nccl_log=hosts.log(hosts.CUMEM)), Status.NOT_APPLICABLE),
        (build.host(processes=()), Status.NOT_APPLICABLE),
        (build.host(processes=(), uid=1000), Status.UNKNOWN),
        (build.host(processes=hosts.ranks(1, buffers=(), shm_size_bytes=MIB)), Status.NOT_APPLICABLE),
    ],
)
def test_room_is_judged_by_size_free_bytes_and_what_is_sure_to_come(host: Host, status: Status) -> None:
    assert one(SHM, host).status is status


def test_dockers_default_holds_six_ring_buffers_and_the_remedy_names_the_option() -> None:
    found = one(SHM, room(64 * MIB, 64 * MIB))
    assert "holds 6 ring buffers" in found.summary
    assert any("8 ring buffers (2 channels x 2 x 2 ranks)" in item.text for item in found.evidence)
    assert found.remedy is not None and "--shm-size=8g" in found.remedy and "nsenter -t 4242" in found.remedy


def test_channels_and_buffer_size_of_the_environment_count() -> None:
    environ = {"NCCL_CUMEM_ENABLE": "0", "NCCL_MIN_NCHANNELS": "8", "NCCL_BUFFSIZE": "8388608"}
    found = one(SHM, room(256 * MIB, 256 * MIB, box={"environ": environ}))
    assert found.status is Status.FAIL
    assert any("8 channels x 2 x 2 ranks) of 13.2 MiB" in item.text for item in found.evidence)
    few = {"NCCL_CUMEM_ENABLE": "0", "NCCL_MAX_NCHANNELS": "1", "NCCL_BUFFSIZE": "many"}
    assert one(SHM, room(112 * MIB, 112 * MIB, box={"environ": few})).status is Status.PASS


def test_a_host_network_container_without_its_own_shm_gets_the_hosts_remedy() -> None:
    found = one(SHM, room(64 * MIB, 64 * MIB, box={"environ": {}, "ipc_mode": "host"}))
    assert found.remedy is not None and found.remedy.startswith("mount -o remount")


def nvlinked(word: str) -> Host:
    gpus = (build.gpu(0, links={build.gpu(1).pci: word}), build.gpu(1))
    return build.host(gpus=gpus, processes=hosts.ranks(buffers=(), shm_size_bytes=64 * MIB, shm_free_bytes=64 * MIB))


def test_nvlink_between_all_gpus_needs_no_shm_but_other_links_do() -> None:
    assert one(SHM, nvlinked("NV18")).status is Status.NOT_APPLICABLE
    assert one(SHM, nvlinked("NODE")).status is Status.FAIL
    off = dataclasses.replace(nvlinked("NV18"), containers=(build.container(environ={"NCCL_P2P_DISABLE": "1"}),))
    assert one(SHM, off).status is Status.FAIL


def conf(files: dict[str, str], host: Host | None = None, **changes: Any) -> Host:
    made = host or bare()
    sources = {**made.sources, "nccl.conf": build.source(data=files)}
    return dataclasses.replace(made, sources=sources, **changes)


def bare(environ: dict[str, str] | None = None, engine: Engine | None = Engine.VLLM, uid: int = 0) -> Host:
    """Two ranks without a container."""
    return build.host(
        processes=hosts.ranks(container=None, environ=environ or {}, engine=engine, uid=uid),
        containers=(),
        units=(),
        replicas=(build.replica(hosts.ranks(), engine=engine, container=None),),
    )


@pytest.mark.parametrize(
    ("files", "host", "status", "text"),
    [
        ({}, bare(), Status.NOT_APPLICABLE, "no NCCL conf file"),
        ({"/etc/nccl.conf": "# nothing\n"}, bare(), Status.NOT_APPLICABLE, "no NCCL conf file"),
        ({"/etc/nccl.conf": "NCCL_DEBUG=WARN"}, bare(), Status.PASS, "/etc/nccl.conf"),
        ({"/etc/nccl.conf": "NCCL_DEBUG=WARN"}, bare({"NCCL_DEBUG": "WARN"}), Status.PASS, "without conflict"),
        ({"/etc/nccl.conf": "NCCL_DEBUG=WARN"}, bare({"NCCL_DEBUG": "INFO"}), Status.WARN, "the environment sets INFO, which wins"),
        (
            {"/etc/nccl.conf": "NCCL_X=1", ROOTS_FILE: "NCCL_X=2"},
            bare(),
            Status.WARN,
            f"{ROOTS_FILE} sets 2, which wins",
        ),
        ({"/etc/nccl.conf": "NCCL_X=1", "/srv/u/.nccl.conf": "NCCL_X=2"}, bare(), Status.PASS, "/etc/nccl.conf"),
        ({"/etc/nccl.conf": "NCCL_X=1", "/srv/u/.nccl.conf": "NCCL_X=2"}, bare(uid=1000), Status.WARN, "/srv/u/.nccl.conf"),
        ({"/etc/nccl.conf": "NCCL_CUMEM_ENABLE=1"}, bare(engine=Engine.SGLANG), Status.WARN, "SGLang sets the variable first"),
        ({"/etc/nccl.conf": "NCCL_CUMEM_ENABLE=1"}, bare(), Status.PASS, "without conflict"),
        ({"/etc/nccl.conf": "NCCL_CUMEM_ENABLE=0"}, bare(), Status.WARN, "go to /dev/shm"),
        ({"/etc/nccl.conf": "NCCL_CUMEM_HOST_ENABLE=0"}, bare({"NCCL_CUMEM_ENABLE": "1"}), Status.FAIL, "undoes"),
        ({"/x.conf": "NCCL_X=2", "/etc/nccl.conf": "NCCL_X=1"}, bare({"NCCL_CONF_FILE": "/x.conf"}), Status.WARN, "/x.conf sets 2"),
        ({"/etc/nccl.conf": "NCCL_X=1"}, bare({"NCCL_CONF_FILE": "/gone.conf"}), Status.UNKNOWN, "NCCL_CONF_FILE=/gone.conf"),
        ({"/etc/nccl.conf": "NCCL_CUMEM_ENABLE=1"}, build.host(), Status.WARN, "does not see the host's file"),
        ({"/etc/nccl.conf": "NCCL_DEBUG=WARN"}, build.host(), Status.PASS, "reads none"),
        ({"/etc/nccl.conf": "NCCL_DEBUG=WARN"}, build.host(processes=()), Status.PASS, "no conflict"),
        (
            {"/etc/nccl.conf": "NCCL_X=1", ROOTS_FILE: "NCCL_X=2"},
            build.host(processes=()),
            Status.WARN,
            "wins for its user",
        ),
        ({"/etc/nccl.conf": "NCCL_CUMEM_ENABLE=0"}, build.host(processes=()), Status.WARN, "go to /dev/shm"),
    ],
)
def test_conf_files_are_judged_against_what_wins(files: dict[str, str], host: Host, status: Status, text: str) -> None:
    found = one(CONF, conf(files, host))
    assert found.status is status
    assert text in found.summary


def test_a_conf_file_mounted_into_the_container_counts() -> None:
    box = build.container(mounts=(("/etc/nccl.conf", "/etc/nccl.conf", "bind"),), environ={"NCCL_DEBUG": "INFO"})
    host = build.host(containers=(box,))
    assert one(CONF, conf({"/etc/nccl.conf": "NCCL_DEBUG=WARN"}, host)).status is Status.WARN


PIN = {"NCCL_CUMEM_ENABLE": "1"}
ROOT = "/proc/4242/root"


def boxed(**environ: str) -> Host:
    return build.host(containers=(build.container(environ=environ),))


@pytest.mark.parametrize(
    ("files", "host", "status", "text"),
    [
        ({f"{ROOT}/etc/nccl.conf": "NCCL_CUMEM_HOST_ENABLE=0"}, boxed(**PIN), Status.FAIL, "undoes"),
        ({"/proc/9999/root/etc/nccl.conf": "NCCL_CUMEM_HOST_ENABLE=0"}, boxed(**PIN), Status.PASS, "reads none"),
        ({f"{ROOT}/etc/nccl.conf": "NCCL_DEBUG=WARN"}, boxed(**PIN), Status.PASS, f"reads {ROOT}/etc/nccl.conf"),
        ({f"{ROOT}{ROOTS_FILE}": "NCCL_DEBUG=WARN"}, boxed(NCCL_DEBUG="INFO"), Status.WARN, "which wins"),
        (
            {f"{ROOT}/etc/nccl.conf": "NCCL_X=1", f"{ROOT}{ROOTS_FILE}": "NCCL_X=2"},
            boxed(),
            Status.WARN,
            f"{ROOT}{ROOTS_FILE} sets 2, which wins",
        ),
        (
            {f"{ROOT}/etc/nccl.conf": "NCCL_DEBUG=WARN", "/proc/4243/root/etc/nccl.conf": "NCCL_DEBUG=WARN"},
            boxed(),
            Status.PASS,
            f"reads {ROOT}/etc/nccl.conf without",
        ),
        (
            {f"{ROOT}/opt/n.conf": "NCCL_X=2", f"{ROOT}/etc/nccl.conf": "NCCL_X=1"},
            boxed(NCCL_CONF_FILE="/opt/n.conf"),
            Status.WARN,
            f"{ROOT}/opt/n.conf sets 2, which wins",
        ),
        (
            {f"{ROOT}{ROOTS_FILE}": "NCCL_X=2", f"{ROOT}/opt/n.conf": "NCCL_X=1"},
            boxed(NCCL_CONF_FILE="/opt/n.conf", NCCL_X="1"),
            Status.PASS,
            "without conflict",
        ),
        ({f"{ROOT}/opt/n.conf": "<absent>"}, boxed(NCCL_CONF_FILE="/opt/n.conf"), Status.WARN, "names a file that is not there"),
        (
            {"/proc/4243/cwd/n.conf": "NCCL_X=2"},
            boxed(NCCL_CONF_FILE="n.conf", NCCL_X="1"),
            Status.WARN,
            "cwd/n.conf sets NCCL_X=2",
        ),
        ({"/proc/9/cwd/n.conf": "NCCL_X=2"}, boxed(NCCL_CONF_FILE="n.conf"), Status.UNKNOWN, "NCCL_CONF_FILE=n.conf"),
        ({"/opt/n.conf": "NCCL_X=2"}, boxed(NCCL_CONF_FILE="/opt/n.conf"), Status.UNKNOWN, "NCCL_CONF_FILE=/opt/n.conf"),
        ({"/proc/9999/root/opt/n.conf": ""}, boxed(NCCL_CONF_FILE="/opt/n.conf"), Status.UNKNOWN, "NCCL_CONF_FILE=/opt/n.conf"),
        (
            {"/etc/nccl.conf": "NCCL_CUMEM_ENABLE=1", f"{ROOT}/etc/nccl.conf": "NCCL_CUMEM_ENABLE=1"},
            boxed(**PIN),
            Status.PASS,
            "without conflict",
        ),
        ({"/etc/nccl.conf": "NCCL_X=1", "/proc/1/root/etc/nccl.conf": "NCCL_X=2"}, build.host(processes=()), Status.PASS, "2 conf"),
    ],
)
def test_a_containers_own_conf_files_are_judged_as_it_sees_them(
    files: dict[str, str], host: Host, status: Status, text: str
) -> None:
    found = one(CONF, conf(files, host))
    assert found.status is status
    assert text in found.summary


@pytest.mark.parametrize("destination", ["/opt/other.conf", "/etc/nccl.conf.d/a"])
def test_a_file_mounted_where_nccl_does_not_look_does_not_count(destination: str) -> None:
    box = build.container(mounts=(("/etc/nccl.conf", destination, "bind"),), environ={"NCCL_DEBUG": "INFO"})
    assert one(CONF, conf({"/etc/nccl.conf": "NCCL_DEBUG=WARN"}, build.host(containers=(box,)))).status is Status.PASS


@pytest.mark.parametrize("path", ["/etc/nccl.conf", f"{ROOT}/etc/nccl.conf"])
def test_a_file_that_is_there_and_was_not_read_is_unknown_for_who_reads_it(path: str) -> None:
    entry = "<unread: a link, not followed>"
    reader = build.host() if path.startswith(ROOT) else bare()
    found = one(CONF, conf({path: entry}, reader))
    assert found.status is Status.UNKNOWN
    assert f"{path} is there and was not read" in found.summary
    assert "a link, not followed" in found.summary
    other = dataclasses.replace(
        reader, processes=tuple(dataclasses.replace(p, pid=p.pid + 9, container="f" * 12) for p in reader.processes)
    )
    other = dataclasses.replace(other, replicas=(build.replica(other.processes),), containers=(build.container(id="f" * 12),))
    assert one(CONF, conf({path: entry, "/x": "NCCL_X=1"}, other)).status is Status.PASS


def test_unread_conf_files_are_unknown() -> None:
    for source in (build.source(status="denied", reason="permission"), build.source(status="timeout")):
        host = build.host()
        assert one(CONF, dataclasses.replace(host, sources={**host.sources, "nccl.conf": source})).status is Status.UNKNOWN
    assert one(CONF, build.host(sources={})).status is Status.UNKNOWN
    absent = build.source(status="absent", reason="no such file")
    host = build.host()
    assert one(CONF, dataclasses.replace(host, sources={**host.sources, "nccl.conf": absent})).status is Status.NOT_APPLICABLE


def test_the_first_line_of_a_name_wins_and_comments_set_nothing() -> None:
    read = parse("/etc/nccl.conf", "#NCCL_A=0\n NCCL_A = 1 \nNCCL_A=2\nrubbish\n=3\nNCCL_B=x=y\n")
    assert dict(read.settings) == {"NCCL_A": "1", "NCCL_B": "x=y"}


def test_a_conf_file_with_escapes_stays_one_line() -> None:
    judge(CONF, conf({"/etc/nccl.conf": "NCCL_\x1b[31mX=\x1b]0;\x07"}, bare({"NCCL_\x1b[31mX": "1"})))

"""The audit's own part after reading: waivers, maintenance, near, saving, scrubbing; a snapshot stands in for the host."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from nearsocket.control import audit as subject
from nearsocket.control import snapshots
from nearsocket.control.audit import Manner, audit
from nearsocket.control.target import Ssh, Target, Way
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.control.transport.process import Children
from nearsocket.control.waivers import Waiver
from nearsocket.model.check import Check
from nearsocket.model.errors import UsageError
from nearsocket.model.finding import Evidence, Finding, Status, Waived
from nearsocket.model.host import Host
from nearsocket.model.report import Maintenance
from nearsocket.model.scrub import Scrubber
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from nearsocket.report import json as json_report

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)


def manner(**changes: object) -> Manner:
    made: dict[str, object] = {"checks": (), "timeout_s": 30.0, "now": lambda: NOW}
    return Manner(**{**made, **changes})  # type: ignore[arg-type]


def fails(host: Host) -> list[Finding]:
    """Always."""
    return [Finding("", Status.FAIL, host.name, "bad", (Evidence("a file", "text"),), "cure it")]


FAILS = (Check("memory.near-free", fails, "Fails.", ""),)
WAIVER = Waiver("memory.near-free", "gpu1", "known", "ops", date(2026, 3, 31))


@pytest.fixture
def read_from(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Target]]:
    """Makes hosts that answer with an empty snapshot, or raise what is given for their name."""

    def make(*names: str, troubles: dict[str, Exception] | None = None, **changes: object) -> list[Target]:
        def collect(target: Target, timeout_s: float, children: Children) -> Snapshot:
            if troubles and target.name in troubles:
                raise troubles[target.name]
            return Snapshot(target.name, "2026-03-31T11:59:00Z", None, {"uid": 0}, {"version": "0"}, {})

        monkeypatch.setattr(subject, "collect", collect)
        return [Target(name, Way.SSH, Ssh(name), **changes) for name in names]  # type: ignore[arg-type]

    return make


def test_a_waived_failure_is_reported_and_not_counted(read_from: Callable[..., list[Target]]) -> None:
    report = audit(read_from("gpu1"), manner(checks=FAILS, waivers=(WAIVER,)))
    (finding,) = report.hosts[0].findings
    assert finding.status is Status.FAIL
    assert finding.waived is not None
    assert (report.hosts[0].status, report.exit_code) == (Status.NOT_APPLICABLE, 0)


def test_an_expired_waiver_counts_and_is_told(read_from: Callable[..., list[Target]]) -> None:
    over = dataclasses.replace(WAIVER, expires=date(2026, 3, 30))
    report = audit(read_from("gpu1"), manner(checks=FAILS, waivers=(over,)))
    assert [(f.id, f.status) for f in report.hosts[0].findings] == [
        ("host.waiver-unused", Status.WARN),
        ("memory.near-free", Status.FAIL),
    ]
    assert report.exit_code == 2


def test_an_unused_waiver_is_a_warning_of_its_host(read_from: Callable[..., list[Target]]) -> None:
    passes = Check(
        "memory.near-free", lambda host: [Finding("", Status.PASS, host.name, "fine", (Evidence("a", "b"),))], "Passes.", ""
    )
    report = audit(read_from("gpu0", "gpu1"), manner(checks=(passes,), waivers=(WAIVER,)))
    assert [[f.id for f in host.findings] for host in report.hosts] == [
        ["memory.near-free"],
        ["host.waiver-unused", "memory.near-free"],
    ]
    assert report.exit_code == 1


def test_a_host_in_maintenance_is_reported_and_out_of_the_code(read_from: Callable[..., list[Target]]) -> None:
    entry = Maintenance("2026-03-31", "boards")
    down = TransportError(Trouble.UNREACHABLE, "no route", "look")
    report = audit(read_from("gpu1", troubles={"gpu1": down}, maintenance=entry), manner())
    assert report.hosts[0].maintenance == entry
    assert report.hosts[0].status is Status.FAIL
    assert (report.status, report.exit_code) == (Status.NOT_APPLICABLE, 0)
    over = Maintenance("2026-03-30", "boards")
    assert audit(read_from("gpu1", troubles={"gpu1": down}, maintenance=over), manner()).exit_code == 2


def test_strict_and_near_reach_the_judgement(read_from: Callable[..., list[Target]]) -> None:
    def near(host: Host) -> list[Finding]:
        """Warns with the near nodes."""
        return [Finding("", Status.WARN, host.name, f"near {sorted(host.near or ())}", ())]

    checks = (Check("memory.near-free", near, "Near.", ""),)
    targets = read_from("gpu1", near=frozenset({1}))
    assert audit(targets, manner(checks=checks)).hosts[0].findings[0].summary == "near [1]"
    report = audit(targets, manner(checks=checks, near=frozenset({0}), strict=True))
    assert report.hosts[0].findings[0].summary == "near [0]"
    assert report.exit_code == 2


def test_two_hosts_that_would_share_a_file_are_refused_before_any_is_read(
    read_from: Callable[..., list[Target]], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="expected a file for each host"):
        audit(read_from("gpu/1", "gpu_1"), manner(save=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_scrubbed_reports_and_files_do_not_name_the_hosts(read_from: Callable[..., list[Target]], tmp_path: Path) -> None:
    down = TransportError(
        Trouble.REFUSED, "connection refused by secretlab-b port 22", "ssh secretlab-b true", "ssh: secretlab-b: refused"
    )
    targets = read_from("secretlab-a", "secretlab-b", troubles={"secretlab-b": down})
    report = audit(targets, manner(save=tmp_path, scrubber=Scrubber()))
    text = json_report.render(report) + "".join(file.read_text() for file in tmp_path.iterdir())
    assert "secretlab" not in text
    assert [host.name for host in report.hosts] == ["host-1", "host-2"]
    assert [file.name for file in tmp_path.iterdir()] == ["host-1.snapshot.json"]


def test_one_thing_has_one_token_in_every_hosts_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A's home folder, a registry and B's own name stand in the snapshot of the other host too."""

    def collect(target: Target, timeout_s: float, children: Children) -> Snapshot:
        data = [{"command": ["--model", "/home/jane/m", "--peer", "gpu-b.rack.acme-corp.com", "--bind", "10.9.8.7"]}]
        mounts = Source(SourceStatus.OK, "filer.acme-corp.com:/export /home/jane/m rw")
        sources = {"processes": Source(SourceStatus.OK, data=data), "mounts": mounts}
        return Snapshot(target.name, "2026-03-31T11:59:00Z", None, {"uid": 1000, "user": "jane"}, {}, sources)

    monkeypatch.setattr(subject, "collect", collect)
    targets = [Target(f"gpu-{x}.rack.acme-corp.com", Way.SSH, Ssh("10.9.8.7", user="jane")) for x in "ab"]
    waiver = dataclasses.replace(WAIVER, host="*", owner="Jane Doe", reason="jane knows gpu-a")
    report = audit(targets, manner(save=tmp_path, scrubber=Scrubber(), checks=FAILS, waivers=(waiver,)))
    first, second = (json.loads((tmp_path / f"host-{n}.snapshot.json").read_text())["sources"] for n in (1, 2))
    assert first == second
    text = json_report.render(report) + json.dumps([first, second])
    assert [word for word in ("jane", "Jane", "gpu-", "acme", "rack", "10.9.8", "filer") if word in text] == []
    assert report.hosts[0].findings[0].waived == Waived("user-1 knows host-1", "user-2", "2026-03-31")


def test_two_hosts_of_one_short_name_in_two_domains_stay_two(read_from: Callable[..., list[Target]], tmp_path: Path) -> None:
    report = audit(read_from("gpu1.berlin.example", "gpu1.paris.example"), manner(save=tmp_path, scrubber=Scrubber()))
    assert [host.name for host in report.hosts] == ["host-1", "host-2"]


def test_near_that_a_host_has_not_is_wrong_usage_which_names_its_nodes(
    monkeypatch: pytest.MonkeyPatch, read_from: Callable[..., list[Target]]
) -> None:
    nodes = {"online": "0-1", "node0/cpulist": "0-1", "node1/cpulist": "2-3"}
    sources = {"nodes": Source(SourceStatus.OK, data=nodes)}
    targets = read_from("gpu1")
    monkeypatch.setattr(subject, "collect", lambda *_: Snapshot("gpu1", "2026-03-31T11:59:00Z", None, {}, {}, sources))
    with pytest.raises(UsageError, match=r"--near: expected nodes of gpu1 \(0-1\), found 5"):
        audit(targets, manner(near=frozenset({0, 5})))
    with pytest.raises(UsageError, match="found 2"):
        audit([dataclasses.replace(targets[0], near=frozenset({2}))], manner())
    assert audit(targets, manner(near=frozenset({0, 1}))).exit_code == 0


def test_a_snapshot_that_cannot_be_saved_ends_the_audit_in_one_line(read_from: Callable[..., list[Target]], tmp_path: Path) -> None:
    (tmp_path / "gpu1.snapshot.json").write_text('{"mine": 1}')
    with pytest.raises(Exception, match="expected no file or an older snapshot"):
        audit(read_from("gpu1"), manner(save=tmp_path))
    assert (tmp_path / "gpu1.snapshot.json").read_text() == '{"mine": 1}'


def test_a_snapshot_that_breaks_a_parser_is_unknown_and_the_others_go_on(
    read_from: Callable[..., list[Target]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = snapshots.read.host

    def breaks(snapshot: Snapshot, near: frozenset[int] | None) -> Host:
        if snapshot.host == "gpu1":
            raise KeyError("a\nb")
        return whole(snapshot, near)

    monkeypatch.setattr(snapshots.read, "host", breaks)
    report = audit(read_from("gpu1", "gpu2"), manner(checks=FAILS))
    assert [(f.id, f.status) for f in report.hosts[0].findings] == [("host.reachable", Status.UNKNOWN)]
    assert report.hosts[1].findings[0].id == "memory.near-free"

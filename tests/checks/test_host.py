"""host.*: reachable, tuned, automatic upgrades. host.daemon-reload-risk is in test_container."""

from __future__ import annotations

from typing import Any

import pytest

from nearsocket.model.finding import Evidence
from nearsocket.model.host import Host, Package
from nearsocket.model.verdicts.reachable import unclear, unreachable, unusable
from tests import build
from tests.checks.judging import host_with, one, status

REACHABLE, TUNED, UPGRADES = "host.reachable", "host.tuned-profile", "host.unattended-upgrades"


def test_a_host_that_was_read_passes_and_says_by_whom() -> None:
    finding = one(REACHABLE, build.host(program={"version": "0.1.0", "python": "3.11.2", "took_s": "0.8"}))
    assert (finding.status.value, finding.id) == ("pass", REACHABLE)
    count = len(build.host().sources)
    assert f"read as root: {count} of {count} sources" in finding.summary
    assert "python 3.11.2" in finding.evidence[0].text


def test_what_a_plain_user_may_not_read_is_named_and_does_not_warn() -> None:
    finding = one(REACHABLE, host_with({"docker.info": build.source(status="denied", reason="permission denied")}, uid=1000))
    assert finding.status.value == "pass"
    assert "uid 1000" in finding.summary
    assert "docker.info" in finding.summary


@pytest.mark.parametrize(
    ("name", "how"), [("nvidia.topo", "timeout"), ("nvidia.topo", "error"), ("dkms", "timeout"), ("nvml", "error")]
)
def test_a_source_without_an_answer_warns(name: str, how: str) -> None:
    finding = one(REACHABLE, host_with({name: build.source(status=how, reason="8 s")}))
    assert finding.status.value == "warn"
    assert name in finding.summary


def test_a_tool_that_ends_in_an_error_was_reached_and_is_named() -> None:
    bad = {name: build.source(status="error", reason="exit code 1") for name in ("dkms", "numactl")}
    finding = one(REACHABLE, host_with(bad))
    assert finding.status.value == "pass"
    assert "2 ended in an error: dkms, numactl" in finding.summary


def test_nvml_that_refuses_in_its_own_words_was_reached_and_is_named() -> None:
    said = build.source(status="error", reason="NVML: RM has detected an NVML/RM version mismatch.")
    finding = one(REACHABLE, host_with({"nvml": said}))
    assert finding.status.value == "pass" and "1 ended in an error: nvml" in finding.summary


def test_a_snapshot_of_nothing_is_unknown() -> None:
    assert status(REACHABLE, build.host(sources={})) == "unknown"
    assert status(REACHABLE, build.host(sources={"pci": build.source(status="denied")})) == "unknown"


def test_the_findings_of_a_host_without_a_snapshot() -> None:
    evidence = Evidence("ssh", "words")
    for made, expected in ((unreachable, "fail"), (unusable, "fail"), (unclear, "unknown")):
        finding = made("gpu1", "expected this, found that", "do this", evidence)
        assert (finding.id, finding.status.value, finding.subject) == (REACHABLE, expected, "gpu1")
        assert finding.summary.endswith(": expected this, found that")
        assert (finding.remedy, finding.evidence) == ("do this", (evidence,))


def tuned(profile: str, conf: str = "", **sysctl: str) -> Host:
    files = {"active_profile": profile, **({"profile/tuned.conf": conf} if conf else {})}
    return host_with({"tuned": build.source(data=files)}, sysctl={"kernel.numa_balancing": "0", **sysctl})


HPC = "[main]\ninclude=latency-performance\n[sysctl]\n# words\n"
HPC += "kernel.numa_balancing=0\nvm.min_free_kbytes=>135168\n[vm]\nkernel.numa_balancing=9\n"


def test_a_server_profile_whose_values_are_in_force_passes() -> None:
    assert status(TUNED, tuned("hpc-compute", HPC)) == "pass"
    assert status(TUNED, tuned("my-own")) == "pass"


def test_a_value_in_force_that_the_profile_does_not_set_warns() -> None:
    finding = one(TUNED, tuned("hpc-compute", HPC, **{"kernel.numa_balancing": "1"}))
    assert finding.status.value == "warn"
    assert "kernel.numa_balancing is 1, the profile sets 0" in finding.summary


@pytest.mark.parametrize("profile", ["powersave", "balanced", "throughput-performance powersave"])
def test_a_profile_that_saves_power_warns(profile: str) -> None:
    assert status(TUNED, tuned(profile)) == "warn"


def test_no_tuned_or_no_profile_is_not_applicable_and_unread_is_unknown() -> None:
    assert status(TUNED, host_with({"tuned": build.source(status="absent", reason="no such folder")})) == "not-applicable"
    assert status(TUNED, tuned("")) == "not-applicable"
    assert status(TUNED, host_with({"tuned": build.source(status="timeout")})) == "unknown"


ON = 'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n'
OFF = 'APT::Periodic::Unattended-Upgrade "0";\n'
COMMENT = '// APT::Periodic::Unattended-Upgrade "1";\n'
EXCLUDED = 'Unattended-Upgrade::Package-Blacklist {\n  "nvidia-";\n  "libnvidia-";\n  // "vim";\n};\n'


def upgrades(files: dict[str, str], active: str = "active", timer: str = "apt-daily-upgrade.timer", **changes: Any) -> Host:
    made = {
        "timers": build.source(data=[{"id": timer, "active": active, "enabled": "enabled"}]),
        "packages.upgrades": build.source(data=files),
        "packages": build.source(""),
    }
    driver = (Package("nvidia-kernel-open-dkms", "580.95.05-1", "ii"), Package("libnvidia-compute-580", "580.95.05-1", "ii"))
    return host_with(made, **{"packages": driver, **changes})


def test_upgrades_that_may_replace_the_driver_warn() -> None:
    finding = one(UPGRADES, upgrades({"20auto-upgrades": ON}))
    assert finding.status.value == "warn"
    assert finding.remedy == "sudo apt-mark hold libnvidia-compute-580 nvidia-kernel-open-dkms"


@pytest.mark.parametrize(("conf", "wanted"), [("apply_updates = yes\n", "warn"), ("apply_updates = no\n", "pass"), ("", "pass")])
def test_dnf_replaces_only_where_its_file_says_so(conf: str, wanted: str) -> None:
    host = upgrades({"/etc/dnf/automatic.conf": conf} if conf else {}, timer="dnf-automatic.timer", os_id="rhel")
    finding = one(UPGRADES, host)
    assert finding.status.value == wanted
    assert wanted == "pass" or "dnf versionlock add" in (finding.remedy or "")


@pytest.mark.parametrize(
    ("timer", "conf", "wanted"),
    [
        ("dnf-automatic-install.timer", "", "warn"),
        ("dnf-automatic-install.timer", "apply_updates = no", "warn"),
        ("dnf5-automatic.timer", "apply_updates = yes", "warn"),
        ("dnf5-automatic.timer", "apply_updates = no", "pass"),
        ("dnf-automatic-notifyonly.timer", "apply_updates = yes", "pass"),
    ],
)
def test_every_timer_of_dnf_is_judged_by_what_it_does(timer: str, conf: str, wanted: str) -> None:
    finding = one(UPGRADES, upgrades({"/etc/dnf/automatic.conf": conf} if conf else {}, timer=timer, os_id="rhel"))
    assert finding.status.value == wanted
    assert wanted == "pass" or timer in finding.summary


def test_a_host_without_systemd_has_no_such_timers() -> None:
    known = upgrades({"20auto-upgrades": ON})
    gone = host_with({**known.sources, "timers": build.source(status="absent", reason="no systemd")}, packages=known.packages)
    assert status(UPGRADES, gone) == "not-applicable"
    none = host_with({**known.sources, "timers": build.source(data=[])}, packages=known.packages)
    assert status(UPGRADES, none) == "pass"


@pytest.mark.parametrize(
    "files",
    [{}, {"20auto-upgrades": OFF}, {"10periodic": ON, "20auto-upgrades": OFF}, {"20auto-upgrades": COMMENT}],
)
def test_switched_off_passes_and_the_last_file_counts(files: dict[str, str]) -> None:
    assert status(UPGRADES, upgrades(files)) == "pass"


def test_a_stopped_timer_a_hold_or_an_exclusion_passes() -> None:
    assert status(UPGRADES, upgrades({"20auto-upgrades": ON}, active="inactive")) == "pass"
    assert status(UPGRADES, upgrades({"20auto-upgrades": ON, "50unattended-upgrades": EXCLUDED})) == "pass"
    both = frozenset({"nvidia-kernel-open-dkms", "libnvidia-compute-580"})
    assert status(UPGRADES, upgrades({"20auto-upgrades": ON}, holds=both)) == "pass"


def test_a_broken_pattern_excludes_nothing() -> None:
    broken = 'Unattended-Upgrade::Package-Blacklist { "(nvidia"; };\n'
    assert status(UPGRADES, upgrades({"20auto-upgrades": ON, "50unattended-upgrades": broken})) == "warn"


def test_without_driver_packages_it_does_not_apply() -> None:
    assert status(UPGRADES, upgrades({"20auto-upgrades": ON}, packages=())) == "not-applicable"


def test_unread_timers_or_settings_are_unknown() -> None:
    known = upgrades({"20auto-upgrades": ON})
    for name in ("timers", "packages.upgrades"):
        unread = host_with({**known.sources, name: build.source(status="denied")}, packages=known.packages)
        assert status(UPGRADES, unread) == "unknown"

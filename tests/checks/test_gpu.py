"""gpu.*: whether each GPU answers, its memory's errors, and what holds its clocks down."""

from __future__ import annotations

from typing import Any

import pytest

from nearsocket.model.host import Host
from tests import build
from tests.checks.judging import checks, findings, host_with, one, status, without_gpu

PRESENT, ECC, CLOCKS = "gpu.present", "gpu.ecc", "gpu.throttling"
SOUND = {"corrected": 0, "uncorrected": 0, "pending": False, "failed": False}


def told(index: int = 0, **changes: Any) -> dict[str, Any]:
    """What NVML tells of a sound, idle GPU, changed."""
    ecc = {"current": True, "pending": True, "uncorrected": 0, "corrected": 0, "remap": dict(SOUND)}
    entry = {"index": index, "pci": build.gpu(index).pci, "ecc": ecc, "throttle": ["gpu-idle"], "temperature_c": 36, "errors": {}}
    return {**entry, **changes}


def host(*entries: dict[str, Any]) -> Host:
    """The healthy host with one GPU, NVML saying this."""
    return host_with({"nvml": build.source(data={"gpus": list(entries)})}, gpus=(build.gpu(0),))


def errors(**changes: Any) -> Host:
    return host(told(ecc={"current": True, "pending": True, "uncorrected": 0, "corrected": 0, "remap": dict(SOUND), **changes}))


def test_a_sound_idle_gpu_passes_all_three() -> None:
    assert {id: status(id, host(told())) for id in (PRESENT, ECC, CLOCKS)} == dict.fromkeys((PRESENT, ECC, CLOCKS), "pass")


@pytest.mark.parametrize("id", [PRESENT, ECC, CLOCKS])
def test_without_nvml_nothing_is_known_and_without_a_gpu_nothing_is_asked(id: str) -> None:
    late = host_with({"nvml": build.source(status="timeout", reason="no answer in 15.0 s")})
    assert status(id, late) == "unknown" and "no answer in 15.0 s" in findings(id, late)[0].summary
    assert status(id, without_gpu()) == "not-applicable"
    assert status(id, build.host(gpus=(build.gpu(0, driver="vfio-pci"),))) == "not-applicable"


def test_a_gpu_that_nvml_does_not_list_fails_alone_and_is_not_called_sound() -> None:
    both = host_with({"nvml": build.source(data={"gpus": [told(1)]})})
    assert [finding.status.value for finding in findings(PRESENT, both)] == ["fail", "pass"]
    assert "does not list" in findings(PRESENT, both)[0].summary
    assert [finding.status.value for finding in findings(ECC, both)] == ["unknown", "pass"]
    assert [finding.status.value for finding in findings(CLOCKS, both)] == ["unknown", "pass"]


def test_nvml_that_lists_no_gpu_at_all_lacks_this_one() -> None:
    assert status(PRESENT, host()) == "fail"


def test_corrected_errors_warn_with_their_number() -> None:
    finding = one(ECC, errors(corrected=12))
    assert finding.status.value == "warn" and "12 memory errors, all corrected" in finding.summary


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"uncorrected": 7, "corrected": 2}, "7 memory errors that could not be corrected"),
        ({"remap": {**SOUND, "pending": True}}, "waits to be remapped"),
        ({"remap": {**SOUND, "failed": True, "pending": True}}, "could not be remapped"),
        ({"current": False, "remap": {**SOUND, "pending": True}}, "waits to be remapped"),
    ],
)
def test_errors_that_cost_something_fail(changes: dict[str, Any], words: str) -> None:
    finding = one(ECC, errors(**changes))
    assert finding.status.value == "fail" and words in finding.summary


def test_rows_that_were_replaced_are_no_fault() -> None:
    assert status(ECC, errors(remap={**SOUND, "corrected": 2, "uncorrected": 1})) == "pass"


def test_ecc_that_is_off_or_unknown_to_the_card_is_no_pass() -> None:
    off = errors(current=False, uncorrected=None, corrected=None)
    assert status(ECC, off) == "not-applicable"
    none = {"current": None, "pending": None, "uncorrected": None, "corrected": None, "remap": None}
    assert status(ECC, host(told(ecc=none, errors={"nvmlDeviceGetEccMode": "Not Supported"}))) == "not-applicable"
    assert status(ECC, host(told(ecc=none, errors={"nvmlDeviceGetEccMode": "Unknown Error"}))) == "unknown"
    assert status(ECC, errors(uncorrected=None)) == "unknown"


def test_a_snapshot_without_the_rows_is_judged_by_what_it_has() -> None:
    old = {"current": True, "pending": True, "uncorrected": 0, "corrected": 0}
    finding = one(ECC, host(told(ecc=old)))
    assert finding.status.value == "pass" and "remapped rows are not told" in finding.summary
    assert status(ECC, host(told(ecc={**old, "uncorrected": 1}))) == "fail"


@pytest.mark.parametrize("reasons", [[], ["gpu-idle"], ["sw-power-cap"], ["applications-clocks-setting", "sync-boost"], ["bit-9"]])
def test_an_idle_card_a_power_limit_and_clocks_that_were_set_are_no_fault(reasons: list[str]) -> None:
    assert status(CLOCKS, host(told(throttle=reasons))) == "pass"


def test_heat_that_the_driver_answers_warns_and_what_the_card_does_itself_fails() -> None:
    assert status(CLOCKS, host(told(throttle=["sw-power-cap", "sw-thermal-slowdown"]))) == "warn"
    hot = one(CLOCKS, host(told(throttle=["hw-slowdown", "hw-thermal-slowdown"], temperature_c=92)))
    assert hot.status.value == "fail" and "92 C" in hot.evidence[1].text
    assert "airflow" in (hot.remedy or "") and "power supplies" not in (hot.remedy or "")
    brake = one(CLOCKS, host(told(throttle=["hw-slowdown", "hw-power-brake-slowdown"])))
    assert brake.status.value == "fail" and "power supplies" in (brake.remedy or "")
    assert status(CLOCKS, host(told(throttle=["hw-slowdown"]))) == "fail"


def test_clocks_that_nvml_does_not_tell_are_unknown() -> None:
    assert status(CLOCKS, host(told(throttle=None))) == "unknown"


def test_hostile_shapes_of_nvmls_words_end_in_a_finding() -> None:
    for entry in (
        {"pci": build.gpu(0).pci},
        told(ecc=[], throttle={}),
        told(ecc={"current": True, "remap": 3}, throttle=[1, None]),
    ):
        for id in (PRESENT, ECC, CLOCKS):
            assert "the check itself failed" not in checks()[id].run(host(entry))[0].summary

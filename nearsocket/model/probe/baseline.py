"""A host's own earlier figures, `nearsocket.baseline/1`, under a key of what they depend on; a run judged by them. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, passed, warned
from nearsocket.model.probe import series
from nearsocket.model.probe.series import Difference, Series, compare_all, microseconds
from nearsocket.model.probe.sizes import render
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.baseline/1"
#: Slower than the baseline by this share, beyond the noise: a warning; a failure. Far buffers cost 2.4 times (FIELD_NOTES 1).
WARN_SHARE, FAIL_SHARE = 0.10, 0.30
_SHOWN = 6


@dataclass(frozen=True)
class Key:
    """What figures depend on. `gpus`: PCI addresses in rank order; `image`: the engine's, or how it ran without one;
    `environment`: the digest of the ranks' variables (probe/path.py): NCCL_PROTO=LL has other figures."""

    fingerprint: str
    driver: str
    nccl: str
    image: str
    backend: str
    gpus: tuple[str, ...]
    environment: str = ""

    @property
    def digest(self) -> str:
        """A name for it that a file can have."""
        text = json.dumps(dataclasses.astuple(self), separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    @property
    def words(self) -> str:
        """In a line for people."""
        return one_line(
            f"driver {self.driver}, NCCL {self.nccl}, {self.image}, {len(self.gpus)} ranks, {self.fingerprint[:19]}, "
            f"variables {self.environment[:12] or 'not known'}",
            300,
        )


def key(
    fingerprint: str,
    driver: str,
    image: str,
    backend: str,
    gpus: tuple[str, ...],
    environment: str,
    facts: Mapping[int, Mapping[str, Any]],
) -> Optional[Key]:
    """The key of figures by the ranks' facts. None where they did not tell which NCCL they ran: figures under a
    vague key would be compared with others'."""
    first = facts.get(0, {})
    version = first.get("nccl") or first.get("torch")
    if not isinstance(version, str):
        return None
    return Key(fingerprint, driver, version, image, backend, gpus, environment)


@dataclass(frozen=True)
class Baseline:
    """The figures kept under a key, and when (ISO 8601, UTC)."""

    key: Key
    kept_at: str
    sizes: tuple[Series, ...]

    def to_json(self) -> str:
        """Deterministic JSON text with one line feed at its end."""
        value = {"schema": SCHEMA, **dataclasses.asdict(self)}
        return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def from_json(text: str) -> Baseline:
    """The baseline that `to_json` wrote. Raises NearsocketError for anything else."""
    try:
        value: dict[str, Any] = json.loads(text)
        if value["schema"] != SCHEMA:
            raise NearsocketError(f"expected {SCHEMA}, found another schema", "keep a new one: --keep-baseline")
        key = Key(**{**value["key"], "gpus": tuple(value["key"]["gpus"])})
        sizes = tuple(map(series.from_value, value["sizes"]))
        if not all(one.rounds_us and min(one.rounds_us) > 0 for one in sizes):
            raise NearsocketError(f"expected {SCHEMA} with times above zero, found others", "keep a new one: --keep-baseline")
        return Baseline(key, str(value["kept_at"]), sizes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected {SCHEMA}, found: {one_line(str(error), 100)}", "keep a new one: --keep-baseline") from None


def judge(subject: str, key: Key, measured: Sequence[Series], known: Optional[Baseline]) -> Finding:
    """`probe.baseline`: slower than the host itself was under the same key."""
    if known is None:
        shown = (Evidence("baseline key", key.words),)
        return not_applicable(
            subject, "no baseline: nothing is kept for this host, driver, NCCL and image (--keep-baseline)", shown
        )
    found = compare_all(measured, known.sizes)
    if not found:
        return not_applicable(
            subject, "no baseline: none of these sizes is in it", (Evidence("baseline", f"kept {known.kept_at}: {key.words}"),)
        )
    slow = [one for one in found if one.exceeds and one.ratio - 1 >= WARN_SHARE]
    worst = max(slow or found, key=lambda one: one.ratio)
    evidence = _evidence(measured, known, slow or [worst])
    if not slow:
        fast = min(found, key=lambda one: one.ratio)
        return passed(
            subject,
            f"as fast as its baseline at {len(found)} sizes: {_percent(fast.ratio)} to {_percent(worst.ratio)} of its times",
            evidence,
        )
    summary = (
        f"slower than its baseline at {len(slow)} of {len(found)} sizes: {render(worst.size_bytes)} takes {_percent(worst.ratio)} "
        f"of the baseline's time (noise {100 * worst.noise:.0f} %)"
    )
    remedy = "nearsocket audit  # placement, PCIe link, throttling; where the change is meant: --keep-baseline keeps new figures"
    return (failed if worst.ratio - 1 >= FAIL_SHARE else warned)(subject, summary, evidence, remedy)


def _evidence(measured: Sequence[Series], known: Baseline, chosen: Sequence[Difference]) -> tuple[Evidence, ...]:
    now = {one.size_bytes: one for one in measured}
    then = {one.size_bytes: one for one in known.sizes}
    ordered = sorted(chosen, key=lambda one: -one.ratio)[:_SHOWN]
    return tuple(
        Evidence(
            f"baseline of {known.kept_at}",
            f"{render(one.size_bytes)}: {microseconds(now[one.size_bytes].median_us)}, "
            f"was {microseconds(then[one.size_bytes].median_us)}",
        )
        for one in ordered
    )


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"

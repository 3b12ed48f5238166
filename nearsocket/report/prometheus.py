"""The report as Prometheus text, for node_exporter's textfile collector. docs/report.md describes every metric."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nearsocket.model.exitcode import severity
from nearsocket.model.finding import Status
from nearsocket.model.host import Host
from nearsocket.model.report import HostReport, Report
from nearsocket.model.text import one_line
from nearsocket.report import placement
from nearsocket.report.text import counts

_LONGEST_LABEL = 200
_PLACES = {True: "near", False: "far", None: "unknown"}


def render(report: Report) -> str:
    """The text. Of several reports on one host the newest counts, since a metric is about now."""
    registry = CollectorRegistry()
    registry.register(_Families(report))
    return generate_latest(registry).decode()


class _Families(Collector):
    def __init__(self, report: Report) -> None:
        newest: dict[str, HostReport] = {}
        for host in report.hosts:
            label = _label(host.name)
            if label not in newest or host.taken_at >= newest[label].taken_at:
                newest[label] = host
        self.report, self.hosts = report, newest

    def collect(self) -> Iterable[Metric]:
        """Every family, samples in the order of the hosts."""
        yield _family("report_exit_code", "Exit code of the audit: 0, 1, 2 or 3", (), [((), self.report.exit_code)])
        yield from self._verdicts()
        yield from self._machines()

    def _verdicts(self) -> Iterable[Metric]:
        hosts = self.hosts.items()
        yield _family("host_read", "Whether the host could be read", ("host",), (((n,), h.reachable) for n, h in hosts))
        yield _family(
            "host_maintenance",
            "Whether the host is in maintenance",
            ("host",),
            (((n,), h.maintenance is not None) for n, h in hosts),
        )
        yield _family(
            "host_status",
            "1 for the host's worst status, 0 for the others",
            ("host", "status"),
            (((n, status.value), h.status is status) for n, h in hosts for status in Status),
        )
        taken = ((n, _seconds(h.taken_at)) for n, h in hosts)
        yield _family(
            "snapshot_timestamp_seconds",
            "When the host was read; values of a textfile outlive their writer, so alert on its age",
            ("host",),
            (((n,), at) for n, at in taken if at is not None),
        )
        yield _family(
            "findings",
            "Findings that count, by status",
            ("host", "status"),
            (((n, status.value), count) for n, h in hosts for status, count in counts(h.findings).items()),
        )
        yield _family(
            "findings_waived",
            "Findings set aside by a waiver",
            ("host",),
            (((n,), sum(f.waived is not None for f in h.findings)) for n, h in hosts),
        )
        yield _family(
            "check_severity",
            "The worst finding of a check, waived ones left out: 0 not applicable, 1 pass, 2 warn, 3 unknown, 4 fail",
            ("host", "check"),
            (((n, check), worst) for n, h in hosts for check, worst in _worst(h).items()),
        )

    def _machines(self) -> Iterable[Metric]:
        read = [(name, host.host) for name, host in self.hosts.items() if host.host]
        yield _family(
            "ring_buffer_bytes",
            "NCCL's ring buffers by where they lie, against the GPUs that use them",
            ("host", "node", "place"),
            (((n, str(s.node), _PLACES[s.near]), s.size_bytes) for n, h in read for s in _shares(h)),
        )
        yield _family(
            "node_memory_bytes",
            "A node's memory; page_cache includes shared memory",
            ("host", "node", "kind"),
            (((n, *labels), count) for n, h in read for labels, count in _memory(h)),
        )
        yield _family(
            "zfs_arc_bytes", "Size of ZFS's ARC", ("host",), (((n,), h.arc_bytes) for n, h in read if h.arc_bytes is not None)
        )
        gpus = [(n, gpu) for n, h in read for gpu in h.gpus]
        for key, said, of in (("", "in use", "width"), ("_max", "that both ends could use", "max_width")):
            lanes = (((n, _label(g.pci)), getattr(g.link, of)) for n, g in gpus)
            yield _family(
                f"gpu_pcie_lanes{key}", f"Lanes of the GPU's PCIe link {said}", ("host", "gpu"), (x for x in lanes if x[1])
            )


def _family(name: str, said: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"nearsocket_{name}", said, labels=labels)
    for values, number in samples:
        family.add_metric(values, float(number))
    return family


def _label(text: str) -> str:
    return one_line(text, _LONGEST_LABEL)


def _worst(host: HostReport) -> dict[str, int]:
    found: dict[str, int] = {}
    for finding in host.findings:
        if finding.waived is None:
            label = _label(finding.id)
            found[label] = max(found.get(label, 0), severity(finding.status))
    return found


def _shares(host: Host) -> tuple[placement.Share, ...]:
    return placement.shares(host, placement.rings(host.buffers))


def _memory(host: Host) -> Iterable[tuple[tuple[str, str], int]]:
    for node in host.nodes:
        if node.memory:
            kinds = {"total": "total_bytes", "free": "free_bytes", "page_cache": "file_bytes", "shared": "shmem_bytes"}
            yield from (((str(node.id), kind), getattr(node.memory, key)) for kind, key in kinds.items())


def _seconds(moment: str) -> float | None:
    try:
        at = datetime.fromisoformat(moment)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None

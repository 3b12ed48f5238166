"""A verdict as Prometheus text, for node_exporter's textfile collector. Pure, with next to no imports: the watch writes it often.

It takes the JSON value of `nearsocket.verdict/1` and not the object, so that the watch need not build one. Values that a
collector once wrote outlive their writer: so the moments of start and verdict are metrics of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

_WORDS = ("near", "far", "unknown", "not-applicable")
_HELD = ("force", "luck", "unknown")
_HEADS = (
    ("verdict", "Where the replica's NCCL buffers lie: 1 for the word that holds."),
    ("held", "What keeps them there: 1 for the word that holds."),
    ("verdict_timestamp_seconds", "When the verdict was last proven or confirmed; 0: this start was not judged yet."),
    ("start_timestamp_seconds", "When the replica's engine was started."),
    ("ranks_planned", "Ranks (one a GPU) that the plan wants."),
    ("ranks_found", "Ranks that run."),
    ("buffer_bytes", "Bytes of NCCL's ring buffers by node."),
    ("finding", "Findings on the start: 1 for the status that holds."),
)


def text(value: Mapping[str, object], started: float, judged: float) -> str:
    """The metrics of that verdict. `started`, `judged`: Unix time in seconds; 0 where it was not judged."""
    replica = str(value["replica"])
    rows: dict[str, list[str]] = {name: [] for name, _ in _HEADS}
    word = value["word"] if judged else "unknown"
    rows["verdict"] = [_row("verdict", {"replica": replica, "verdict": w}, int(w == word)) for w in _WORDS]
    held = value["held"] if judged else "unknown"
    rows["held"] = [_row("held", {"replica": replica, "by": w}, int(w == held)) for w in _HELD]
    own = {"replica": replica}
    rows["verdict_timestamp_seconds"].append(_row("verdict_timestamp_seconds", own, judged))
    rows["start_timestamp_seconds"].append(_row("start_timestamp_seconds", own, started))
    if judged:
        for name in ("ranks_planned", "ranks_found"):
            rows[name].append(_row(name, own, value[name]))
        by_node, findings = value["by_node"], value["findings"]
        for node, held_bytes in sorted(by_node.items()) if isinstance(by_node, dict) else ():
            rows["buffer_bytes"].append(_row("buffer_bytes", {**own, "node": node}, held_bytes))
        for found in findings if isinstance(findings, list) else ():
            rows["finding"].append(_row("finding", {**own, "id": found["id"], "status": found["status"]}, 1))
    lines = []
    for name, help_text in _HEADS:
        if rows[name]:
            lines += [f"# HELP nearsocket_replica_{name} {help_text}", f"# TYPE nearsocket_replica_{name} gauge", *rows[name]]
    return "\n".join(lines) + "\n"


def stopped(replica: str) -> str:
    """The metrics of a replica that does not run because its policy stopped it."""
    head = "# HELP nearsocket_replica_stopped 1: its last start was proven far, and its policy (fail) stopped it."
    return f"{head}\n# TYPE nearsocket_replica_stopped gauge\n{_row('stopped', {'replica': replica}, 1)}\n"


def _row(name: str, labels: Mapping[str, object], number: object) -> str:
    inside = ",".join(f'{label}="{_escaped(str(value))}"' for label, value in labels.items())
    figure = f"{number:.3f}".rstrip("0").rstrip(".") if isinstance(number, float) else str(number)
    return f"nearsocket_replica_{name}{{{inside}}} {figure}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

"""A finding as JSON's own values (DESIGN, Finding): the audit, explain and verdicts write it alike. Pure."""

from __future__ import annotations

from typing import Any

from nearsocket.model.finding import Evidence, Finding, Status, Waived


def value(found: Finding) -> dict[str, Any]:
    """The finding's keys in their order."""
    waived = found.waived
    return {
        "id": found.id,
        "status": found.status.value,
        "subject": found.subject,
        "summary": found.summary,
        "evidence": [{"source": piece.source, "text": piece.text} for piece in found.evidence],
        "remedy": found.remedy,
        "waived": {"reason": waived.reason, "owner": waived.owner, "expires": waived.expires} if waived else None,
    }


def from_value(entry: Any) -> Finding:
    """The finding that `value` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    waived = entry["waived"]
    return Finding(
        id=entry["id"],
        status=Status(entry["status"]),
        subject=entry["subject"],
        summary=entry["summary"],
        evidence=tuple(Evidence(piece["source"], piece["text"]) for piece in entry["evidence"]),
        remedy=entry["remedy"],
        waived=Waived(waived["reason"], waived["owner"], waived["expires"]) if waived else None,
    )

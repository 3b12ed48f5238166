"""The report as JUnit XML, for the test page of a CI system: a suite for each host, a case for each finding."""

from __future__ import annotations

from xml.etree import ElementTree as xml  # writes only; nothing from outside is parsed

from nearsocket.model import exitcode
from nearsocket.model.errors import EXIT_FAILURES, EXIT_UNKNOWN, EXIT_WARNINGS
from nearsocket.model.finding import Finding, Status
from nearsocket.model.report import HostReport, Report
from nearsocket.model.text import one_line
from nearsocket.report.text import bounded, remedy_text

_LONGEST_NAME, _LONGEST_EVIDENCE = 300, 4000


def render(report: Report, strict: bool = False) -> str:
    """The XML text. A case is red exactly where it makes the exit code 2 (`failure`) or 3 (`error`).

    What counts as a warning passes with its words in `system-out`; what is waived, in maintenance or not applicable is `skipped`.
    """
    suites = [_suite(host, strict) for host in report.hosts]
    root = xml.Element("testsuites", {"name": "nearsocket", **_totals(suites)})
    root.extend(suites)
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def _totals(suites: list[xml.Element]) -> dict[str, str]:
    return {key: str(sum(int(suite.get(key, "0")) for suite in suites)) for key in ("tests", "failures", "errors", "skipped")}


def _suite(host: HostReport, strict: bool) -> xml.Element:
    cases = [_case(finding, host, strict) for finding in host.findings]

    def count(tag: str) -> str:
        return str(sum(case.find(tag) is not None for case in cases))

    suite = xml.Element(
        "testsuite",
        name=one_line(host.name, _LONGEST_NAME),
        timestamp=one_line(host.taken_at, _LONGEST_NAME),
        tests=str(len(cases)),
        failures=count("failure"),
        errors=count("error"),
        skipped=count("skipped"),
    )
    suite.extend(cases)
    return suite


def _case(finding: Finding, host: HostReport, strict: bool) -> xml.Element:
    name = f"{finding.id} {finding.subject}".strip()
    case = xml.Element("testcase", classname=one_line(host.name, _LONGEST_NAME), name=one_line(name, _LONGEST_NAME))
    summary = one_line(finding.summary, _LONGEST_EVIDENCE)
    uncounted = _uncounted(finding, host)
    code = exitcode.code_of(finding, strict)
    if uncounted or finding.status is Status.NOT_APPLICABLE:
        xml.SubElement(case, "skipped", message=f"{uncounted}{finding.status.value}: {summary}")
    elif code in (EXIT_FAILURES, EXIT_UNKNOWN):
        tag = "failure" if code == EXIT_FAILURES else "error"
        xml.SubElement(case, tag, type=finding.status.value, message=summary).text = _body(finding)
    elif code == EXIT_WARNINGS:
        xml.SubElement(case, "system-out").text = f"{finding.status.value}: {summary}\n{_body(finding)}"
    return case


def _uncounted(finding: Finding, host: HostReport) -> str:
    """Why the finding does not count, for the beginning of a line; empty where it does."""
    if finding.waived:
        until, owner, reason = (
            one_line(text, 200) for text in (finding.waived.expires, finding.waived.owner, finding.waived.reason)
        )
        return f"waived until {until} by {owner} ({reason}): "
    if host.maintenance:
        return f"in maintenance until {one_line(host.maintenance.until, 200)} ({one_line(host.maintenance.reason, 200)}): "
    return ""


def _body(finding: Finding) -> str:
    pieces = [f"{one_line(piece.source, _LONGEST_NAME)}: {bounded(piece.text, _LONGEST_EVIDENCE)}" for piece in finding.evidence]
    return "\n".join([*pieces, *(["remedy:", remedy_text(finding.remedy)] if finding.remedy else [])])

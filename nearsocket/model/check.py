"""How a check is declared: a plain function from a host to findings, with a stable id."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable

from nearsocket.model.finding import CORE_IDS, Evidence, Finding, Status
from nearsocket.model.host import Host
from nearsocket.model.text import fault

CheckFunction = Callable[[Host], Iterable[Finding]]
#: A check that says more than this has lost its way; one that never ends must not fill the memory.
MOST_FINDINGS = 10_000
_ID = re.compile(r"[a-z][a-z0-9]*\.[a-z0-9]+(-[a-z0-9]+)*\Z")


@dataclass(frozen=True)
class Check:
    """One registered check. `summary` is the docstring's first line, `explanation` the rest (Markdown)."""

    id: str
    function: CheckFunction
    summary: str
    explanation: str

    @property
    def concern(self) -> str:
        """The part of the id before the dot."""
        return self.id.partition(".")[0]

    @property
    def core(self) -> bool:
        """Whether `unknown` here decides the exit code."""
        return self.id in CORE_IDS

    def run(self, host: Host) -> tuple[Finding, ...]:
        """The check's findings on this host, ids stamped; a fault inside the check is an `unknown`, never a crash.

        Only an interrupt passes: `sys.exit` in a check must not decide the exit code of the audit.
        """
        try:
            found: list[Finding] = []
            for finding in itertools.islice(self.function(host), MOST_FINDINGS + 1):
                if type(finding) is not Finding:
                    raise TypeError(f"expected a Finding, found {type(finding).__name__}")
                found.append(dataclasses.replace(finding, id=self.id))
            if len(found) > MOST_FINDINGS:
                raise ValueError(f"expected at most {MOST_FINDINGS} findings, found more")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's check is code we do not know
            where = fault(error)
            summary = f"the check itself failed ({where}); the other checks are not affected"
            return (Finding(self.id, Status.UNKNOWN, host.name, summary, (Evidence(f"check {self.id}", where),), None),)
        if not found:
            return (Finding(self.id, Status.UNKNOWN, host.name, "the check gave no verdict", ()),)
        return tuple(found)


@dataclass(frozen=True)
class Afterwards:
    """A finding that no function of one host gives: about the whole audit, measured, or about a start; listed
    and documented like a check.

    `where`: the sentence of the documentation that says what gives it.
    """

    id: str
    summary: str
    explanation: str
    concern: str
    core: bool = False
    where: str = "Judged over the whole audit in [nearsocket/control/waivers.py](../../nearsocket/control/waivers.py)."


def check(id: str) -> Callable[[CheckFunction], CheckFunction]:
    """Mark a function as the check `id` (`concern.kebab-case`); its docstring is the check's documentation.

    Raises ValueError where the id or the docstring is not of that form.
    """

    def mark(function: CheckFunction) -> CheckFunction:
        doc = inspect.getdoc(function) or ""
        summary, _, explanation = doc.partition("\n")
        if not _ID.match(id):
            raise ValueError(f"check id {id!r}: expected concern.kebab-case, such as memory.near-free")
        if not summary:
            raise ValueError(f"check {id}: expected a docstring (it becomes the documentation), found none")
        function.nearsocket_check = Check(id, function, summary.strip(), explanation.strip())  # type: ignore[attr-defined]
        return function

    return mark

"""The line of apt's many that says why."""

from __future__ import annotations

import pytest

from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.reprovision.apt import problem

#: apt 3.0 of Debian 13, `apt-get -s install` of a package that a held one breaks.
BROKEN = """Solving dependencies...
Some packages could not be installed. This may mean that you have
requested an impossible situation or if you are using the unstable
distribution that some required packages have not yet been created
or been moved out of Incoming.
The following information may help to resolve the situation:

The following packages have unmet dependencies:
 brake : Breaks: nvidia-kernel-standin (> 580.95.05-0standin1) but 580.105.08-0standin1 is to be installed
E: Error, pkgProblemResolver::Resolve generated breaks, this may be caused by held packages.
E: The following information from --solver 3.0 may provide additional context:
   Unable to satisfy dependencies. Reached two conflicting decisions:
   1. nvidia-kernel-standin:amd64=580.105.08-0standin1 is selected as an upgrade
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BROKEN, "brake : Breaks: nvidia-kernel-standin (> 580.95.05-0standin1) but 580.105.08-0standin1 is to be installed"),
        (BROKEN.replace(" brake : Breaks", " a:amd64 : PreDepends"), "a:amd64 : PreDepends: nvidia-kernel-standin"),
        (f"{BROKEN}dpkg: x: No space left on device\n", "No space left on device"),
        ("E: Held packages were changed and -y was used\nE: x\n", "E: Held packages were changed"),
        ("E: odd\n", "E: odd"),
        ("", "exit code 100"),
    ],
)
def test_the_most_telling_line_is_shown(text: str, line: str) -> None:
    assert line in problem(Output(100, text, ""))

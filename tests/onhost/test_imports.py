"""What a step of a unit imports: each start of a replica runs seven of them, and the program is compiled anew every time."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: What only who reads the whole host or changes it needs.
HEAVY = ("nearsocket.onhost.collect.sources", "nearsocket.onhost.apply.steps", "nearsocket.model.read.assemble", "pynvml")
STEPS = ("relief", "waithealth", "waitidle", "hook", "apply.beat", "apply.progress")


@pytest.mark.parametrize("step", STEPS)
def test_a_step_imports_nothing_of_what_reads_or_changes_a_host(step: str) -> None:
    script = f"import nearsocket.onhost.{step}, sys; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""


def test_the_fingerprint_of_a_start_brings_nothing_that_changes_a_host() -> None:
    script = "import nearsocket.onhost.fingerprint, sys; print('nearsocket.onhost.apply.steps' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"

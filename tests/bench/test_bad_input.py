"""The benches that run without an installation: bad input is one line and 64, as everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.parametrize("script", ["probe_alone.py", "probe_against_plain_loop.py"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env", "NOVALUE"], "--env: expected NAME=VALUE, found 'NOVALUE'"),
        (["--env", "=x"], "--env: expected NAME=VALUE, found '=x'"),
        (["--sizes", "12X"], "expected sizes such as 12K,48M (multiples of 64 bytes, up to 16G), found '12X'"),
    ],
)
def test_a_wrong_option_is_one_line_and_64(script: str, words: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, str(BENCH / script), *words], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (64, "", f"{script}: {said}\n")


def test_a_sweep_of_nothing_is_one_line_and_64() -> None:
    words = [sys.executable, str(BENCH / "probe_alone.py"), "--sweep", "bad"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 64
    assert done.stderr == "probe_alone.py: --sweep: expected NAME=VALUE,VALUE with each name once, found 'bad'\n"

"""`nearsocket probe` as tests call it: on this machine, with the stand-in's ranks; its code and what it said."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import lab.standins.engine
from nearsocket import cli

ENGINE = str(Path(lab.standins.engine.__file__).parent)
RANKS = ("--backend", "standin", "--python", sys.executable, "--near", "0", "--env", f"PYTHONPATH={ENGINE}")
FILES = (*RANKS, "--env", "NCCL_CUMEM_ENABLE=0", "--sizes", "4K,12K")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Code, standard output, standard error."""
    with pytest.raises(SystemExit) as left:
        cli.main(["probe", *words])
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Code and the one report of `--json`."""
    code, out, _ = run(capsys, *words, "--json")
    whole = json.loads(out)
    assert whole["schema"] == "nearsocket.probe/1"
    assert whole["exit_code"] == code
    (one,) = whole["probes"]
    return code, one


def statuses(one: dict[str, Any]) -> dict[str, str]:
    return {finding["id"]: finding["status"] for finding in one["findings"]}

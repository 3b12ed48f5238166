"""The example of docs/own-checks.md is a check that works; a waiver of an id that no check has is told of."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nearsocket.commands.audit import audit
from nearsocket.control.checks import load

ROOT = Path(__file__).parent.parent.parent
SNAPSHOT = ROOT / "tests" / "data" / "real" / "idle.snapshot.json"


def test_the_pages_example_loads_and_judges_a_real_snapshot(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "own-checks.md").read_text(encoding="utf-8"), re.DOTALL)
    assert code
    (tmp_path / "site.py").write_text(code[1], encoding="utf-8")
    assert [check.id for check in load([tmp_path])] == ["site.swap-off"]
    done = CliRunner().invoke(
        audit, ["--json", "--checks", str(tmp_path), "--only", "site.*", str(SNAPSHOT)], standalone_mode=False
    )
    findings = json.loads(done.stdout)["hosts"][0]["findings"]
    assert [(finding["id"], finding["status"]) for finding in findings] == [("site.swap-off", "pass")]


@pytest.mark.parametrize(("id", "warns"), [("nccl.no-such-check", True), ("memory.zfs-arc", False)])
def test_a_waiver_of_an_id_that_no_check_has_warns_even_under_only(tmp_path: Path, id: str, warns: bool) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        f"hosts: [{{name: vm, local: true}}]\nwaivers: [{{id: {id}, reason: known, owner: ops, expires: 2999-01-01}}]\n",
        encoding="utf-8",
    )
    words = [sys.executable, "-m", "nearsocket", "audit", "--json", "--only", "kernel.zone-reclaim-mode", str(fleet)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    ids = [finding["id"] for finding in json.loads(done.stdout)["hosts"][0]["findings"]]
    assert ("host.waiver-unused" in ids) is warns

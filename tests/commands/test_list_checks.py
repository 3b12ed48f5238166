"""`nearsocket list-checks` and the generator of documentation pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nearsocket.commands import docs
from nearsocket.commands.list_checks import list_checks
from nearsocket.control.checks import load
from nearsocket.model.errors import UsageError
from nearsocket.model.probe.pages import PAGES
from nearsocket.model.startfindings import START_FINDINGS

ROOT = Path(__file__).resolve().parent.parent.parent
OWN = 'from nearsocket.model.check import check\n\n\n@check(id="site.own")\ndef own(host):\n    """An \x1b[31mown\x1b[0m rule."""\n'


def test_every_check_has_a_line_and_core_ones_a_mark() -> None:
    lines = CliRunner().invoke(list_checks, []).stdout.splitlines()
    assert len(lines) == len(load([ROOT / "checks"])) + 1 + len(PAGES) + len(START_FINDINGS)
    assert "host.waiver-unused" in [line.split()[0] for line in lines]
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    marked = {line.split()[0] for line in lines if line.split()[1] == "*"}
    assert {"host.reachable", "topology.gpu-node"} <= marked
    assert "memory.near-free" not in marked
    assert all(len(line.split()) > 3 for line in lines)
    measured = {line.split()[0] for line in lines if line.split()[1] == "p"}
    assert measured == {page.id for page in PAGES}


def test_json_is_a_list_of_objects() -> None:
    listed = json.loads(CliRunner().invoke(list_checks, ["--json"]).stdout)
    by_id = {entry["id"]: entry for entry in listed}
    assert by_id["topology.gpu-node"]["core"] is True
    assert by_id["memory.near-free"]["concern"] == "memory"
    assert set(listed[0]) == {"id", "concern", "core", "measured", "summary"}
    assert [entry["id"].startswith("probe.") for entry in listed] == [entry["measured"] for entry in listed]


def test_a_users_folder_is_listed_and_its_escapes_do_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text(OWN)
    done = CliRunner().invoke(list_checks, ["--checks", str(tmp_path)])
    assert "site.own" in done.output
    assert "\x1b" not in done.output


def test_where_the_checks_came_from_is_said_beside_the_list(tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text(OWN)
    done = CliRunner().invoke(list_checks, ["--json", "--checks", str(tmp_path)])
    assert done.stderr == f"checks from {ROOT / 'checks'}, {tmp_path}\n"


def test_a_broken_folder_is_the_commands_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(list_checks, ["--checks", str(tmp_path / "no")])
    assert isinstance(done.exception, UsageError)


def test_pages_are_written_once_and_pages_of_no_check_removed(tmp_path: Path) -> None:
    checks = load([ROOT / "checks"])
    first = docs.write(tmp_path, docs.pages(checks))
    assert len(first) == len(checks) + 2 + len(PAGES) + len(START_FINDINGS)  # the index, that about waivers
    assert docs.write(tmp_path, docs.pages(checks)) == []
    own = tmp_path / "notes.md"
    own.write_text("a person's page")
    assert docs.write(tmp_path, docs.pages(checks[1:])) == [tmp_path / f"{checks[0].id}.md", tmp_path / "README.md"]
    assert own.exists()


def test_a_page_says_what_the_check_says_and_whether_it_is_core(tmp_path: Path) -> None:
    pages = docs.pages(load([ROOT / "checks"]))
    assert "This is a core check" in pages["topology.gpu-node.md"]
    assert "This is a core check" not in pages["memory.near-free.md"]
    assert "- not-applicable: no GPU" in pages["memory.near-free.md"]
    assert "(memory.near-free.md)" in pages["README.md"]


def test_the_generators_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main([str(tmp_path)]) == 0
    assert str(tmp_path / "checks" / "README.md") in capsys.readouterr().out
    assert docs.main([]) == 64
    assert "usage" in capsys.readouterr().err

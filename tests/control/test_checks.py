"""Loading checks from folders: names, ids, and one clear line for a user's broken file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nearsocket.control.checks import load, select
from nearsocket.model.errors import UsageError
from nearsocket.model.judge import judge
from tests import build

ROOT = Path(__file__).resolve().parent.parent.parent
GOOD = '''"""A user's checks."""
from nearsocket.model.check import check
from nearsocket.model.finding import passed, Evidence


@check(id="site.{word}")
def rule(host):
    """A rule of {word}."""
    yield passed(host.name, "holds", (Evidence("here", "{word}"),))
'''


def folder(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    for stem, text in files.items():
        (path / f"{stem}.py").write_text(text)
    return path


def test_ours_and_a_users_checks_load_together_in_the_order_of_ids(tmp_path: Path) -> None:
    checks = load([ROOT / "checks", folder(tmp_path / "mine", site=GOOD.format(word="own"))])
    ids = [check.id for check in checks]
    assert ids == sorted(ids)
    assert {"site.own", "memory.near-free", "topology.gpu-node"} <= set(ids)
    assert checks[ids.index("site.own")].function.__module__ == "nearsocket_checks.site"
    assert sys.modules["nearsocket_checks"].__path__ == []
    assert "checks" not in sys.modules


def test_every_file_of_ours_holds_its_own_concern() -> None:
    for check in load([ROOT / "checks"]):
        file = check.function.__module__.removeprefix("nearsocket_checks.")
        assert file == check.concern or file.startswith(f"{check.concern}_")  # a large concern has several files


def test_a_helper_file_is_left_alone_and_another_files_check_is_not_taken_twice(tmp_path: Path) -> None:
    again = "from nearsocket_checks.a import rule\n" + GOOD.format(word="b")
    made = folder(tmp_path, _helper="raise SystemExit(3)", a=GOOD.format(word="a"), b=again)
    assert [check.id for check in load([made])] == ["site.a", "site.b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n", "SyntaxError: invalid syntax (line 1)"),
        ("\n\nimport no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module' (line 3)"),
        ("raise SystemExit(9)", "SystemExit: 9 (line 1)"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "ZeroDivisionError: division by zero (line 2)"),
        ("from nearsocket.model.check import check\n@check(id='Bad')\ndef f(host):\n    'x'\n", "ValueError: check id 'Bad'"),
        ("from nearsocket.model.check import check\n@check(id='a.b')\ndef f(host): ...\n", "expected a docstring"),
        ("x = 1\n", "expected at least one function marked @check, found none"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines (line 1)"),
        ("\x00", "null bytes"),
    ],
)
def test_a_broken_file_is_one_line_that_names_it(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load([folder(tmp_path, broken=text)])
    assert said in caught.value.message
    assert str(tmp_path / "broken.py") in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 64
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "nearsocket_checks.broken" not in sys.modules or "found none" in said


def test_a_file_that_cannot_be_decoded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(UsageError, match="SyntaxError"):
        load([tmp_path])


def test_equal_file_names_and_equal_ids_are_refused(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "a", one=GOOD.format(word="x")), folder(tmp_path / "b", one=GOOD.format(word="y"))
    with pytest.raises(UsageError, match="expected a file name of its own"):
        load([first, second])
    third = folder(tmp_path / "c", two=GOOD.format(word="x"))
    with pytest.raises(UsageError, match=r"site\.x in .*one\.py too"):
        load([first, third])
    twice = GOOD.format(word="z") + GOOD.format(word="z").split("\n\n\n")[1].replace("rule", "other")
    with pytest.raises(UsageError, match=r"site\.z twice"):
        load([folder(tmp_path / "d", three=twice)])


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "no", folder(tmp_path / "x", f="") / "f.py"):
        with pytest.raises(UsageError, match="expected a folder of checks"):
            load([path])


def test_select_takes_ids_concerns_and_patterns() -> None:
    checks = load([ROOT / "checks"])
    assert select(checks, ()) == checks
    assert [c.id for c in select(checks, ["memory.near-free"])] == ["memory.near-free"]
    assert {c.concern for c in select(checks, ["memory", "topo*"])} == {"memory", "topology"}
    assert {c.id for c in select(checks, ["*.gpu-node"])} == {"topology.gpu-node"}
    with pytest.raises(UsageError, match="found 'nothing'"):
        select(checks, ["memory", "nothing"])


def test_the_judge_orders_by_id_and_survives_a_check_that_breaks(tmp_path: Path) -> None:
    breaks = GOOD.format(word="a").replace("yield passed", "1 / 0; yield passed")
    checks = load([folder(tmp_path, z=breaks, y=GOOD.format(word="b"))])
    found = judge(build.host(), reversed(checks))
    assert [(f.id, f.status.value) for f in found] == [("site.a", "unknown"), ("site.b", "pass")]

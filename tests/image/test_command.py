"""`nearsocket image` as a person runs it, and the deploy's data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nearsocket.cli import main
from nearsocket.control.image import order_from_data
from nearsocket.model.errors import UsageError
from nearsocket.onhost.image.entry import run
from tests.image.kits import EDITED, files, package, raw

BASE = "test/sglang@sha256:" + "ab" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A kit's folder."""
    made = tmp_path / "kit"
    made.mkdir()
    for name, data in files(raw("1.0", "1.1")).items():
        (made / name).write_bytes(data)
    return made


def nearsocket(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["image", *map(str, words)])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return int(str(ended.value.code)), said.out, said.err


def test_apply_and_verify_of_a_folder(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    package(root)
    code, _, said = nearsocket(capsys, "verify", "--root", root, "--kit", folder)
    assert code == 2 and "expected SGLang 1.1 with test/1, found it unpatched" in said
    code, out, said = nearsocket(capsys, "apply", "--root", root, "--kit", folder)
    assert (code, out) == (0, f"test/1 applied to SGLang 1.1 in {root}\n") and "TEST_PATCH=1" in said
    assert nearsocket(capsys, "apply", "--root", root, "--kit", folder)[:2] == (0, f"test/1 is in place in SGLang 1.1 in {root}\n")
    code, out, _ = nearsocket(capsys, "verify", "--root", root, "--kit", folder, "--json")
    assert code == 0
    assert json.loads(out) == {
        "schema": "nearsocket.image-verify/1",
        "patch": "test/1",
        "release": "1.1",
        "package": f"{root}/sglang",
        "variable": None,
        "doubt": "",
    }
    (root / "sglang" / EDITED).write_bytes(b"\x1b[31m")
    code, _, said = nearsocket(capsys, "apply", "--root", root, "--kit", folder)
    assert code == 2 and ": expected sha256 " in said and ", found sha256 " in said


@pytest.mark.parametrize(
    "words",
    [
        ("apply",),
        ("apply", "--root", "/nowhere"),
        ("verify",),
        ("verify", "--image", "a", "--container", "b"),
        ("build", "--tag", "a:1"),
        ("build", "--tag", "a:1", "--base", "b:1"),
        ("apply", "--root", "/", "--kit", "/nowhere"),
    ],
)
def test_wrong_usage_is_64(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert nearsocket(capsys, *words)[0] == 64


def test_the_program_applies_and_leaves_a_record(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    package(tmp_path / "root")
    words = ["apply", "--kit", str(folder), "--root", str(tmp_path / "root"), "--record", str(tmp_path / "image.json")]
    assert run(words) == 0
    record = json.loads((tmp_path / "image.json").read_text())
    assert (record["root"], record["patch"], record["release"]) == (str(tmp_path / "root"), "test/1", "1.1")
    (tmp_path / "root" / "sglang" / EDITED).write_bytes(b"")
    assert run(words) == 2
    assert run([*words[:-1], str(tmp_path / "none" / "image.json")]) == 2


@pytest.mark.parametrize(
    "words", [[], ["else"], ["apply"], ["apply", "--kit"], ["build", "--kit", "x"], ["apply", "--kit", "/nowhere"]]
)
def test_the_programs_wrong_usage_is_64(words: list[str]) -> None:
    assert run(words) == 64


def test_a_refused_order_is_an_answer(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["present", "--order", "{}"]) == 0
    told = json.loads(capfdbinary.readouterr().out)
    assert told["outcome"] is None and "expected an image order" in told["refused"]["message"]


def test_pyinfras_data_are_an_order() -> None:
    data = {"nearsocket_image_tag": "near:1", "nearsocket_image_base": BASE, "nearsocket_image_space_gib": "7", "other": 1}
    order = order_from_data(data, files(raw("1.0")))
    assert (order.tag, order.base, order.archive, order.python) == ("near:1", BASE, None, "python3")
    assert (order.space_gib, order.timeout_s) == (7.0, 3600.0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "expected nearsocket_image_tag, found none"),
        ({"nearsocket_image_tga": 1}, "found nearsocket_image_tga"),
        ({"nearsocket_image_tag": "a:1", "nearsocket_image_timeout": "long"}, "expected a number for timeout_s, found 'long'"),
        ({"nearsocket_image_tag": "a:1"}, "expected either a base or an archive"),
    ],
)
def test_data_that_cannot_be_used_are_one_line(data: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        order_from_data(data, files(raw("1.0")))

"""Images: the recipe's hash, the archive format, the mirror, and what a failing build says and leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab import cpio, image, mirror, tools
from lab.children import reason, stream
from lab.errors import LabError, ToolMissing
from lab.recipe import PROFILES, Recipe, recipe
from lab.tools import Tool


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEARSOCKET_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_same_recipe_has_the_same_digest_and_another_one_another() -> None:
    one = recipe("small")
    assert one.digest == recipe("small").digest
    changed = [
        replace(one, suite="x"),
        replace(one, packages=(*one.packages, "x")),
        replace(one, customize="x"),
        replace(one, init="x"),
    ]
    assert len({one.digest, recipe("full").digest, *(other.digest for other in changed)}) == 6


def test_the_full_image_has_all_of_the_small_one_and_the_engines() -> None:
    assert set(PROFILES["small"]) < set(PROFILES["full"])
    assert {"docker.io", "podman"} <= set(PROFILES["full"])


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(LabError, match="full"):
        recipe("large")


def unpacked(data: bytes) -> dict[str, tuple[int, bytes]]:
    """Read a newc archive by its description: mode and content of each path, until the trailer."""
    files: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[at + 110 : at + 110 + name_size - 1].decode()
        start = at + (110 + name_size + 3) // 4 * 4
        at = start + (size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return files
        files[name] = (mode, data[start : start + size])


def test_an_archive_holds_files_and_the_folders_on_their_way() -> None:
    entries = [cpio.file_entry("a/b/run", b"#!/bin/sh\n", 0o755), cpio.file_entry("odd", b"12345"), cpio.folder_entry("empty")]
    assert unpacked(cpio.archive(entries)) == {
        "a": (0o040755, b""),
        "a/b": (0o040755, b""),
        "a/b/run": (0o100755, b"#!/bin/sh\n"),
        "odd": (0o100644, b"12345"),
        "empty": (0o040755, b""),
    }


def test_archives_can_follow_each_other() -> None:
    assert len(cpio.archive([cpio.file_entry("x", b"1")])) % 512 == 0


def test_the_mirror_is_the_hosts_own_for_debian() -> None:
    said = "Debian-Security|http://s.example/debian-security|main\nDebian|http://m.example/debian|contrib\nDebian|http://m.example/debian|main\n"
    assert mirror.choose(said) == "http://m.example/debian"


@pytest.mark.parametrize("said", ["", "Ubuntu|http://u.example/ubuntu|main\n", "||\n", "Debian||main\n"])
def test_a_host_without_a_debian_mirror_leaves_the_choice_to_mmdebstrap(said: str) -> None:
    assert mirror.choose(said) is None


def test_the_variable_overrides_the_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARSOCKET_LAB_MIRROR", "http://mine.example/debian")
    assert mirror.mirror() == "http://mine.example/debian"


def test_only_settings_of_fetching_go_to_the_guest() -> None:
    dump = 'Acquire::http::Proxy "http://p.example:3142";\nAcquire::http "";\nDir::Etc "/etc";\nAcquire::Check-Date "false";\n'
    assert mirror.kept(dump) == 'Acquire::http::Proxy "http://p.example:3142";\nAcquire::Check-Date "false";\n'


def test_a_missing_program_is_one_line_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "is_root", lambda: False)
    with pytest.raises(ToolMissing, match="no-such-program") as caught:
        tools.need([Tool("no-such-program", "some-package"), Tool("sh", "dash")])
    assert caught.value.hint == "install it: sudo apt-get install some-package (Debian, Ubuntu)"


def test_root_installs_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program, path = tmp_path / "no-such-program", f"{tmp_path}:/usr/bin:/bin"
    apt = tmp_path / "apt-get"
    apt.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n[ "$1" = update ] || install -m 755 /dev/null {program}\n', encoding="utf-8"
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(tools, "is_root", lambda: True)
    tools.need([Tool("no-such-program", "some-package")])
    assert (tmp_path / "asked").read_text(encoding="utf-8").splitlines()[-1].endswith("some-package")


def test_a_failing_installation_is_one_line_with_apts_own_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\necho 'E: Unable to locate package' >&2\nexit 100\n", encoding="utf-8")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(tools, "is_root", lambda: True)
    with pytest.raises(ToolMissing, match="Unable to locate package"):
        tools.need([Tool("no-such-program", "some-package")])


def test_an_empty_path_does_not_find_system_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.find("sh") is None


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (["I: a", "useradd: group x exists", "E: setup failed", "E: mmdebstrap failed to run"], "useradd: group x exists"),
        (["I: a", "E: no such suite", "I: b"], "E: no such suite"),
        (["E: x", "cp: write: No space left on device", "E: y"], "cp: write: No space left on device"),
        (
            ["After this operation, 98.9 MB will be used.", "E: You don't have enough free space in /var/cache/apt/archives/."],
            "E: You don't have enough free space in /var/cache/apt/archives/.",
        ),
        (["Get:1 a", "E: Unable to locate package x"], "E: Unable to locate package x"),
        (["last words"], "last words"),
        ([], "it said nothing"),
    ],
)
def test_the_reason_of_a_failure_is_its_telling_line(tail: list[str], expected: str) -> None:
    assert reason(tail) == expected


def test_a_childs_lines_come_without_control_characters() -> None:
    lines: list[str] = []
    assert stream(["printf", r"a\033[31mb\nc"], lines.append) == (0, ["a [31mb", "c"])
    assert lines == ["a [31mb", "c"]


def test_an_interrupted_child_is_ended_with_all_its_own() -> None:
    pids: list[int] = []

    def stop(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream(["sh", "-c", "sleep 600 & echo $!; wait"], stop)
    stat = Path(f"/proc/{pids[0]}/stat")
    assert not stat.exists() or stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"


def broken(error: BaseException) -> object:
    def build(one: Recipe, work: Path) -> None:
        (work / "disk.raw").write_bytes(b"half")
        raise error

    return build


@pytest.mark.parametrize("error", [KeyboardInterrupt(), LabError("x"), OSError(28, "No space left on device")])
def test_a_build_that_ends_early_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(image, "build", broken(error))
    monkeypatch.setattr(tools, "need", lambda _tools: None)
    with pytest.raises((KeyboardInterrupt, LabError)):
        image.ensure(recipe("small"))
    assert [entry.name for entry in cache.iterdir()] == ["lock"]


def test_a_finished_build_is_kept_and_not_made_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(one: Recipe, work: Path) -> None:
        built.append(one.digest)
        (work / "disk.raw").write_bytes(b"disk")

    monkeypatch.setattr(image, "build", build)
    monkeypatch.setattr(tools, "need", lambda _tools: None)
    (cache / "build-killed").mkdir(parents=True)
    first, second = image.ensure(recipe("small")), image.ensure(recipe("small"))
    assert first == second
    assert built == [recipe("small").digest]
    assert not (cache / "build-killed").exists()
    assert image.forget() == 1
    assert not cache.exists()

"""The manifest: what it must hold, how it is made for new wheels, and that the project's own one fits its texts."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsocket import paths
from nearsocket.control.imagekit import kit_files, manifest
from nearsocket.model.errors import UsageError
from nearsocket.model.image.kit import Kit, read, sha256
from nearsocket.model.image.tree import Entry, Kind, State, judge
from tests.image.kits import ADDED, EDITED, RELIED, files, kit, raw, source


def changed(path: tuple[Any, ...], value: Any) -> dict[str, bytes]:
    """The kit's files with one place of the manifest changed; a value of `...` takes the key out."""
    whole: Any = raw("1.0", "1.1")
    place = whole
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return files(whole)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("schema",), "nearsocket.image-kit/2", "expected schema"),
        (("patch",), ..., "found a fault at 'patch'"),
        (("patch",), "a b", "expected a word"),
        (("releases",), [], "expected at least one release"),
        (("releases",), 3, "found a fault at"),
        (("releases", 0, "edits"), [], "expected at least one edit"),
        (("releases", 0, "edits", 0, "before"), "xyz", "expected a SHA-256"),
        (("releases", 0, "edits", 0, "path"), "../x.py", "expected a relative path"),
        (("releases", 0, "edits", 0, "path"), "/etc/x.py", "expected a relative path"),
        (("releases", 0, "edits", 0, "path"), "a/.git/x.py", "expected a relative path"),
        (("releases", 0, "edits", 0, "path"), RELIED, "expected every path once"),
        (("releases", 0, "edits", 0, "append"), "other.py", "expected other.py among the texts"),
        (("texts", 0, "sha256"), "0" * 64, "added.py: expected sha256 000"),
        (("texts", 0, "path"), "gone.py", "expected a file gone.py"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_one_line(path: tuple[Any, ...], value: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(changed(path, value))
    assert said in caught.value.message and "\n" not in caught.value.message


@pytest.mark.parametrize("data", [b"", b"\xff", b"[1]", b"3", b"null"])
def test_what_is_no_manifest_is_one_line(data: bytes) -> None:
    with pytest.raises(UsageError):
        read({**files(raw("1.0")), "kit.json": data})


def test_a_folder_without_a_manifest_is_no_kit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found no such kit"):
        kit_files(tmp_path)


def test_the_digest_follows_the_kits_own_files_and_no_others() -> None:
    plain = files(raw("1.0"))
    assert read(plain).digest == read({**plain, "notes.txt": b"x"}).digest
    assert read(plain).digest != read({**plain, "NOTICE": b"theirs\n"}).digest


def own() -> Kit:
    return read(kit_files(paths.source_folder() / "templates" / "image"))


def test_the_projects_own_kit_is_whole() -> None:
    found = own()
    text = found.file("chunked.py").decode()
    assert f'NEARSOCKET_PATCH = "{found.patch}"' in text and found.variable in text
    assert f"# ---- nearsocket {found.patch}: " in text.splitlines()[0]
    assert [release.version for release in found.releases] == ["0.5.22", "0.5.23"]
    assert b"Apache License, Version 2.0" in found.file("NOTICE")


def wheel(folder: Path, version: str, **more: bytes) -> Path:
    path = folder / f"sglang-{version}-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**source(version), **more}.items():
            archive.writestr(f"sglang/{name}", data)
    return path


def test_the_manifest_for_wheels_fits_them_and_is_sorted(tmp_path: Path) -> None:
    wheels = [wheel(tmp_path, version) for version in ("1.10", "1.9", "1.9.post1")]
    made = read({**files(raw("1.0")), "kit.json": manifest(files(raw("1.0")), wheels).encode()})
    assert [release.version for release in made.releases] == ["1.9", "1.9.post1", "1.10"]
    assert made.releases[2].wheel.sha256 == sha256(wheels[0].read_bytes())
    tree = {path: Entry(Kind.FILE, data) for path, data in source("1.10").items()}
    verdict = judge(made, tree)
    assert (verdict.state, verdict.release.version) == (State.UNPATCHED, "1.10")


def test_a_wheel_that_the_patch_does_not_fit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "sglang-2.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang/__init__.py", b"")
    with pytest.raises(UsageError, match=f"expected sglang/{EDITED}, found none"):
        manifest(files(raw("1.0")), [path])
    path.write_bytes(b"no zip")
    with pytest.raises(UsageError, match="expected a wheel, found another file"):
        manifest(files(raw("1.0")), [path])
    with pytest.raises(UsageError, match="expected a wheel's file name"):
        manifest(files(raw("1.0")), [wheel(tmp_path, "1.0").rename(tmp_path / "x.whl")])
    with pytest.raises(UsageError, match="expected a manifest with one release to follow"):
        manifest({"kit.json": json.dumps({"releases": []}).encode()}, [])


CONTENTS = st.sampled_from([b"", b"VALUE = 1\n", source("1.0")[RELIED], source("1.1")[RELIED], b"VALUE = 1\n\n\n" + ADDED])


@settings(deadline=None)
@given(edited=CONTENTS, relied=CONTENTS, kind=st.sampled_from(list(Kind)))
def test_patched_is_said_of_nothing_but_a_release_with_the_patch(edited: bytes, relied: bytes, kind: Kind) -> None:
    verdict = judge(kit(), {EDITED: Entry(kind, edited), RELIED: Entry(Kind.FILE, relied)})
    releases = {source(version)[RELIED]: version for version in ("1.0", "1.1")}
    right = kind is Kind.FILE and edited == b"VALUE = 1\n\n\n" + ADDED and relied in releases
    assert (verdict.state is State.PATCHED) is right
    if right:
        assert verdict.release.version == releases[relied]
    assert (verdict.state is State.FOREIGN) is bool(verdict.mismatches)

"""The source `generation`: the manifest in force."""

from __future__ import annotations

from pathlib import Path

from nearsocket.model.snapshot import SourceStatus
from nearsocket.onhost.collect.files import Context
from nearsocket.onhost.collect.generation import generation


def test_the_manifest_is_read_through_the_link(tmp_path: Path) -> None:
    (tmp_path / "etc/nearsocket/generations/3").mkdir(parents=True)
    (tmp_path / "etc/nearsocket/generations/3/manifest.json").write_text('{"schema": "x"}\n')
    (tmp_path / "etc/nearsocket/current").symlink_to("generations/3")
    assert generation(Context(root=tmp_path)).text == '{"schema": "x"}\n'


def test_a_host_that_is_not_managed_has_none(tmp_path: Path) -> None:
    assert generation(Context(root=tmp_path)).status is SourceStatus.ABSENT

"""Baselines on the host: whole or not at all, under the key that they are of."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.series import Series
from nearsocket.model.snapshot import SourceStatus
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect import baselines as collected
from nearsocket.onhost.collect.files import Context
from nearsocket.onhost.probe import baselines

KEY = Key("sha256:ab", "595.45", "2.30.7", "engine", "nccl", ("0000:c1:00.0",))
MADE = Baseline(KEY, "2026-01-01T00:00:00Z", (Series(4096, 2, (1.0, 1.5), 2.0),))


def test_what_was_kept_is_there_and_nothing_else(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert baselines.load(tree, KEY.digest) is None
    assert baselines.keep(tree, KEY.digest, MADE.to_json().encode()) == MADE.to_json().encode()
    assert baselines.main(["--digest", KEY.digest], tree) == MADE.to_json().encode()
    assert [path.name for path in (tmp_path / "var/lib/nearsocket/baselines").iterdir()] == [f"{KEY.digest}.json"]


def test_a_baseline_of_another_key_or_no_baseline_is_refused_and_nothing_written(tmp_path: Path) -> None:
    for data in (b"{}", b"\xff\xfe", MADE.to_json().encode().replace(b"595.45", b"595.46")):
        with pytest.raises(NearsocketError):
            baselines.keep(Tree(tmp_path), KEY.digest, data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "x" * 32, KEY.digest + "0"])
def test_only_a_digest_names_a_file(tmp_path: Path, digest: str) -> None:
    with pytest.raises(UsageError, match="32 hexadecimal digits"):
        baselines.main(["--digest", digest], Tree(tmp_path))


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    baselines.keep(tree, KEY.digest, MADE.to_json().encode())
    path = tmp_path / f"var/lib/nearsocket/baselines/{KEY.digest}.json"
    secret = tmp_path / "secret"
    path.rename(secret)
    path.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        baselines.load(tree, KEY.digest)


def test_keeping_reads_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MADE.to_json().encode())))
    assert baselines.main(["--digest", KEY.digest, "--keep", "yes"], Tree(tmp_path)) == MADE.to_json().encode()


def test_a_snapshot_takes_the_kept_ones_along_and_follows_no_link(tmp_path: Path) -> None:
    assert collected.baselines(Context(tmp_path)).status is SourceStatus.ABSENT
    baselines.keep(Tree(tmp_path), KEY.digest, MADE.to_json().encode())
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "var/lib/nearsocket/baselines/other.json").symlink_to(tmp_path / "secret")
    found = collected.baselines(Context(tmp_path))
    assert (found.data, found.reason) == ([MADE.to_json()], "1 of 2 baselines were not read")

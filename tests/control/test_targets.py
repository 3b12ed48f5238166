"""What a word on the command line names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control.target import Ssh, Way, parse_host
from nearsocket.control.targets import resolve
from nearsocket.model.errors import UsageError

HOSTS = [
    ("gpu1", "gpu1", Ssh("gpu1")),
    ("root@gpu1", "gpu1", Ssh("gpu1", "root")),
    ("root@gpu1:2222", "gpu1:2222", Ssh("gpu1", "root", 2222)),
    ("10.0.0.1:22", "10.0.0.1:22", Ssh("10.0.0.1", None, 22)),
    ("fd00::1", "fd00::1", Ssh("fd00::1")),
    ("root@fe80::1%eth0", "fe80::1%eth0", Ssh("fe80::1%eth0", "root")),
    ("[fd00::1]", "fd00::1", Ssh("fd00::1")),
    ("root@[fd00::1]:2222", "[fd00::1]:2222", Ssh("fd00::1", "root", 2222)),
    ("::1", "::1", Ssh("::1")),
    ("root@::ffff:10.0.0.1", "::ffff:10.0.0.1", Ssh("::ffff:10.0.0.1", "root")),
    ("[::1]:42022", "[::1]:42022", Ssh("::1", None, 42022)),
    ("svc@corp@gpu1", "gpu1", Ssh("gpu1", "svc@corp")),
    ("my_alias", "my_alias", Ssh("my_alias")),
]


@pytest.mark.parametrize(("text", "name", "ssh"), HOSTS)
def test_a_host_is_user_host_and_port(text: str, name: str, ssh: Ssh) -> None:
    target = parse_host(text)
    assert (target.name, target.way, target.ssh) == (name, Way.SSH, ssh)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@gpu1",
        "-oProxyCommand=x",
        "root@-oProxyCommand=x",
        "-l@gpu1",
        "gpu1:",
        "gpu1:ssh",
        "gpu1:0",
        "gpu1:65536",
        "a b",
        "gpu1;id",
        "[gpu1",
        "[::1]x",
        "::1%a;id",
        "::-oProxyCommand=x",
        "x" * 5000 + " ",
        "gpu1:" + "9" * 5000,
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_host(text)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300


@given(st.text(max_size=40))
def test_no_text_becomes_an_option_of_ssh(text: str) -> None:
    try:
        target = parse_host(text)
    except UsageError:
        return
    assert target.ssh
    assert not target.ssh.hostname.startswith("-")
    assert not (target.ssh.user or "").startswith("-")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_word_is_this_machine(here: Path) -> None:
    (target,) = resolve([]).targets
    assert (target.way, target.name) == (Way.LOCAL, os.uname().nodename)
    assert resolve(["@local"]) == resolve([])


def test_a_file_is_taken_by_its_suffix_and_a_folder_for_its_snapshots(here: Path) -> None:
    (here / "fleet.yaml").write_text("hosts: [{name: gpu7}]")
    (here / "inventory.py").write_text("hosts = ['gpu8']")
    (here / "taken").mkdir()
    for name in ("b.snapshot.json", "a.snapshot.json", "notes.json", ".c.snapshot.json"):
        (here / "taken" / name).write_text("{}")
    found = resolve(["fleet.yaml", "inventory.py", "taken", "taken/notes.json", "gpu9"]).targets
    assert [t.name for t in found] == ["gpu7", "gpu8", "taken/a.snapshot.json", "taken/b.snapshot.json", "taken/notes.json", "gpu9"]
    assert [t.way for t in found] == [Way.SSH, Way.SSH, Way.FILE, Way.FILE, Way.FILE, Way.SSH]


def test_a_target_that_is_named_twice_is_read_once(here: Path) -> None:
    (here / "fleet.yaml").write_text("hosts: [{name: gpu1}]\nwaivers: [{id: a.b, reason: r, owner: o, expires: 2026-01-01}]")
    inventory = resolve(["gpu1", "gpu1", "fleet.yaml", "fleet.yaml"])
    assert [t.name for t in inventory.targets] == ["gpu1"]
    assert len(inventory.waivers) == 1


def test_an_existing_file_wins_over_a_host_and_says_how_to_name_the_host(here: Path) -> None:
    (here / "gpu1").write_text("notes")
    with pytest.raises(UsageError, match="found another file") as caught:
        resolve(["gpu1"])
    assert "root@gpu1" in (caught.value.hint or "")
    (here / "gpu2").mkdir()
    with pytest.raises(UsageError, match="found none in it"):
        resolve(["gpu2"])
    assert resolve(["root@gpu2"]).targets[0].name == "gpu2"


@pytest.mark.parametrize("word", ["nowhere.yaml", "./nowhere", "taken/x.json", "@docker/x", "@"])
def test_what_is_neither_file_nor_host_is_refused(here: Path, word: str) -> None:
    with pytest.raises(UsageError):
        resolve([word])


def test_a_link_is_followed(here: Path) -> None:
    (here / "real.yaml").write_text("hosts: [{name: gpu1}]")
    (here / "link.yaml").symlink_to("real.yaml")
    assert resolve(["link.yaml"]).targets[0].name == "gpu1"


@pytest.mark.parametrize("word", ["", " ", "\t"])
def test_an_empty_word_is_no_folder(word: str) -> None:
    with pytest.raises(UsageError, match=r"found an empty word\Z"):
        resolve([word])


def test_saved_snapshots_are_chosen_by_their_hosts_names(tmp_path: Path) -> None:
    for name in ("gpu1.snapshot.json", "gpu2.snapshot.json", "other.snapshot.json"):
        (tmp_path / name).touch()
    inventory = resolve([str(tmp_path)])
    assert [target.name for target in inventory.limited(["gpu?"]).targets] == [
        str(tmp_path / "gpu1.snapshot.json"),
        str(tmp_path / "gpu2.snapshot.json"),
    ]
    assert [target.file for target in inventory.limited(["other"]).targets] == [tmp_path / "other.snapshot.json"]
    with pytest.raises(UsageError, match="--limit gpu9: "):
        inventory.limited(["gpu9"])

"""Fleet YAML: what it means, and one exact line for each fault in it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control import fleet
from nearsocket.control.inventory import Inventory
from nearsocket.control.target import Way
from nearsocket.model.errors import UsageError

WHOLE = """
defaults:
  user: root
  port: 2222
  near: 0-1
  sudo: true
hosts:
  - name: gpu1
    address: fd00::1
    groups: [rack-a]
    waivers:
      - {id: memory.near-free, reason: cache, owner: ops, expires: 2026-03-31}
  - name: gpu2
    user: admin
    port: 22
    ssh_key: ~/.ssh/fleet
    ssh_connect_timeout: 3
    sudo: {user: svc}
    near: 1
    maintenance: {until: "2026-04-01", reason: new boards}
  - name: here
    local: true
    sudo: false
waivers:
  - {id: kernel.numa-balancing, host: "gpu*", reason: measured, owner: ops, expires: 2026-12-31}
"""


def read(tmp_path: Path, text: str | bytes) -> Inventory:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return fleet.read(path)


def test_hosts_take_their_own_word_first_and_the_defaults_next(tmp_path: Path) -> None:
    first, second, here = read(tmp_path, WHOLE).targets
    assert first.ssh and second.ssh
    assert (first.name, first.ssh.hostname, first.ssh.user, first.ssh.port) == ("gpu1", "fd00::1", "root", 2222)
    assert (second.ssh.hostname, second.ssh.user, second.ssh.port) == ("gpu2", "admin", 22)
    assert (second.ssh.key, second.ssh.connect_timeout_s) == ("~/.ssh/fleet", 3.0)
    assert first.sudo and first.sudo.user is None
    assert second.sudo and second.sudo.user == "svc"
    assert (first.near, second.near) == ({0, 1}, {1})
    assert first.groups == {"rack-a"}
    assert (here.way, here.ssh, here.sudo) == (Way.LOCAL, None, None)


def test_waivers_and_maintenance_are_read(tmp_path: Path) -> None:
    inventory = read(tmp_path, WHOLE)
    assert [(w.id, w.host, w.expires) for w in inventory.waivers] == [
        ("kernel.numa-balancing", "gpu*", date(2026, 12, 31)),
        ("memory.near-free", "gpu1", date(2026, 3, 31)),
    ]
    maintenance = inventory.targets[1].maintenance
    assert maintenance
    assert (maintenance.until, maintenance.reason) == ("2026-04-01", "new boards")


def test_machines_behind_one_address_are_told_apart_by_their_ports_or_by_ssh_s_own_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("hosts: [{name: a, address: jump, port: 1}, {name: b, address: jump, port: 2}]")
    assert len(fleet.read(path).targets) == 2
    path.write_text("hosts: [{name: a, address: box}, {name: b, address: box, ssh_config_file: other}]")
    assert len(fleet.read(path).targets) == 2


FAULTS = [
    ("hosts: [{name: gpu1, prot: 1}]", ":1: hosts.0.prot: expected one of", "found 'prot'; did you mean 'port'?"),
    ("hosts:\n  - name: gpu1\n  - nam: gpu2", ":3: ", "did you mean 'name'?"),
    ("hosts:\n  - name: gpu1\n    port: 99999", ":3: hosts.0.port: expected to be less than or equal to 65535", "found 99999"),
    ("hosts:\n  - address: gpu1", ":2: expected 'name' in hosts.0", "found none"),
    ("waivers: []", "expected 'hosts' in the file", "found none"),
    ("hosts: []", ":1: hosts: ", "found []"),
    ("hosts: [{name: gpu1}, {name: gpu1}]", "expected each host once", "found 'gpu1' twice"),
    (
        "defaults: {port: 2222}\nhosts: [{name: a, address: Gpu1}, {name: gpu1}]",
        "expected each machine once",
        "gpu1 port 2222 as 'a' and as 'gpu1'",
    ),
    ("hosts: [{name: a, address: gpu1}, {name: b, address: gpu1, port: 22}]", "expected each machine once", "as 'a' and as 'b'"),
    ("hosts: [{name: '-oProxyCommand=x'}]", "expected a host name or an address", "found '-oProxyCommand=x'"),
    ("hosts: [{name: gpu1, near: a}]", "hosts.0.near: expected a list such as 0-3,8", "found 'a'"),
    ("hosts: [{name: gpu1, maintenance: {until: soon, reason: x}}]", "hosts.0.maintenance.until: expected a day", "found 'soon'"),
    ("hosts: [{name: gpu1, maintenance: {until: 2026-13-40, reason: x}}]", ":1: until: expected a day", "found '2026-13-40'"),
    (
        "hosts: [{name: gpu1}]\nwaivers: [{id: a.b, reason: r, owner: o, expires: 2026-01-01, hst: x}]",
        ":2: waivers.0.hst",
        "did you mean 'host'?",
    ),
    (
        "hosts: [{name: gpu1}]\nwaivers: [{id: everything, reason: r, owner: o, expires: 2026-01-01}]",
        "waivers.0.id: expected to match",
        "'everything'",
    ),
    ("hosts: [{name: gpu1, sudo: {usr: x}}]", "hosts.0.sudo.usr: expected one of user", "did you mean 'user'?"),
    ("hosts: [{name: gpu1, sudo: maybe}]", "hosts.0.sudo", "found 'maybe'"),
    (
        "hosts: [{name: gpu1, ssh_password: x}]",
        "hosts.0.ssh_password: expected no password in a fleet file",
        "NEARSOCKET_SUDO_PASSWORD",
    ),
    ("- gpu1", "expected a mapping with `hosts`", "found a list"),
    ("", "expected a mapping with `hosts`", "found nothing"),
    ("hosts: [", "expected YAML", "line 1"),
    ("hosts: !!python/object/apply:os.system ['touch /tmp/owned']", "expected YAML", "could not determine a constructor"),
    (b"\xff\xfe\x00", "expected YAML, found a character that no text has", "at position 2"),
    (b"hosts: \x00", "expected YAML, found a character that no text has", "at position 7"),
    ("hosts: " + "[" * 5000, "expected YAML", "nested too deeply"),
    ("hosts: [{name: a}]\nwaivers: []\nhosts: [{name: b}]", ":3: expected each key once", "found 'hosts' twice"),
    ("hosts:\n  - name: a\n    port: 1\n    port: 2", ":4: expected each key once", "found 'port' twice"),
    ("hosts: [{name: gpu1, near: ''}]", "hosts.0.near: expected a list of nodes such as 0-3,8", "found ''"),
    ("hosts: [{name: gpu1, near: '\u0663'}]", "hosts.0.near: expected a list such as 0-3,8", ""),
    ("hosts: [{name: gpu1, ssh_connect_timeout: .nan}]", "hosts.0.ssh_connect_timeout: expected", "found nan"),
    ("hosts: [{name: gpu1, groups: 5}]", "hosts.0.groups: expected a list", "found 5"),
    ("hosts: {a: 1}", ":1: hosts: expected a list", 'found {"a": 1}'),
    ("hosts: [gpu1]", ":1: hosts.0: expected a mapping", "found 'gpu1'"),
    ("hosts: [{name: }]", "hosts.0.name: expected a text", "found nothing"),
    ("hosts: []", "hosts: expected at least one", "found []"),
    ("hosts:\n- name: a\n  maintenance:\n    until: 2026-13-45", ":4: until: expected a day such as", "found '2026-13-45'"),
    ("hosts: [{name: a, maintenance: {until: '2026-13-45', reason: x}}]", "maintenance.until: expected a day", "'2026-13-45'"),
    (f"hosts: [{{name: a, port: {'9' * 5000}}}]", ":1: port: expected a value that can be read", "..."),
    ("hosts: [{name: a, user: -oProxyCommand=x}]", "hosts.0.user: expected a user name", "found '-oProxyCommand=x'"),
    ("hosts: [{name: a, sudo: {user: -x}}]", "hosts.0.sudo.user: expected a user name", "found '-x'"),
    ("hosts: [{name: a, sudo: [x]}]", "hosts.0.sudo: expected true, false or a mapping", 'found ["x"]'),
    (f"hosts: [{{name: {'a' * 256}}}]", "hosts.0.name: expected to have at most 255 characters", "found 'aaa"),
    ("hosts: &a [*a, {x: 2026-13-45}, {y: 2026-14-45}]", ":1: x: expected a day", "found '2026-13-45'"),
    ("hosts: &a [*a]", "hosts.0: expected a mapping", "found a list"),
]
#: Every number of a fleet file; Python would take true for 1.
NUMBERS = [
    "port: true",
    "ssh_connect_timeout: true",
    "reserved_cores: false",
    "tune: {numa_balancing: off}",
    "tune: {zone_reclaim_mode: no}",
    "tune: {swappiness: yes}",
    "serve: {gpu_count: true}",
    "serve: {host_memory: true}",
    "serve: {limits: {start: true}}",
    "serve: {limits: {restarts: true}}",
    "serve: {limits: {shm: true}}",
    "serve: {limits: {cpus: true}}",
    "serve: {verify: {timeout: true}}",
    "serve: {probe: {limit: true}}",
    "replicas: [{name: b, port: true}]",
    "replicas: [{name: b, gpus: true}]",
]


@pytest.mark.parametrize("said", NUMBERS)
def test_a_boolean_is_no_number(tmp_path: Path, said: str) -> None:
    with pytest.raises(UsageError, match=r":1: hosts\.0\.[a-z0-9._]+: expected .*, found (true|false)\Z"):
        read(tmp_path, f"hosts: [{{name: gpu1, {said}}}]")


def test_a_name_of_255_characters_and_a_user_of_a_domain_are_taken(tmp_path: Path) -> None:
    (target,) = read(tmp_path, f"hosts: [{{name: {'a' * 255}, user: 'corp\\svc@corp'}}]").targets
    assert target.ssh and (len(target.name), target.ssh.user) == (255, "corp\\svc@corp")


@pytest.mark.parametrize(("text", "begin", "end"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_one_line_that_names_place_expected_and_found(tmp_path: Path, text: str | bytes, begin: str, end: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    message = caught.value.message
    assert message.startswith(str(tmp_path / "fleet.yaml"))
    assert "\n" not in message
    assert "\\n" not in message
    assert begin in message
    assert end in message


def test_an_alias_is_no_second_key_and_an_address_may_begin_with_colons(tmp_path: Path) -> None:
    text = "groups: {a: &a {user: root}, b: *a}\nhosts: [{name: one, address: '::1', groups: [b]}]"
    (target,) = read(tmp_path, text).targets
    assert target.ssh and (target.ssh.hostname, target.ssh.user) == ("::1", "root")


def test_a_waiver_whose_pattern_matches_no_host_is_marked(tmp_path: Path) -> None:
    assert [(w.host, w.nobody) for w in read(tmp_path, WHOLE).waivers] == [("gpu*", False), ("gpu1", False)]
    assert read(tmp_path, WHOLE.replace('"gpu*"', '"gpuu*"')).waivers[0].nobody


def test_a_file_of_gigabytes_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 33)
    with pytest.raises(UsageError, match="at most 8 MiB"):
        fleet.read(path)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["hosts", "defaults", "waivers", "name", "sudo", "near", "maintenance", "until", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_anything_is_an_inventory_or_one_line(tmp_path_factory: pytest.TempPathFactory, whole: object) -> None:
    import yaml

    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(whole))
    try:
        fleet.read(path)
    except UsageError as error:
        assert "\n" not in error.message


def test_limits_choose_by_name_and_group_and_refuse_what_chooses_nothing(tmp_path: Path) -> None:
    inventory = read(tmp_path, WHOLE)
    assert [t.name for t in inventory.limited(["rack-a", "here"]).targets] == ["gpu1", "here"]
    assert [t.name for t in inventory.limited(["gpu?"]).targets] == ["gpu1", "gpu2"]
    assert inventory.limited([]) is inventory
    with pytest.raises(UsageError, match="--limit gpu9"):
        inventory.limited(["gpu1", "gpu9"])

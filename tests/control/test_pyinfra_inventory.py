"""pyinfra inventories: read by pyinfra's own loader, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nearsocket.control import pyinfra_inventory
from nearsocket.control.target import Way
from nearsocket.model.errors import UsageError

WHOLE = """
import datetime
print("an inventory may talk")
gpus = (
    [
        ("gpu1", {"ssh_port": "2222", "_sudo": False, "nearsocket_near": 1}),
        "@nearsocket/gpu2",
        ("@local", {"_sudo": False}),
    ],
    {
        "ssh_user": "root", "ssh_password": "hunter2", "_sudo": True, "_sudo_user": "svc", "other": object(),
        "nearsocket_waivers": [{"id": "memory.near-free", "reason": "r", "owner": "o", "expires": datetime.date(2026, 3, 31)}],
        "nearsocket_maintenance": {"until": "2026-04-01", "reason": "boards"},
    },
)
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "inventory.py"
    path.write_text(text)
    return path


def test_data_of_host_and_group_reaches_the_targets(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "gpus.py").write_text('ssh_key = "/keys/fleet"\n')
    inventory = pyinfra_inventory.read(write(tmp_path, WHOLE))
    first, second, here = inventory.targets
    assert first.ssh and second.ssh
    assert (first.ssh.hostname, first.ssh.user, first.ssh.port, first.ssh.key) == ("gpu1", "root", 2222, "/keys/fleet")
    assert (second.name, second.ssh.hostname, second.ssh.password) == ("gpu2", "gpu2", "hunter2")
    assert (first.near, second.near) == ({1}, None)
    assert first.sudo is None
    assert second.sudo and second.sudo.user == "svc"
    assert (here.way, here.ssh) == (Way.LOCAL, None)
    assert "gpus" in first.groups
    assert second.maintenance and second.maintenance.until == "2026-04-01"
    (waiver,) = inventory.waivers
    assert [name for name in ("gpu1", "gpu2", "@local", "gpu3") if waiver.names(name)] == ["gpu1", "gpu2", "@local"]
    assert capfd.readouterr().out == ""
    assert "hunter2" not in repr(inventory)


FAULTS = [
    ("hosts = [1/0]", "line 1: ZeroDivisionError: division by zero"),
    ("hosts = [(", "line 1: SyntaxError: '(' was never closed"),
    ("import sys\nsys.exit(3)", "line 2: SystemExit: 3"),
    ("import nowhere_at_all", "line 1: ModuleNotFoundError"),
    ("import os\nos._exit(7)", "ended its own process (code 7)"),
    ("x = 1", "expected hosts, found none"),
    ("hosts = [5]", "expected hosts, found none"),
    ("hosts = ['@nonsense/x']", "Invalid connector: nonsense"),
    ("hosts = ['@docker/x']", "expected a host that is reached over SSH"),
    ("hosts = [('gpu1', {'ssh_port': 'many'})]", "host gpu1: ssh_port: expected"),
    ("hosts = [('gpu1', {'ssh_hostname': '-oProxyCommand=x'})]", "host gpu1: ssh_hostname: expected a host name"),
    ("hosts = [('gpu1', {'nearsocket_waivers': [{'id': 'a.b'}]})]", "host gpu1: expected 'reason' in nearsocket_waivers.0"),
    ("hosts = ['gpu1', '@ssh/gpu1']", "expected each host once, found 'gpu1' twice"),
    ("hosts = ['-oProxyCommand=x']", "expected a host name or an address, found '-oProxyCommand=x'"),
    ("hosts = [('a b', {'ssh_hostname': 'gpu1'})]", "expected a host name or an address, found 'a b'"),
    ("raise ValueError('two\\nlines \\x1b[31m')", r"two\nlines \x1b[31m"),
]


@pytest.mark.parametrize(("text", "words"), FAULTS, ids=range(len(FAULTS)))
def test_a_broken_inventory_is_one_line_and_never_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        pyinfra_inventory.read(write(tmp_path, text))
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    assert "\x1b" not in caught.value.message
    assert "Traceback" not in "".join(capfd.readouterr())


def test_an_inventory_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyinfra_inventory, "TIMEOUT_S", 0.5)
    with pytest.raises(UsageError, match=r"loads within 0\.5 s"):
        pyinfra_inventory.read(write(tmp_path, "import time\nwhile True: time.sleep(1)"))


@pytest.mark.parametrize("secret", ["ssh_password", "_sudo_password"])
def test_a_password_of_the_wrong_kind_is_not_shown(secret: str) -> None:
    host: dict[str, Any] = {"name": "gpu1", "connector": "ssh", "groups": [], "data": {secret: ["hunter2"]}}
    with pytest.raises(UsageError) as caught:
        pyinfra_inventory.inventory([host], "inventory.py")
    assert "hunter2" not in caught.value.message

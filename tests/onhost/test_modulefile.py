"""Which file the driver's module is, where Debian's packages name it after themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nearsocket.onhost.collect import kernel, modulefile
from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.collect.files import Context

DEBIAN = """install nvidia modprobe -i nvidia-current $CMDLINE_OPTS
install nvidia-modeset modprobe nvidia ; modprobe -i nvidia-current-modeset $CMDLINE_OPTS
install nvidia-uvm modprobe nvidia ; modprobe -i nvidia-current-uvm $CMDLINE_OPTS
"""


def written(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


class Modules:
    """modinfo's answers, over the modules that are there."""

    def __init__(self, **there: str) -> None:
        self.there = {name.replace("_", "-"): version for name, version in there.items()}

    def __call__(self, argv: Sequence[str], _limit_s: float) -> Output:
        version = self.there.get(argv[-1])
        return Output(0, f"{version}\n", "") if version else Output(1, "", f"modinfo: ERROR: Module {argv[-1]} not found.")


def version(root: Path, **there: str) -> str | None:
    return modulefile.version("6.1.0-30-amd64", root, Modules(**there), 5)


def test_it_is_what_modprobe_would_load_through_the_links_of_alternatives(tmp_path: Path) -> None:
    written(tmp_path, "etc/nvidia/current/nvidia-modprobe.conf", DEBIAN)
    (tmp_path / "etc/alternatives").mkdir()
    (tmp_path / "etc/alternatives/glx--nvidia-modprobe.conf").symlink_to("../nvidia/current/nvidia-modprobe.conf")
    (tmp_path / "etc/modprobe.d").mkdir()
    (tmp_path / "etc/modprobe.d/nvidia.conf").symlink_to("../alternatives/glx--nvidia-modprobe.conf")
    assert modulefile.names(tmp_path) == ("nvidia-current",)
    assert version(tmp_path, nvidia_current="535.247.01") == "535.247.01"
    assert version(tmp_path, nvidia="580.95.05", nvidia_current="535.247.01") == "535.247.01"
    assert version(tmp_path, nvidia="580.95.05") is None, "modprobe does not fall back to it either"


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ({}, None),
        ({"nvidia": "580.95.05"}, "580.95.05"),
        ({"nvidia_current": "535.247.01"}, "535.247.01"),
        ({"nvidia_current_open": "550.163.01"}, "550.163.01"),
        ({"nvidia": "580.95.05", "nvidia_current": "535.247.01"}, "580.95.05"),
    ],
)
def test_without_a_line_the_usual_names_are_tried(tmp_path: Path, there: dict[str, str], found: str | None) -> None:
    assert version(tmp_path, **there) == found


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS", "nvidia-current-open"),
        ("install nvidia modprobe -i nvidia-tesla-535 $CMDLINE_OPTS", "nvidia-tesla-535"),
        ("install nvidia /sbin/modprobe --ignore-install nvidia && /sbin/modprobe nvidia-uvm", "nvidia"),
        ("install nvidia /sbin/modprobe nvidia-uvm; \\\n /sbin/modprobe -q -i nvidia-current", "nvidia-current"),
        ("install nvidia /usr/bin/nvidia-modprobe -c 0", None),
        ("install nvidia /bin/false", None),
        ("# install nvidia modprobe -i nvidia-current", None),
        ("install nvidia-drm modprobe -i nvidia-current-drm", None),
    ],
)
def test_the_module_that_a_line_leads_to(tmp_path: Path, line: str, name: str | None) -> None:
    written(tmp_path, "etc/modprobe.d/x.conf", f"{line}\n")
    assert modulefile.names(tmp_path) == ((name,) if name else ("nvidia", "nvidia-current-open", "nvidia-current"))


def test_a_file_hides_one_of_its_name_in_a_later_folder_and_the_first_line_counts(tmp_path: Path) -> None:
    written(tmp_path, "usr/lib/modprobe.d/a.conf", "install nvidia modprobe -i nvidia-current-open\n")
    written(tmp_path, "usr/lib/modprobe.d/b.conf", "install nvidia modprobe -i nvidia-legacy-390xx\n")
    written(tmp_path, "etc/modprobe.d/c.conf", DEBIAN)
    assert modulefile.names(tmp_path) == ("nvidia-current-open",)
    written(tmp_path, "etc/modprobe.d/a.conf", "")
    assert modulefile.names(tmp_path) == ("nvidia-legacy-390xx",)


def test_kernels_have_debians_module_and_not_its_parts(tmp_path: Path) -> None:
    base = "lib/modules/6.1.0-30-amd64"
    named = "".join(f"updates/dkms/nvidia-current{part}.ko: x\n" for part in ("", "-uvm", "-drm", "-modeset", "-peermem"))
    own = "kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko: \n"
    written(tmp_path, f"{base}/modules.dep", named + own + "updates/dkms/nvidia.ko.zst:\n")
    written(tmp_path, f"{base}/updates/dkms/nvidia-tesla-535.ko.xz", "")
    written(tmp_path, f"{base}/updates/dkms/nvidia-tesla-535-uvm.ko.xz", "")
    written(tmp_path, f"{base}/updates/dkms/nvidia-uvm.ko", "")
    found = kernel.images(Context(tmp_path)).data["nvidia_module"]["6.1.0-30-amd64"]
    assert [path.rpartition("/")[2] for path in found] == ["nvidia-current.ko", "nvidia-tesla-535.ko.xz", "nvidia.ko.zst"]

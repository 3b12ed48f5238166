#!/usr/bin/python3
"""Stand-in for NVIDIA's legacy hook of container runtimes (`nvidia-container-runtime-hook`), which Docker's `--gpus` is.

It does what libnvidia-container was seen to do at a container's start: nodes and libraries are put into the container's mount
namespace, and the container's program of allowed devices is replaced in the kernel. systemd is not told of it, so that a
daemon-reload takes the devices away. It runs on a machine of the lab alone (x86-64, cgroup v2), by itself, with nothing but Python.

Unlike the real one, the program that it puts there allows every device.
"""

import ctypes
import json
import os
import struct
import sys
from pathlib import Path

SPECIFICATION = Path("/etc/cdi/nearsocket-standin.json")
#: bpf(2), x86-64, and the words of its that are used.
_BPF, _LOAD, _ATTACH, _DETACH, _BY_ID, _QUERY = 321, 5, 8, 9, 13, 16
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE_ATTACH = 15, 6
_ALLOW_MULTI, _REPLACE = 2, 4
#: mount(2): MS_BIND.
_BIND = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """The result of a system call; OSError with `what` where it failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """One bpf(2): its result and the attributes behind it."""
    held = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    return checked(_libc.syscall(_BPF, command, held, len(held)), f"bpf {command}"), held.raw


def allow(cgroup: str) -> None:
    """Replace the cgroup's program of allowed devices by one that allows all."""
    code = struct.pack("<BBhi", 0xB7, 0, 0, 1) + struct.pack("<BBhi", 0x95, 0, 0, 0)  # r0 = 1; exit
    text, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    mine, _ = bpf(_LOAD, struct.pack("<IIQQ", _CGROUP_DEVICE_PROGRAM, 2, ctypes.addressof(text), ctypes.addressof(licence)))
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    ids = (ctypes.c_uint32 * 64)()
    asked = struct.pack("<IIIIQI", folder, _CGROUP_DEVICE_ATTACH, 0, 0, ctypes.addressof(ids), len(ids))
    _, told = bpf(_QUERY, asked)
    found = [bpf(_BY_ID, struct.pack("<I", ids[at]))[0] for at in range(struct.unpack_from("<I", told, 24)[0])]
    flags, replaced = (_ALLOW_MULTI | _REPLACE, found[0]) if found else (_ALLOW_MULTI, 0)
    bpf(_ATTACH, struct.pack("<IIIII", folder, mine, _CGROUP_DEVICE_ATTACH, flags, replaced))
    for other in found[1:]:
        bpf(_DETACH, struct.pack("<III", folder, other, _CGROUP_DEVICE_ATTACH))


def inject(root: Path, pid: int, wanted: list[str]) -> None:
    """Put the nodes of the wanted GPUs and the libraries below `root`, in the container's mount namespace."""
    known = json.loads(SPECIFICATION.read_text(encoding="utf-8"))
    edits = [known["containerEdits"], *(d["containerEdits"] for d in known["devices"] if d["name"] in wanted)]
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    checked(_libc.setns(namespace, 0), "setns")
    for node in (Path(node["path"]) for edit in edits for node in edit.get("deviceNodes", [])):
        place = root / node.relative_to("/")
        os.mknod(place, 0o020666, node.stat().st_rdev)
        place.chmod(0o666)
    for mount in known["containerEdits"]["mounts"]:
        source = Path(mount["hostPath"])
        place = root / Path(mount["containerPath"]).relative_to("/")
        (place if source.is_dir() else place.parent).mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.touch()
        checked(_libc.mount(os.fsencode(source), os.fsencode(place), None, _BIND, None), f"mount {source}")


def main() -> None:
    """A prestart hook: the container's state is on standard input."""
    if sys.argv[1:] != ["prestart"]:
        return
    state = json.load(sys.stdin)
    bundle = Path(state["bundle"])
    config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    asked = next((w.partition("=")[2] for w in config["process"]["env"] if w.startswith("NVIDIA_VISIBLE_DEVICES=")), "void")
    if asked in ("", "void", "none"):
        return
    groups = Path(f"/proc/{state['pid']}/cgroup").read_text(encoding="ascii").splitlines()
    allow("/sys/fs/cgroup" + next(line.partition("::")[2] for line in groups if line.startswith("0::")))
    inject(bundle / config["root"]["path"], state["pid"], asked.split(","))


if __name__ == "__main__":
    main()

"""What an engine does with NCCL_CUMEM_ENABLE: the environment that it was given, its release, its options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.finding import Status
from nearsocket.model.host import Engine
from nearsocket.model.text import brief
from nearsocket.model.verdicts.groups import Group, quoted

CUMEM = "NCCL_CUMEM_ENABLE"
CUMEM_HOST = "NCCL_CUMEM_HOST_ENABLE"
#: The first SGLang that leaves a value of the user's alone; `--enable-symm-mem` forces 1 from the next one.
SGLANG_HONOURS, SGLANG_SYMM_MEM_FORCES = (0, 5, 4, 2), (0, 5, 4, 3)
#: Read in the vLLM 0.33.0 wheel: it does not touch the variable. Some earlier releases set it to 0.
VLLM_HONOURS = (0, 33, 0, 0)

#: Only the projects' own images carry the projects' own versions as tags; community images number their own releases.
_OFFICIAL = {Engine.SGLANG: "lmsysorg/sglang", Engine.VLLM: "vllm/vllm-openai"}
_TAG = re.compile(r":v?(\d+)\.(\d+)\.(\d+)(?:\.?(post|rc)(\d+))?(?![0-9.])")


@dataclass(frozen=True)
class Release:
    """An engine's release: its text and a tuple that orders releases (post-releases after, candidates before)."""

    text: str
    order: tuple[int, int, int, int]


def release(group: Group) -> Optional[Release]:
    """The engine's release by the tag of its official image; None where the image is another's or the tag says none."""
    image = group.container.image if group.container else ""
    official = _OFFICIAL.get(group.engine) if group.engine else None
    repository = image.partition("@")[0].rpartition(":")[0]
    if official is None or not (repository == official or repository.endswith("/" + official)):
        return None
    match = _TAG.search(image)
    if not match:
        return None
    step = int(match[5] or 0) if match[4] != "rc" else int(match[5]) - 1000
    return Release(match[0].lstrip(":v"), (int(match[1]), int(match[2]), int(match[3]), step))


@dataclass(frozen=True)
class Setting:
    """A variable as the engine was started with it. `known` tells "not set" from "could not be read"."""

    value: Optional[str]
    known: bool
    source: str


def lookup(group: Group, name: str) -> Setting:
    """The variable's value: the container's environment, else the launcher's or a rank's own, else the words of the unit's command.

    A rank's /proc/PID/environ comes late: engines change it for their children, and SGLang's titles wipe it.
    """
    if group.container is not None:
        source = f"{group.runtime} inspect {group.container_word}"
        return Setting(_plain(group.container.environ, name), True, source)
    for process in sorted(group.processes, key=lambda process: process.rank is not None):
        if process.environ is not None:
            return Setting(_plain(process.environ, name), True, f"/proc/{process.pid}/environ")
    if group.unit is not None:
        match = re.search(rf"(?:^|[\s\"'=]){re.escape(name)}=([^\s\"';]+)", group.unit.exec_start)
        source = f"systemctl show {quoted(group.unit.id)}"
        return Setting(match[1] if match else None, match is not None, source)
    return Setting(None, False, "/proc/PID/environ")


def plain_environ(group: Group) -> Mapping[str, str]:
    """The environment that `lookup` reads from, where it is known as a whole; empty where it is not."""
    if group.container is not None:
        return group.container.environ
    for process in sorted(group.processes, key=lambda process: process.rank is not None):
        if process.environ is not None:
            return process.environ
    return {}


def _plain(environ: Mapping[str, str], name: str) -> Optional[str]:
    value = environ.get(name)
    return None if value is None else brief(value.strip(), 40)


def has_option(group: Group, option: str) -> bool:
    """Whether the engine was started with that option, by the container's command or a process's."""
    commands = [group.container.command if group.container else (), *(process.command for process in group.processes)]
    return any(word == option or word.startswith(option + "=") for command in commands for word in command)


@dataclass(frozen=True)
class Outcome:
    """What becomes of the variable: `asked` tells whether the user asked for cuMem."""

    status: Status
    text: str
    asked: bool


def outcome(group: Group, logged: Optional[str] = None) -> Outcome:
    """Judge what the ranks run with. `logged` is NCCL's own line on the variable, which decides where it is there."""
    setting, host_path = lookup(group, CUMEM), lookup(group, CUMEM_HOST)
    value, asked = setting.value, setting.value == "1"
    if value == "1" and host_path.value == "0":
        return Outcome(Status.FAIL, f"{CUMEM}=1, but {CUMEM_HOST}=0 turns the host path off: buffers go to /dev/shm", True)
    if logged is not None:
        if logged == "0" and asked:
            return Outcome(Status.FAIL, f"{CUMEM}=1 was given, NCCL ran with 0: the engine overwrote it", True)
        status = Status.PASS if logged == "1" else Status.FAIL
        return Outcome(status, f"NCCL says that it ran with {CUMEM}={brief(logged, 20)}", asked)
    if not setting.known:
        return Outcome(Status.UNKNOWN, f"the environment could not be read, so {CUMEM} is not known", False)
    if group.engine is Engine.SGLANG:
        return _sglang(group, value)
    if value is None:
        return Outcome(Status.WARN, f"{CUMEM} is not set: NCCL decides by itself, and may decide otherwise after an upgrade", False)
    if value != "1":
        return Outcome(Status.FAIL, f"{CUMEM}={value}: buffers go to /dev/shm", False)
    found = release(group)
    if group.engine is Engine.VLLM and (found is None or found.order < VLLM_HONOURS):
        named = f"vLLM {found.text}" if found else "this vLLM (its release is not known)"
        return Outcome(Status.UNKNOWN, f"{CUMEM}=1 is given; whether {named} leaves it alone is not known", True)
    return Outcome(Status.PASS, f"{CUMEM}=1 is given and nothing overwrites it", True)


def _sglang(group: Group, value: Optional[str]) -> Outcome:
    found, asked = release(group), value == "1"
    named = f"SGLang {found.text}" if found else "SGLang"
    if has_option(group, "--enable-symm-mem") and (value in (None, "1") or (found and found.order >= SGLANG_SYMM_MEM_FORCES)):
        return Outcome(Status.PASS, f"--enable-symm-mem makes {named} set {CUMEM}=1", True)
    if value is None:
        return Outcome(Status.FAIL, f"{CUMEM} is not set, and {named} then sets it to 0: buffers go to /dev/shm", False)
    if not asked:
        return Outcome(Status.FAIL, f"{CUMEM}={value}: buffers go to /dev/shm", False)
    if found is None:
        return Outcome(
            Status.UNKNOWN, f"{CUMEM}=1 is given; SGLang before 0.5.4.post2 overwrites it and the release is not known", True
        )
    if found.order < SGLANG_HONOURS:
        return Outcome(Status.FAIL, f"{CUMEM}=1 is given, but {named} overwrites it with 0 (honoured from 0.5.4.post2)", True)
    return Outcome(Status.PASS, f"{CUMEM}=1 is given and {named} leaves it alone", True)

"""A stand-in for apt, dpkg, dkms, modinfo, the RAM disk's tools and systemd, over one machine whose state is a file.

It answers in the real tools' words and codes: a transaction is all or nothing until dpkg fails in it (what was unpacked by then
waits for its dependencies, and apt goes on only with words that close them all), the newer module is the one that does not build,
an upgrade lifts a hold (dpkg's selection becomes `install`), a hold that nobody allowed to change refuses, DKMS ends with 10. A
boot takes the module that its kernel has, forgets /run, and starts what is linked into it unless the unit's conditions say no. A
container sees the GPUs that its words ask for. Its state outlives a program that dies.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearsocket.model.host import Driver, Host
from nearsocket.onhost.collect.command import Output
from tests.build import gpu, host, source
from tests.onhost.reprovision.tools import KERNEL as KERNEL
from tests.onhost.reprovision.tools import NEW as NEW
from tests.onhost.reprovision.tools import OLD as OLD
from tests.onhost.reprovision.tools import Tools

STANDINS = ("libnvidia-compute-standin", "nvidia-kernel-standin", "nvidia-utils-standin")
DKMS = "nvidia-dkms-standin"


class Machine(Tools):
    """`Machine(root)(argv, limit)` answers as the command would. Faults are words in its state's `faults`."""

    @property
    def state(self) -> dict[str, Any]:
        """As FakeSystem's, with `packages` (name to version, held, half), `repo` (name to versions), `modules` by kernel."""
        known = super().state
        known.setdefault("packages", {name: {"version": f"{OLD}-0standin1", "held": True, "half": False} for name in STANDINS})
        known.setdefault("repo", {name: [f"{NEW}-0standin1", f"{OLD}-0standin1"] for name in STANDINS})
        known.setdefault("modules", {KERNEL: OLD})
        known.setdefault("module", OLD)
        known.setdefault("boot_id", "boot-1")
        known.setdefault("faults", [])
        known.setdefault("die_at", None)
        known.setdefault("rebooting", False)
        return known

    def fault(self, *names: str) -> None:
        self.change(faults=list(names))

    def host(self) -> Host:
        """What a reading of this machine shows."""
        now = self.state
        versions = {p["version"].partition("-")[0] for name, p in now["packages"].items() if name.startswith("lib")}
        library = next(iter(versions), None)
        same = library == now["module"]
        made = host(
            processes=(),
            containers=(),
            gpus=(gpu(0), gpu(1)) if same else tuple(dataclasses.replace(gpu(at), index=None) for at in (0, 1)),
            kernel=KERNEL,
            driver=Driver(now["module"], "open", library, now["module"] if same else None, 13000, dict(now["modules"])),
        )
        images = {"installed": sorted(now["modules"]), "default": now.get("next_kernel", KERNEL), "nvidia_module": {}}
        smi = (
            source("ok") if same else source(status="error", reason="nvidia-smi: exit code 18 (module and library versions differ)")
        )
        sources = {**made.sources, "kernel.images": source(data=images), "nvidia.smi": smi}
        sources["cdi"] = source(data=now.get("cdi", {}))
        sources["fabricmanager"] = source(data=now.get("fabricmanager", {"nvswitches": 0}))
        sources["containers"] = source(data=now.get("boxes", []))
        if not same:
            sources["nvml"] = source(status="error", reason="NVML: driver and library versions differ")
        return dataclasses.replace(made, sources=sources)

    def boot(self) -> None:
        """The machine ends and comes back, if that was asked for."""
        now = self.state
        assert now["rebooting"], "nobody asked for a reboot"
        modules, kernel = now["modules"], now.get("next_kernel", KERNEL)
        self.change(rebooting=False, boot_id=now["boot_id"] + "+", module=modules.get(kernel), active={}, broken=[])
        (self.root / "proc/sys/kernel/random/boot_id").write_text(self.state["boot_id"])
        (self.root / "sys/module/nvidia/version").write_text(f"{self.state['module']}\n")
        shutil.rmtree(self.root / "run/nearsocket", ignore_errors=True)
        wants = self.root / "etc/systemd/system/multi-user.target.wants"
        if wants.is_dir():
            self(["systemctl", "start", *sorted(path.name for path in wants.iterdir())], 1)

    def __call__(self, argv: Sequence[str], limit_s: float) -> Output:
        words = list(argv)
        folder = None
        if words[:2] == ["sh", "-c"]:
            takes_folder = 'cd "$1"' in words[2]
            words = words[4:]
            folder = words.pop(0) if takes_folder else None
        if words[0] == "env":
            words = [word for word in words[1:] if not re.match(r"[A-Z_]+=", word)]
        if words[0] == "nice":
            words = words[3:]
        name = words[0]
        self._die(words, before=True)
        if name == "systemctl":
            answer = self._systemctl(words)
        elif name in ("/usr/bin/docker", "/usr/bin/podman") and words[1] == "run":
            self._note(words)
            answer = self._container(words, limit_s)
        elif Path(name).name in ("docker", "podman"):
            answer = super().__call__(words, limit_s)
        else:
            self._note(words)
            answer = getattr(self, "_" + name.replace("-", "_"))([word for word in words[1:] if word != "--"], folder)
        self._die(words, before=False)
        return answer

    def _note(self, words: list[str]) -> None:
        now = self.state
        now["calls"].append(words)
        self._save(now)

    def _die(self, words: list[str], before: bool) -> None:
        """The program's end by a signal at that call: `[text, before]`."""
        planned = self.state["die_at"]
        if planned and planned[1] is before and planned[0] in " ".join(words):
            os.kill(os.getpid(), signal.SIGKILL)

    def _systemctl(self, words: list[str]) -> Output:
        if "reboot" in words:
            self._note(words)
            self.change(rebooting=True)
            return Output(0, "", "")
        if words[1] == "start":
            skipped = [unit for unit in words[2:] if not self._may_start(unit)]
            if skipped:
                self._note(words)
            # Conditions that are not met: skipped, and no failure.
            words = [word for word in words if word not in skipped]
            if set(words[2:]) <= {"--"}:
                return Output(0, "", "")
        if words[1] == "stop" and "no-stop" in self.state["faults"]:
            self._note(words)
            return Output(1, "", f"Job for {words[-1]} canceled.")
        return super().__call__(words, 1.0)

    def _dpkg_query(self, _words: list[str], _folder: str | None) -> Output:
        flags = {True: "F", False: "i"}
        lines = [f"{n}\t{p['version']}\t{'h' if p['held'] else 'i'}{flags.get(p['half'], 'U')} " for n, p in self._packages()]
        return Output(0, "".join(f"{line}\n" for line in lines), "")

    def _packages(self) -> list[tuple[str, dict[str, Any]]]:
        return sorted(self.state["packages"].items())

    def _dpkg(self, words: list[str], _folder: str | None) -> Output:
        half = [name for name, package in self._packages() if package["half"]]
        if "--audit" in words:
            said = "The following packages are only half configured, probably due to problems\n" if half else ""
            return Output(0, said + "".join(f" {name}\n" for name in half), "")
        if self._open():
            said = f"dpkg: dependency problems prevent configuration of {half[0]}:\n"
            return Output(
                1,
                said + f"dpkg: error processing package {half[0]} (--configure):\n dependency problems - leaving unconfigured\n",
                "",
            )
        unbuilt = [name for name in half if self._builds_not(name, self.state["packages"][name]["version"])]
        for name in half:
            if name not in unbuilt:
                self._set(name, half=False)
        if unbuilt:
            return self._dkms_failed(unbuilt[0])
        return Output(0, "", "")

    def _apt_mark(self, words: list[str], _folder: str | None) -> Output:
        if words[0] == "showhold":
            return Output(0, "".join(f"{name}\n" for name, package in self._packages() if package["held"]), "")
        for name in words[1:]:
            self._set(name, held=words[0] == "hold")
        return Output(0, "", "")

    def _apt_cache(self, words: list[str], _folder: str | None) -> Output:
        repo = self.state["repo"]
        if words[0] == "madison":
            rows = [f"{name} | {version} | repo ./ Packages" for name in words[1:] for version in repo.get(name, [])]
            return Output(0, "".join(f"{row}\n" for row in rows), "")
        blocks = [word.partition("=")[::2] for word in words[1:]]
        shown = [f"Package: {n}\nVersion: {v}\nInstalled-Size: 4096\nSize: 1000000\nFilename: ./x.deb\n" for n, v in blocks]
        return Output(0, "\n".join(shown), "")

    def _apt_get(self, words: list[str], folder: str | None) -> Output:
        now, faults = self.state, self.state["faults"]
        archives = next((Path(w.partition("=")[2]) for w in words if w.startswith("Dir::Cache::Archives=")), None)
        if "download" in words:
            name, _, version = words[-1].partition("=")
            if version not in now["repo"].get(name, []):
                return Output(100, f"E: Version '{version}' for '{name}' was not found\n", "")
            (Path(folder or "/") / f"{name}_{version}_amd64.deb").write_text(version)
            return Output(0, "", "")
        wanted = {}
        for word in words[words.index("install") + 1 :]:
            name, _, version = word.partition("=")
            if word.endswith(".deb"):
                name, version, _ = Path(word).name.split("_")
            elif version not in now["repo"].get(name, []):
                return Output(100, f"E: Version '{version}' for '{name}' was not found\n", "")
            wanted[name] = version
        if self._open() and {name for name, _ in self._packages()} - set(wanted):
            said = "You might want to run 'apt --fix-broken install'.\nThe following packages have unmet dependencies:\n"
            return Output(100, said + "E: Unmet dependencies. Try 'apt --fix-broken install'.\n", "")
        known = now["packages"]
        changed = {n: v for n, v in wanted.items() if known.get(n, {}).get("version") != v or known[n]["half"]}
        if "-s" in words:
            return self._simulated(changed)
        if "lock" in faults:
            said = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4242 (unattended-upgr)\n"
            return Output(100, said + "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend)\n", "")
        down = [n for n, v in changed.items() if v.startswith(OLD) and known.get(n, {}).get("version", "") > v]
        if down and "--allow-downgrades" not in words:
            return Output(100, "E: Packages were downgraded and -y was used without --allow-downgrades.\n", "")
        if "--download-only" in words:
            assert archives is not None
            if "var-full" in faults:
                return Output(100, "E: Write error - write (28: No space left on device)\n", "")
            for name, version in () if "local-repository" in faults else changed.items():
                (archives / f"{name}_{version}_amd64.deb").write_text(version)
            return Output(0, "Download complete and in download only mode\n", "")
        held = [name for name in changed if now["packages"].get(name, {}).get("held")]
        if held and "--allow-change-held-packages" not in words:
            return Output(100, "E: Held packages were changed and -y was used without --allow-change-held-packages.\n", "")
        return self._installed(changed, words)

    def _simulated(self, changed: dict[str, str]) -> Output:
        packages, lines = self.state["packages"], ["Reading package lists..."]
        for name, version in changed.items():
            old = packages.get(name, {}).get("version")
            lines.append(f"Inst {name} {f'[{old}] ' if old else ''}({version} localhost [amd64])")
        if "brake" in self.state["faults"]:
            lines.append("Remv brake [1.0]")
        if "broken" in self.state["faults"]:
            return Output(100, "E: Unable to correct problems, you have held broken packages.\n", "")
        return Output(0, "".join(f"{line}\n" for line in lines), "")

    def _installed(self, changed: dict[str, str], words: list[str]) -> Output:
        faults = self.state["faults"]
        for number, (name, version) in enumerate(changed.items()):
            if "usr-full" in faults and number:
                for unpacked in list(changed)[:number]:
                    self._set(unpacked, half="U")
                said = (
                    f"dpkg: error processing archive {name}.deb (--unpack):\n cannot copy extracted data: No space left on device\n"
                )
                return Output(100, said + "E: Sub-process /usr/bin/dpkg returned an error code (1)\n", "")
            self._set(name, version=version, held=False, half=False)
            if "kernel" in name or "dkms" in name:
                if self._builds_not(name, version):
                    self._set(name, half=True)
                    return self._dkms_failed(name)
                lacking = "no-module" in faults
                now = self.state
                now["modules"] = {k: v if lacking and k != KERNEL else version.partition("-")[0] for k, v in now["modules"].items()}
                self._save(now)
        return Output(0, "", "")

    def _builds_not(self, name: str, version: str) -> bool:
        return "dkms-fails" in self.state["faults"] and "dkms" in name and version.startswith(NEW)

    def _open(self) -> bool:
        """Whether what was unpacked depends on what is not there: members of one driver depend on each other by version."""
        packages = dict(self._packages()).values()
        return any(p["half"] == "U" for p in packages) and len({p["version"] for p in packages}) > 1

    def _dkms_failed(self, name: str) -> Output:
        said = (
            f"Error! Bad return status for module build on kernel: {KERNEL} (x86_64)\n"
            "Consult make.log for more information.\n"
            f"dpkg: error processing package {name} (--configure):\n"
            f" installed {name} package post-installation script subprocess returned error exit status 10\n"
            "E: Sub-process /usr/bin/dpkg returned an error code (1)\n"
        )
        return Output(100, said, "")

    def _set(self, name: str, **values: Any) -> None:
        now = self.state
        now["packages"][name] = {**now["packages"].get(name, {"version": "", "held": False, "half": False}), **values}
        self._save(now)

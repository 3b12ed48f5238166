"""The stand-in machine's tools around the packages: containers, conditions of units, DKMS, modules, RAM disks, nvidia-ctk."""

from __future__ import annotations

from pathlib import Path

from nearsocket.onhost.collect.command import CommandTimeout, Output
from tests.onhost.apply.fake import FakeSystem

OLD, NEW = "580.95.05", "580.105.08"
KERNEL = "6.1.0-30-amd64"


class Tools(FakeSystem):
    """Each tool's words and codes, over the machine's state."""

    def _may_start(self, unit: str) -> bool:
        """systemd.unit(5): every condition holds, and of those with `|` one."""
        every, some = [], []
        for line in (self.on_disk(unit) or "").splitlines():
            if line.startswith("ConditionPathExists="):
                word = line.partition("=")[2]
                path = word.lstrip("|!")
                holds = (self.root / path.lstrip("/")).exists() is ("!" not in word)
                (some if word.startswith("|") else every).append(holds)
        return all(every) and (not some or any(some))

    def _true(self, _words: list[str], _folder: str | None) -> Output:
        return Output(0, "", "")

    def _false(self, _words: list[str], _folder: str | None) -> Output:
        return Output(1, "", "")

    def _container(self, words: list[str], limit_s: float) -> Output:
        """One that says which GPUs it sees, or what its runtime says instead."""
        faults = self.state["faults"]
        name = next(word.partition("=")[2] for word in words if word.startswith("--name="))
        asked = sum(word.startswith("--device=nvidia.com/gpu=") for word in words)
        asked += sum(word.count("GPU-") for word in words if word.startswith("--gpus="))
        if "no-image" in faults:
            return Output(
                125, "docker: Error response from daemon: No such image: example.org/engine.\n\nRun 'docker run --help'\n", ""
            )
        if "no-cdi" in faults and asked:
            said = "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-0"
            return Output(125, f"docker: Error response from daemon: {said}\n\nRun 'docker run --help' for more information\n", "")
        if "gpu-hangs" in faults and asked:
            self.change(containers=[*self.state["containers"], name])
            raise CommandTimeout(f"docker run: no answer in {limit_s:g} s")
        late = self.state.get("late", 0)
        if late:
            self.change(late=late - 1)
        seen = asked - 1 if asked and (late or "gpu-unseen" in faults) else asked
        by = "" if "no-libcuda" in faults else f"cuda {seen}\n"
        return Output(0, f"the image's own words\n{by}nodes {asked}\n", "")

    def _dpkg_deb(self, words: list[str], _folder: str | None) -> Output:
        if words[0] == "--fsys-tarfile":
            said = f"dpkg-deb: error: '{words[1]}' is not a Debian format archive"
            return Output(0, "", "") if Path(words[1]).stat().st_size else Output(2, "", said)
        version = Path(words[1]).name.split("_")[1].partition("-")[0]
        sources = Path(words[2]) / f"usr/src/nvidia-{version}"
        sources.mkdir(parents=True)
        (sources / "dkms.conf").write_text("")
        return Output(0, "", "")

    def _dkms(self, words: list[str], _folder: str | None) -> Output:
        if words[0] != "build" or "dkms-fails" not in self.state["faults"]:
            return Output(0, "", "")
        tree = Path(words[words.index("--dkmstree") + 1])
        log = tree / "nvidia" / words[words.index("-v") + 1] / "build/make.log"
        log.parent.mkdir(parents=True)
        log.write_text(
            "  CC [M] nvidia.o\nnvidia.c:12:5: error: implicit declaration of function 'vm_flags_set'\nmake: *** Error 2\n"
        )
        return Output(10, f"Error! Bad return status for module build on kernel: {KERNEL} (x86_64)\n", "")

    def _modinfo(self, words: list[str], _folder: str | None) -> Output:
        version = self.state["modules"].get(words[1])
        return Output(0, f"{version}\n", "") if version else Output(1, "", "modinfo: ERROR: Module nvidia not found.")

    def _modprobe(self, words: list[str], _folder: str | None) -> Output:
        version = self.state["modules"].get(self.state.get("next_kernel", KERNEL))
        self.change(module=version)
        (self.root / "sys/module/nvidia").mkdir(exist_ok=True)
        (self.root / "sys/module/nvidia/version").write_text(f"{version}\n")
        return Output(0, "", "")

    def _update_initramfs(self, words: list[str], _folder: str | None) -> Output:
        if "boot-full" in self.state["faults"]:
            said = "zstd: error 70 : Write error : cannot write block : No space left on device\n"
            return Output(1, said + f"update-initramfs: failed for /boot/initrd.img-{words[-1]} with 1.\n", "")
        (self.root / f"boot/initrd.img-{words[-1]}").write_text("new")
        return Output(0, "", "")

    def _lsinitramfs(self, _words: list[str], _folder: str | None) -> Output:
        return Output(0, "usr/lib/modules\n", "")

    def _mokutil(self, _words: list[str], _folder: str | None) -> Output:
        return Output(1, "", "EFI variables are not supported on this system")

    def _nvidia_ctk(self, words: list[str], _folder: str | None) -> Output:
        if "no-ctk" in self.state["faults"]:
            raise FileNotFoundError("nvidia-ctk is not installed")
        path = Path(words[-1].partition("=")[2])
        text = path.read_text().replace(OLD, str(self.state["module"]))
        path.write_text(text)
        self.change(cdi={"/etc/cdi/nvidia.json": text})
        return Output(0, "", "")

"""Generations for the tests, with units, links and replicas of real shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nearsocket.model import programs
from nearsocket.model.generation import Generation, Link, Manifest, Record, ReplicaEntry, UnitEntry, file
from nearsocket.model.order import Order
from nearsocket.model.outcome import Outcome
from nearsocket.onhost.apply.run import apply
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from tests.onhost.apply.fake import UNITS, FakeSystem

IMAGE = "example.org/engine@sha256:" + "1" * 64
PROGRAM = b"the program"


def record(commit: str | None = None, at: str | None = None, made_at: str = "2030-01-01T00:00:00Z") -> Record:
    return Record("ops", made_at, "0.1", commit, at)


def generation(
    replicas: Mapping[str, str],
    sysctl: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
    made_by: Record | None = None,
    mount: bool = False,
) -> Generation:
    """Replica name to what distinguishes its unit's text. Each has a service, a slice, an environment file; perhaps a mount."""
    contents: dict[str, bytes] = {"fingerprint.json": b"{}\n"}
    modes: dict[str, str] = {}
    links, units, entries = [], [], []
    for at, (name, text) in enumerate(sorted(replicas.items())):
        service, slice_, env = f"systemd/nearsocket-x-{name}.service", f"systemd/nearsocket-{name}.slice", f"env/{name}.env"
        contents[service] = f"[Service]\nExecStart=/bin/{text}\n".encode()
        contents[slice_] = b"[Slice]\n"
        contents[env] = f"NAME={name}\nHF_TOKEN=secret-{text}\n".encode()
        modes[env] = "0600"
        unit = service.rpartition("/")[2]
        mount_unit = f"run-nearsocket-shm-{name}.mount" if mount else None
        if mount_unit:
            contents[f"systemd/{mount_unit}"] = f"[Mount]\nOptions={text}\n".encode()
        for path in (service, slice_, *([f"systemd/{mount_unit}"] if mount_unit else [])):
            links.append(Link(f"{UNITS}/{path.rpartition('/')[2]}", f"{programs.CURRENT}/{path}"))
        links.append(Link(f"{UNITS}/multi-user.target.wants/{unit}", f"{programs.CURRENT}/{service}"))
        depends = (service, slice_, env, *([f"systemd/{mount_unit}"] if mount_unit else []))
        units += [UnitEntry(unit, depends, True), UnitEntry(slice_.rpartition("/")[2], (slice_,), False)]
        if mount_unit:
            units.append(UnitEntry(mount_unit, (f"systemd/{mount_unit}",), False))
        entries.append(
            ReplicaEntry(
                name, "sglang", "docker", unit, slice_.rpartition("/")[2], mount_unit,
                f"/run/nearsocket/shm/{name}" if mount else None, f"nearsocket-x-{name}", IMAGE, "/models/m", 30000 + at, (), (), 5,
            )
        )  # fmt: skip
    reapply: list[str] = []
    if sysctl:
        contents["sysctl.d/nearsocket.conf"] = "".join(f"{key} = {value}\n" for key, value in sysctl.items()).encode()
        links.append(Link("/etc/sysctl.d/90-nearsocket.conf", f"{programs.CURRENT}/sysctl.d/nearsocket.conf", unit=False))
        reapply.append("sysctl.d/nearsocket.conf")
    for path, text in (extra or {}).items():
        contents[path] = text.encode()
        if path.startswith("tmpfiles.d/"):
            links.append(Link(f"/etc/{path}", f"{programs.CURRENT}/{path}", unit=False))
            reapply.append(path)
    links.sort(key=lambda link: link.path)
    units.sort(key=lambda unit: unit.name)
    files = tuple(file(path, contents[path], modes.get(path, "0644")) for path in sorted(contents))
    manifest = Manifest(
        "h", "sha256:f", files, tuple(links), tuple(units), tuple(entries), dict(sysctl or {}), tuple(reapply), made_by or record()
    )
    return Generation(manifest, contents)


class Host:
    """A server under a root of its own, with its stand-in for systemd."""

    def __init__(self, root: Path) -> None:
        self.root, self.tree, self.system = root, Tree(root), FakeSystem(root)
        (root / "etc/systemd/system").mkdir(parents=True, exist_ok=True)

    def apply(self, made: Generation | None, program: bytes = PROGRAM, **options: object) -> Outcome:
        """One apply with the options of an order."""
        order = Order(made, **options)  # type: ignore[arg-type]
        return apply(order, program, self.tree, Systemctl(self.system))

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def tree_of_files(self) -> dict[str, str]:
        """Every path but the stand-in's own and /run's, with what it holds: for `nothing was written`."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if name.startswith(("run", "fake-system")):
                continue
            if path.is_symlink():
                found[name] = f"-> {path.readlink()}"
            elif path.is_file():
                found[name] = f"{path.stat().st_mode:o} {path.read_bytes()!r}"
            else:
                found[name] = "folder"
        return found

    def holds(self, made: Generation) -> bool:
        """Whether that generation is in force in every respect: files, links, units running with its text, nothing of others."""
        manifest, current = made.manifest, self.tree.current
        number = self.tree.number()
        if number is None or not all((current / path).read_bytes() == data for path, data in made.contents.items()):
            return False
        links = {
            f"/{path.relative_to(self.root)}": str(path.readlink())
            for folder in ("etc/systemd", "etc/sysctl.d", "etc/tmpfiles.d")
            for path in self.at(folder).rglob("*")
            if path.is_symlink()
        }
        active = {unit: entry["text"] for unit, entry in self.system.state["active"].items() if unit.endswith(".service")}
        wanted = {unit.name: made.contents[f"systemd/{unit.name}"].decode() for unit in manifest.units if unit.start}
        return links == {link.path: link.target for link in manifest.links} and active == wanted

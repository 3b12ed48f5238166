"""The patched image built by a real Docker on a lab machine, from a base that holds files of the untouched wheel. Full image only.

The wheel comes from the package index, checked by its hash; the machine itself has no network, so the base gets its digest from a
registry on the machine's own loopback address.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pynvml
import pytest

from lab import inventory, lifecycle, ssh
from lab.state import LabRecord
from nearsocket import paths
from tests.image.upstream import KIT, checked
from tests.lab.host import LabHost

pytestmark = [pytest.mark.network, pytest.mark.timeout(1500)]

RELEASE = KIT.releases[-1]
TAG = "sglang-near:lab"
REGISTRY = "127.0.0.1:5000"
#: Where Debian's Python looks for packages: the root file system of the base is the guest's own.
PACKAGES = "/usr/lib/python3/dist-packages"
#: A folder with what a wheel and its dependencies put beside each other: the guest cannot install any.
NEARSOCKET = "PYTHONPATH=/opt/nearsocket-cli python3 -B -m nearsocket image"
#: The folder that the kit edits a file of, and what that file relies on; the rest of SGLang is not looked at.
EDITED = RELEASE.edits[0].path


def _tar(entries: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _program() -> dict[str, bytes]:
    """The project's package laid out as the wheel does it, and the two libraries that this command needs."""
    root = paths.source_folder()
    found = {}
    for source, place in ((root / "nearsocket", "nearsocket"), (root / "templates", "nearsocket/_data/templates")):
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found[f"opt/nearsocket-cli/{place}/{path.relative_to(source)}"] = path.read_bytes()
    library = Path(click.__file__).parent
    for path in library.rglob("*.py"):
        found[f"opt/nearsocket-cli/click/{path.relative_to(library)}"] = path.read_bytes()
    found["opt/nearsocket-cli/pynvml.py"] = Path(pynvml.__file__).read_bytes()
    return found


def _send(host: LabHost, entries: dict[str, bytes]) -> None:
    words = ssh.command(host.record.name, host.name, ["tar -x -m -C / -f -"], options=("-o", "BatchMode=yes"))
    subprocess.run(words, input=_tar(entries), check=True, timeout=300, capture_output=True)


def _wheel_files(folder: Path) -> dict[str, bytes]:
    """Of the untouched wheel: the package around the file that is edited, by its path in the base."""
    kept = ("sglang/srt/distributed/", f"sglang-{RELEASE.version}.dist-info/")
    with zipfile.ZipFile(checked(RELEASE, folder)) as wheel:
        names = [name for name in wheel.namelist() if name.startswith(kept) or name in ("sglang/__init__.py", "sglang/version.py")]
        return {f"var/tmp/base/{name}": wheel.read(name) for name in names if not name.endswith("/")}


@pytest.fixture(scope="module")
def prepared(booted: LabRecord, profile: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabHost]:
    """A machine with the base in its registry and in Docker, and with this project's command line."""
    if profile != "full":
        pytest.skip("the small image has no container engines")
    host = LabHost(booted, booted.machines[0])
    host.reset()
    _send(host, {**_program(), **_wheel_files(tmp_path_factory.mktemp("wheel"))})
    host.sh(
        f"""lab-registry start
lab-rootfs >/var/tmp/rootfs.tar; docker import /var/tmp/rootfs.tar plain; rm /var/tmp/rootfs.tar
cd /var/tmp/base; printf 'FROM plain\\nCOPY . {PACKAGES}/\\nUSER 65534\\n' >Dockerfile; printf Dockerfile >.dockerignore
docker build -q -t {REGISTRY}/base:1 . 2>/dev/null
docker push -q {REGISTRY}/base:1
rm -r /var/tmp/base; sync; echo 3 >/proc/sys/vm/drop_caches""",
        timeout_s=900,
    )
    lifecycle.save(booted, booted.machines[0], "base")
    yield host
    host.reset()


@pytest.fixture
def machine(prepared: LabHost) -> LabHost:
    """That machine as it was prepared."""
    prepared.reset("base")
    return prepared


def digest(host: LabHost, name: str = "base:1") -> str:
    """The base by digest, as Docker knows it."""
    return host.sh(f"docker image inspect --format '{{{{index .RepoDigests 0}}}}' {REGISTRY}/{name}")


def built_id(host: LabHost, tag: str = TAG) -> str:
    return host.sh(f"docker image inspect --format '{{{{.Id}}}}' {tag}")


def test_the_command_builds_on_the_base_once_and_the_files_in_the_image_are_proven(machine: LabHost) -> None:
    build = f"{NEARSOCKET} build --tag {TAG} --base {digest(machine)} --space-gib 1"
    first = machine.sh(build, timeout_s=900)
    assert "built" in first
    made = built_id(machine)
    assert made.removeprefix("sha256:")[:12] in machine.sh(build, timeout_s=600)  # the same one is there: nothing is built
    assert built_id(machine) == made
    said = json.loads(machine.sh(f"{NEARSOCKET} verify --image {TAG} --json", timeout_s=600))
    assert (said["release"], said["package"], said["doubt"]) == (RELEASE.version, f"{PACKAGES}/sglang", "")
    # By plain tools: the variable's name is in the image's file and not in the base's; the image keeps the base's user.
    path = f"{PACKAGES}/sglang/{EDITED}"
    reader = "import sys; print(open(sys.argv[1]).read().count('SGLANG_PCIE_IPC_CHUNKED'))"
    count = f'docker run --rm --network none --entrypoint python3 {{image}} -c "{reader}" {path}'
    assert int(machine.sh(count.format(image=TAG))) > 0
    assert machine.sh(count.format(image=f"{REGISTRY}/base:1")) == "0"
    assert machine.sh(f"docker image inspect --format '{{{{.Config.User}}}}' {TAG}") == "65534"


def test_a_base_with_one_byte_changed_is_refused_and_the_older_image_keeps_its_name(machine: LabHost) -> None:
    machine.sh(
        f"""mkdir /var/tmp/wrong; cd /var/tmp/wrong
printf 'FROM {REGISTRY}/base:1\\nUSER 0\\nRUN printf "#" >>{PACKAGES}/sglang/{EDITED}\\n' >Dockerfile
docker build -q -t {REGISTRY}/wrong:1 . 2>/dev/null; docker push -q {REGISTRY}/wrong:1
docker tag plain {TAG}""",
        timeout_s=600,
    )
    before = built_id(machine)
    said = machine.fails(
        f"{NEARSOCKET} build --tag {TAG} --base {digest(machine, 'wrong:1')} --space-gib 1; test $? != 2 || exit 2"
    )
    assert "expected sha256" in said and EDITED in said
    assert "Traceback" not in said
    assert built_id(machine) == before


def test_the_deploy_builds_the_image_through_pyinfra_and_does_nothing_the_second_time(machine: LabHost) -> None:
    words = ["-m", "pyinfra", str(inventory.path()), "--limit", machine.name, str(paths.source_folder() / "deploys/image.py"), "-y"]
    options = {"tag": TAG, "base": digest(machine), "engine": "docker", "space_gib": "1"}
    words += [part for key, value in options.items() for part in ("--data", f"nearsocket_image_{key}={value}")]

    def run() -> str:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "built" in run()
    made = built_id(machine)
    run()
    assert built_id(machine) == made
    assert machine.sh(f"{NEARSOCKET} verify --image {TAG}", timeout_s=600)

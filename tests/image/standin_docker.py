"""A stand-in for docker and podman: images are folders with `rootfs/` and `image.json`, `build` runs the applier on a copy.

State lies in $STANDIN_STORE; a file `fail-<command>` there makes that command fail with its text, `hang-<command>` makes it
wait for ever, `spoil` changes what `build` and `load` leave behind. Every call is noted in `calls`.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

STORE = Path(os.environ["STANDIN_STORE"])


def die(text: str) -> NoReturn:
    sys.stderr.write(text + "\n")
    sys.exit(125)


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")


def images() -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(STORE.glob("images/*/image.json"))}


def find(name: str) -> tuple[str, dict[str, Any]]:
    for key, meta in images().items():
        if name in (key, f"sha256:{key}", *meta["tags"], *meta["digests"]):
            return key, meta
    die(f"Error: No such image: {name}")


def save(key: str, meta: dict[str, Any]) -> None:
    (STORE / "images" / key / "image.json").write_text(json.dumps(meta))


def tag(key: str, name: str) -> None:
    for other, meta in images().items():
        if name in meta["tags"] and other != key:
            save(other, {**meta, "tags": [known for known in meta["tags"] if known != name]})
    meta = images()[key]
    save(key, {**meta, "tags": sorted({*meta["tags"], name})})


def new(rootfs: Path, config: dict[str, Any], tags: list[str]) -> str:
    import shutil

    key = os.urandom(32).hex()
    shutil.copytree(rootfs, STORE / "images" / key / "rootfs", symlinks=True)
    save(key, {"tags": [], "digests": [], "config": config})
    for name in tags:
        tag(key, name)
    spoil = STORE / "spoil"
    if spoil.exists():
        with (STORE / "images" / key / "rootfs" / spoil.read_text()).open("a") as file:
            file.write("# spoiled\n")
    return key


def build(words: list[str]) -> None:
    import shutil
    import subprocess

    context, file = Path(words[-1]), Path(words[words.index("-f") + 1])
    given = dict(word.partition("=")[::2] for flag, word in itertools.pairwise(words) if flag == "--build-arg")
    key, meta = find(given["BASE"])
    text = file.read_text()
    assert "FROM ${BASE}" in text and "image apply" in text
    work = STORE / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(STORE / "images" / key / "rootfs", work, symlinks=True)
    record = work / "usr/local/share/nearsocket/image.json"
    record.parent.mkdir(parents=True)
    root = str(work) + meta["config"]["root"]
    command = [sys.executable, "-B", str(context / "nearsocket.pyz"), "image", "apply", "--kit", str(context / "kit")]
    done = subprocess.run([*command, "--root", root, "--record", str(record)], check=False)
    if done.returncode:
        die(f"Error: building at STEP RUN: exit status {done.returncode}")
    record.write_text(record.read_text().replace(str(work.resolve()), ""))
    names = {"BASE": "base", "PATCH": "patch", "KIT_DIGEST": "kit", "SOURCE_HASHES": "source", "PATCHED_HASHES": "patched"}
    labels = {f"nearsocket.image.{label}": given[name] for name, label in names.items()}
    made = new(work, {**meta["config"], "Labels": labels, "User": given["BASE_USER"]}, [])
    Path(words[words.index("--iidfile") + 1]).write_text(f"sha256:{made}")


def load(data: bytes) -> None:
    import shutil
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        manifest = json.load(tar.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        config = json.load(tar.extractfile(manifest["Config"]))["config"]  # type: ignore[arg-type]
        work = STORE / "unpacked"
        shutil.rmtree(work, ignore_errors=True)
        tar.extractall(work, filter="tar")
    new(work / "rootfs", config, manifest["RepoTags"])


def copy(source: str) -> None:
    import tarfile

    container, _, path = source.partition(":")
    state = STORE / "containers" / container
    if not state.exists():
        die(f"Error: No such container: {container}")
    place = Path(json.loads(state.read_text())["rootfs"] + path)
    if not os.path.lexists(place):
        die(f"Error response from daemon: Could not find the file {path} in container {container}")
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        tar.add(place, arcname=place.name)


def main(words: list[str]) -> None:
    with (STORE / "calls").open("a") as file:
        file.write(" ".join(words) + "\n")
    fail = STORE / f"fail-{words[0]}"
    if fail.exists():
        die(fail.read_text())
    if (STORE / f"hang-{words[0]}").exists():
        signal.pause()
    if words[0] == "info":
        say(STORE)
    elif words[:2] == ["image", "inspect"]:
        key, meta = find(words[2])
        say(json.dumps([{"Id": f"sha256:{key}", "Config": meta["config"], "RepoDigests": meta["digests"]}]))
    elif words[:2] == ["container", "inspect"]:
        say(json.dumps(json.loads((STORE / "containers" / words[-1]).read_text())["env"]))
    elif words[0] == "create":
        key, _ = find(words[-1])
        name = f"c{len(list((STORE / 'containers').iterdir()))}"
        (STORE / "containers" / name).write_text(json.dumps({"rootfs": str(STORE / "images" / key / "rootfs"), "env": []}))
        say(name)
    elif words[0] == "rm":
        (STORE / "containers" / words[-1]).unlink()
    elif words[0] == "cp":
        copy(words[1])
    elif words[0] == "tag":
        tag(find(words[1])[0], words[2])
    elif words[0] == "rmi":
        import shutil

        shutil.rmtree(STORE / "images" / find(words[1])[0])
    elif words[0] == "run":
        say(find(words[words.index("--entrypoint") + 2])[1]["config"].get("root", ""))
    elif words[0] == "pull":
        (STORE / "registry").rename(STORE / "images" / "pulled")
    elif words[0] == "build":
        build(words)
    elif words[0] == "load":
        load(Path(words[2]).read_bytes() if len(words) > 1 else sys.stdin.buffer.read())
    else:
        die(f"unknown command {words[0]}")


main(sys.argv[1:])

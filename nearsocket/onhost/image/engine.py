"""docker or podman by its command line: one way to run it, errors as one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Optional, Union

from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import one_line

KNOWN = ("docker", "podman")
#: A question to the daemon; a hung one must not hang the caller.
ASK_S = 60.0
#: Seconds for one `cp`.
COPY_S = 300.0
#: What `cp` may answer: the package's folder of communicators is far below this.
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Image:
    """A stored image: its id, its labels, the user and the environment that it sets, its digests by name."""

    id: str
    labels: dict[str, str]
    user: str
    env: tuple[str, ...]
    digests: tuple[str, ...]


@dataclass(frozen=True)
class Engine:
    """docker or podman, as an absolute path."""

    path: str

    @property
    def name(self) -> str:
        """`docker` or `podman`."""
        return Path(self.path).name

    def run(self, words: Sequence[str], timeout_s: float = ASK_S) -> bytes:
        """Run it and return its standard output. Raises NearsocketError with the last line of what it said."""
        done = self._run(words, timeout_s)
        if done.returncode:
            raise NearsocketError(f"{self.name} {words[0]}: expected it to work, found: {_last_line(done.stderr, done.stdout)}")
        return done.stdout

    def show(self, words: Sequence[str], timeout_s: float, stdin: Union[int, IO[bytes]] = subprocess.DEVNULL) -> None:
        """Run it with its output on standard error, for a person. Raises NearsocketError with its last line where it fails.

        Only its standard error is read on the way: its standard output may be a terminal, where it draws progress.
        """
        child = subprocess.Popen([self.path, *words], stdin=stdin, stdout=2, stderr=subprocess.PIPE)
        last = [b""]
        reader = threading.Thread(target=_pass_on, args=(child.stderr, last), daemon=True)
        reader.start()
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NearsocketError(f"{self.name} {words[0]}: expected an end within {timeout_s:g} s, found none") from None
        finally:
            child.kill()  # nothing happens to one that has ended
            child.wait()
            reader.join(2.0)  # a helper of the engine's may hold the pipe for longer
        if child.returncode:
            said = _last_line(last[0])
            raise NearsocketError(f"{self.name} {words[0]}: expected it to work, found exit code {child.returncode}: {said}")

    def load(self, path: Path, packed: bool, timeout_s: float) -> None:
        """Load an archive. A packed one is unpacked on the way: not every podman does it."""
        if not packed:
            self.show(["load", "-i", str(path)], timeout_s)
            return
        with subprocess.Popen(["gzip", "-dc", str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as unpacked:
            assert unpacked.stdout is not None
            try:
                self.show(["load"], timeout_s, unpacked.stdout)
            finally:
                unpacked.kill()

    def image(self, name: str) -> Optional[Image]:
        """The stored image of that name or id; None where there is none. Raises NearsocketError where the engine is not usable."""
        done = self._run(["image", "inspect", name], ASK_S)
        if done.returncode:
            self.alive()
            return None
        raw = _json(done.stdout)
        config = raw.get("Config") or {}
        return Image(
            id=str(raw["Id"]).rpartition(":")[2],
            labels={str(key): str(value) for key, value in (config.get("Labels") or {}).items()},
            user=str(config.get("User") or ""),
            env=tuple(str(line) for line in config.get("Env") or ()),
            digests=tuple(str(line) for line in raw.get("RepoDigests") or ()),
        )

    def alive(self) -> None:
        """Raises NearsocketError where the engine does not answer."""
        done = self._run(["info"], ASK_S)
        if done.returncode:
            raise NearsocketError(f"{self.name}: expected it to answer, found: {_last_line(done.stderr, done.stdout)}")

    def store(self) -> Path:
        """The folder that images are stored in."""
        field = "{{.DockerRootDir}}" if self.name == "docker" else "{{.Store.GraphRoot}}"
        return Path(os.fsdecode(self.run(["info", "--format", field])).strip())

    def tag(self, image: str, name: str) -> None:
        """Give an image that name, whoever had it before."""
        self.run(["tag", image, name])

    def remove(self, image: str) -> None:
        """Remove an image by its id; one that something else uses stays."""
        self._run(["rmi", image], ASK_S)

    @contextmanager
    def unstarted(self, image: str) -> Iterator[str]:
        """A container of the image that is never started, so that `cp` can read from it; removed at the end."""
        words = ["create", "--network", "none", "--entrypoint", "/nearsocket-reads-only", image]
        container = os.fsdecode(self.run(words)).strip().splitlines()[-1]
        try:
            yield container
        finally:
            self._run(["rm", "-f", container], ASK_S)

    def copy(self, container: str, path: str) -> Optional[bytes]:
        """A path of a container as a tar archive; None where it is not there. Raises NearsocketError for one that is too large."""
        words = [self.path, "cp", f"{container}:{path}", "-"]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdout is not None and child.stderr is not None
            limit = threading.Timer(COPY_S, child.kill)
            limit.start()
            try:
                data = child.stdout.read(MOST_BYTES + 1)
                if len(data) > MOST_BYTES:
                    child.kill()
                    raise NearsocketError(f"{one_line(path, 200)}: expected less than {MOST_BYTES >> 20} MiB, found more")
                said = child.stderr.read(1 << 16)
                child.wait()
            finally:
                limit.cancel()
        if child.returncode < 0:
            raise NearsocketError(f"{self.name} cp: expected an answer within {COPY_S:g} s, found none")
        if child.returncode == 0:
            return data
        text = said.decode("utf-8", "replace").lower()
        if "no such file" in text or "could not find" in text or "not found" in text or "could not be found" in text:
            return None
        raise NearsocketError(f"{self.name} cp: expected it to work, found: {_last_line(said, b'')}")

    def _run(self, words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [self.path, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise NearsocketError(f"{self.name} {words[0]}: expected an answer within {timeout_s:g} s, found none") from None


def find(name: Optional[str] = None) -> Engine:
    """The engine of that name, else the first of docker and podman that answers. Raises NearsocketError where none does."""
    said = []
    for candidate in [name] if name else KNOWN:
        path = shutil.which(candidate)
        if path is None:
            said.append(f"no {candidate} on PATH")
            continue
        engine = Engine(path)
        try:
            engine.alive()
        except NearsocketError as error:
            said.append(error.message)
            continue
        return engine
    raise NearsocketError(
        f"expected {name or 'docker or podman'} that answers, found: {'; '.join(said)}", "start it, or run as root"
    )


def _json(data: bytes) -> dict[str, Any]:
    raw = json.loads(data)
    first = raw[0] if isinstance(raw, list) else raw
    return first if isinstance(first, dict) else {}


def _pass_on(stream: Optional[IO[bytes]], last: list[bytes]) -> None:
    """Copy lines to standard error as they come; `last` holds the last that is not empty."""
    for line in stream or ():
        os.write(2, line)
        if line.strip():
            last[0] = line


def _last_line(*texts: bytes) -> str:
    for text in texts:
        lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
        if lines:
            return one_line(lines[-1].strip(), 300)
    return "nothing said"

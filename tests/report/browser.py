"""Headless Chromium, driven over its debugging pipe: the page as a reader's browser has it, with every complaint that it makes."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SECONDS = 100.0
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class BrowserError(Exception):
    """Chromium did not do what it was told."""


def executable() -> str | None:
    """Chromium's path; None where there is none."""
    return next((found for found in map(shutil.which, _NAMES) if found), None)


class Page:
    """One tab. `complaints` are console errors and warnings, exceptions and violations of the policy, as they came."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest = to, back, b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._events: list[str] = []
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        whole = {"id": number, "method": method, "params": parameters, **session}
        os.write(self._to, json.dumps(whole).encode() + b"\0")
        end = time.monotonic() + _SECONDS
        while True:
            message = self._next(end)
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result

    def open(self, path: Path, width: int = 1200, height: int = 900, dark: bool = False, media: str = "") -> None:
        """Load the file; returns when it is loaded."""
        self.resize(width, height)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        features.append({"name": "prefers-reduced-motion", "value": "reduce"})
        self.send("Emulation.setEmulatedMedia", media=media, features=features)
        self._events.clear()
        self.complaints.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + _SECONDS
        while "Page.loadEventFired" not in self._events:
            self._next(end)

    def resize(self, width: int, height: int) -> None:
        """The size of the window, in pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def ask(self, script: str) -> Any:
        """The value of that JavaScript; a promise is awaited."""
        made = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in made:
            raise BrowserError(f"{script[:200]}: {made['exceptionDetails']}")
        return made["result"].get("value")

    def press(self, key: str) -> None:
        """A key pressed and released."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    def type(self, text: str) -> None:
        """Text, as if typed into what has the focus."""
        self.send("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """A PNG of the window."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._back], [], [], max(end - time.monotonic(), 0))[0]:
                raise BrowserError(f"no answer in {_SECONDS:g} s")
            read = os.read(self._back, 1 << 20)
            if not read:
                raise BrowserError("Chromium ended")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, told: dict[str, Any]) -> None:
        self._events.append(event)
        if event == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {told['exceptionDetails']}")
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("warning", "error"):
            self.complaints.append(f"log: {told['entry']['text']}")
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(f"console: {told['args']}")
        elif event == "Network.requestWillBeSent" and told["request"]["url"].split(":")[0] not in ("file", "data"):
            self.complaints.append(f"request: {told['request']['url']}")
        elif event == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {told['message']}")


@contextlib.contextmanager
def page(folder: Path) -> Iterator[Page]:
    """A tab in a browser of its own, whose profile lies in `folder`; it is ended with everything that it started."""
    found = executable()
    if found is None:
        raise BrowserError("expected Chromium, found none")
    read_by_it, to = os.pipe()
    back, written_by_it = os.pipe()
    words = f'exec "$0" "$@" 3<&{read_by_it} 4>&{written_by_it}'
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"]
    options += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", words, found, *options],
        pass_fds=(read_by_it, written_by_it),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read_by_it)
    os.close(written_by_it)
    try:
        yield Page(to, back)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(to)
        os.close(back)

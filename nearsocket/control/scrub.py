"""Takes host names, addresses, serials and UUIDs out of a snapshot or a text, so that it can be shared. Pure.

One thing keeps one stand-in through a whole scrubbing: what belonged together (a GPU's UUID in two sources) still does.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterable
from typing import Any

from nearsocket.model.snapshot import Snapshot, Source

_UUID = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f])")
_MAC = re.compile(r"(?<![0-9A-Fa-f:])[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}(?:(?::[0-9A-Fa-f]{2}){14})?(?![0-9A-Fa-f:])")
_IPV4 = re.compile(r"(?<![\w.+~-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.+~-])")
_IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{3,39}(?![\w:])")
_SERIAL = re.compile(r"(?i)(\bserial[ _-]*(?:number|no\.?)?['\"]?\s*[:=]\s*['\"]?)([A-Za-z0-9][A-Za-z0-9./-]*)")
_SERIAL_KEY = re.compile(r"(?i)\A(?:[a-z]+_)?serial(?:_?number|_?no)?\Z")
#: A machine's own name for itself is replaced wherever it stands as a word; shorter names would tear other words apart.
_SHORTEST_NAME = 3
_COMMON = frozenset(
    {"localhost", "localhost.localdomain", "linux", "debian", "ubuntu", "none", "root", "node", "host", "gpu", "nvidia", "docker"}
)
#: Here four numbers with dots are versions.
_VERSIONS = (
    "packages",
    "packages.upgrades",
    "driver.",
    "dkms",
    "kernel.release",
    "os.release",
    "container.toolkit",
    "nvml",
    "nvidia.",
)
_HARMLESS = frozenset({"0.0.0.0", "127.0.0.1", "255.255.255.255", "::", "::1"})  # noqa: S104 - no address to bind


class Scrubber:
    """Replaces what identifies; `names` are host names to take out besides those that a snapshot itself tells."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._stand_ins: dict[tuple[str, str], str] = {}
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        for name in names:
            self.learn(name, self.host(name))

    def host(self, name: str) -> str:
        """The host's stand-in: host-1, host-2, … in the order of asking."""
        return self._stand_in("host", name, "host-{}")

    def learn(self, name: str, stand_in: str) -> None:
        """Take that name out from now on, with and without its domain."""
        for form in (name, name.partition(".")[0] if not re.fullmatch(r"[\d.]+", name) else ""):
            if len(form) >= _SHORTEST_NAME and form.lower() not in _COMMON:
                self._names.setdefault(form.lower(), stand_in)
        if self._names:
            longest_first = sorted(self._names, key=len, reverse=True)
            words = "|".join(re.escape(name) for name in longest_first)
            self._pattern = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])")

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The same snapshot without what identifies its host, its people and its parts."""
        stand_in = self.host(snapshot.host)
        self.learn(snapshot.host, stand_in)
        sysctl = snapshot.data("kernel.sysctl")
        if isinstance(sysctl, dict) and isinstance(sysctl.get("kernel/hostname"), str):
            self.learn(sysctl["kernel/hostname"].strip(), stand_in)
        user = snapshot.privilege.get("user")
        privilege = {**snapshot.privilege, "user": user if user in (None, "root") else "user"}
        return dataclasses.replace(
            snapshot,
            host=stand_in,
            boot_id=self.text(snapshot.boot_id) if snapshot.boot_id else None,
            privilege=self._value(privilege, True),
            program=snapshot.program,
            sources={name: self._source(name, source) for name, source in snapshot.sources.items()},
        )

    def _source(self, name: str, source: Source) -> Source:
        addresses = not name.startswith(_VERSIONS)
        return dataclasses.replace(
            source,
            text=self.text(source.text, addresses) if source.text is not None else None,
            data=self._value(source.data, addresses),
            reason=self.text(source.reason, addresses) if source.reason is not None else None,
        )

    def _value(self, value: Any, addresses: bool) -> Any:
        if isinstance(value, str):
            return self.text(value, addresses)
        if isinstance(value, list):
            return [self._value(item, addresses) for item in value]
        if isinstance(value, dict):
            return {self.text(key, addresses): self._member(key, item, addresses) for key, item in value.items()}
        return value

    def _member(self, key: str, value: Any, addresses: bool) -> Any:
        if _SERIAL_KEY.match(key) and isinstance(value, (str, int)) and not isinstance(value, bool):
            return self._stand_in("serial", str(value), "serial-{}")
        return self._value(value, addresses)

    def text(self, text: str, addresses: bool = True) -> str:
        """The text without what identifies; `addresses` False where four numbers with dots are a version."""
        text = _UUID.sub(lambda m: self._stand_in("uuid", m[0].lower(), "00000000-0000-4000-8000-{:012d}"), text)
        text = _SERIAL.sub(lambda m: m[1] + self._stand_in("serial", m[2], "serial-{}"), text)
        text = _MAC.sub(lambda m: self._stand_in("mac", m[0].lower(), "mac-{}"), text)
        if self._pattern is not None:
            text = self._pattern.sub(lambda m: self._names[m[0].lower()], text)
        if addresses:
            text = _IPV4.sub(self._address, text)
        return _IPV6.sub(self._address, text)

    def _address(self, match: re.Match[str]) -> str:
        try:
            address = str(ipaddress.ip_address(match[0]))
        except ValueError:
            return match[0]
        return match[0] if address in _HARMLESS else self._stand_in("address", address, "address-{}")

    def _stand_in(self, kind: str, found: str, form: str) -> str:
        number = 1 + sum(1 for known, _ in self._stand_ins if known == kind)
        return self._stand_ins.setdefault((kind, found), form.format(number))

"""Making a snapshot fit for sharing: names, addresses, serials and UUIDs give way to tokens, the verdict's ground stays.

One input gets one token throughout a snapshot, and throughout an audit of many hosts, so that a container still matches its
processes. PCI addresses, node and CPU numbers, sizes, versions, nccl- file names, names of containers and units stay.
"""

from __future__ import annotations

import ipaddress
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Callable, Optional

from nearsocket.model.identities import (
    DOCUMENTATION,
    DOMAIN,
    EXPORT,
    GENERIC_NAME,
    HOME,
    ID,
    IPV4,
    IPV6,
    MAC,
    NCCL_HOST,
    PROTECTED,
    PUBLIC_DOMAINS,
    PUBLIC_OWNERS,
    SERIAL,
    SERIAL_KEY,
    STRUCTURAL,
    TOKEN,
    URL,
    UUID,
)
from nearsocket.model.snapshot import Snapshot, Source

#: The image in a line of a compose file.
_IMAGE_LINE = re.compile(r"""(?P<before>^\s*image:\s*["']?)(?P<image>[^\s"']+)""", re.MULTILINE)


class _Tokens:
    """What each kind of thing was called, and what it is called now."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def of(self, kind: str, value: str, make: Callable[[int], str]) -> str:
        """The token of that value, a new one by its number where it has none."""
        if (kind, value) not in self._given:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._given[kind, value] = make(self._counts[kind])
        return self._given[kind, value]


def scrub(snapshot: Snapshot) -> Snapshot:
    """The snapshot without what names its owner. Pure; the same snapshot gives the same result."""
    return Scrubber().snapshot(snapshot)


class Scrubber:
    """Scrubs several snapshots and texts with the same tokens: one thing keeps one token in all of them.

    What one snapshot names is taken out of those that come after it too. Threads may share it.
    """

    def __init__(self) -> None:
        self._tokens = _Tokens()
        self._hosts: dict[str, str] = {}
        self._domains: dict[str, str] = {}
        self._users: dict[str, str] = {}
        self._short_ids: dict[str, str] = {}
        self._host_names: Optional[re.Pattern[str]] = None
        self._user_names: Optional[re.Pattern[str]] = None
        self._short: Optional[re.Pattern[str]] = None
        self._lock = threading.RLock()

    def host(self, name: str, *others: str) -> str:
        """The token of a host: `user@host`, a name or an address. `others` are further names of the same host."""
        with self._lock:
            user, at, bare = name.rpartition("@")
            self._learn_user(user)
            self._learn_host(bare)
            for other in others:
                self._learn_host(other, self._hosts.get(bare.lower()))
            self._compile()
            return (f"{self._users.get(user, user)}@" if at else "") + (self._hosts.get(bare.lower()) or self._free(bare))

    def user(self, name: str) -> None:
        """Take a person's or a user's name out from now on."""
        with self._lock:
            self._learn_user(name)
            self._compile()

    def text(self, text: str) -> str:
        """The text without what names an owner."""
        with self._lock:
            self._learn_from([text])
            return self._free(text)

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The same snapshot without what identifies its host, its people and its parts."""
        with self._lock:
            sysctl = snapshot.data("kernel.sysctl")
            kernel_name = sysctl.get("kernel/hostname", "") if isinstance(sysctl, Mapping) else ""
            host = self.host(snapshot.host, str(kernel_name).strip())
            self._learn_user(str(snapshot.privilege.get("user", "")))
            self._learn_from([text for s in snapshot.sources.values() for text in _strings([s.text, s.data, s.reason])])
            privilege = dict(snapshot.privilege)
            if "user" in privilege:
                privilege["user"] = self._users.get(str(privilege["user"]), str(privilege["user"]))
            return replace(
                snapshot,
                host=host,
                boot_id=None if snapshot.boot_id is None else self._free(snapshot.boot_id),
                privilege=privilege,
                sources={name: self._source(name, source) for name, source in snapshot.sources.items()},
            )

    def _learn_from(self, texts: Iterable[str]) -> None:
        for text in texts:
            for match in HOME.finditer(text):
                self._learn_user(match["name"])
            for match in NCCL_HOST.finditer(text):
                self._learn_host(match["name"])
            for match in ID.finditer(text):
                self._short_ids[match[0][:12]] = self._id(match[0])[:12]
        self._compile()

    def _compile(self) -> None:
        def words(names: Iterable[str]) -> str:
            return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))

        hosts = words(name for name in self._hosts if not _is_common(name))
        users = words(name for name in self._users if not _is_common(name))
        self._host_names = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{hosts})(?![A-Za-z0-9])") if hosts else None
        self._user_names = re.compile(rf"(?<!\w)(?:{users})(?!\w)") if users else None
        short = words(self._short_ids)
        self._short = re.compile(rf"(?<![0-9a-zA-Z])(?:{short})(?![0-9a-zA-Z])") if short else None

    def _learn_host(self, name: str, token: Optional[str] = None) -> None:
        name = name.lower()
        if not name or _is_address(name) or name in self._hosts or TOKEN.fullmatch(name):
            return
        first, _, domain = name.partition(".")
        # A short name is the host's of that name in the one domain that is known; in another domain it is another host.
        short = self._hosts.get(first)
        if token is None and short and (not domain or short not in self._domains):
            token = short
        token = token or self._tokens.of("host", name, lambda n: f"host-{n}")
        self._hosts[name] = token
        self._hosts.setdefault(first, token)
        if domain:
            self._domains.setdefault(token, domain)
        # The domain and its parents, down to two labels.
        while domain.count(".") >= 1 and domain not in self._hosts:
            self._hosts[domain] = self._tokens.of("domain", domain, lambda n: f"domain-{n}.example")
            domain = domain.partition(".")[2]

    def _learn_user(self, name: str) -> None:
        if name and name.lower() not in PROTECTED and not name.isdigit() and not TOKEN.fullmatch(name):
            self._users[name] = self._tokens.of("user", name, lambda n: f"user-{n}")

    def _id(self, value: str) -> str:
        if value.endswith("0" * 52):
            return value  # a token already
        # The number stands in front, so that the first twelve digits tell two ids apart.
        return self._tokens.of("id", value, lambda n: f"{n:012x}".ljust(64, "0"))

    def _source(self, name: str, source: Source) -> Source:
        """A source, every text in it scrubbed, keys included."""
        change = self._structural if name in STRUCTURAL else self._free
        data = self._changed(source.data, change)
        if name == "kernel.sysctl" and isinstance(data, dict) and isinstance(source.data.get("kernel/hostname"), str):
            data["kernel/hostname"] = self.host(source.data["kernel/hostname"])
        if name == "compose" and isinstance(data, dict):
            data = {path: _IMAGE_LINE.sub(lambda m: m["before"] + self._image(m["image"]), text) for path, text in data.items()}
        if name in ("containers", "containers.stopped") and isinstance(data, list):
            for entry in data:
                if isinstance(entry, dict) and isinstance(entry.get("image"), str):
                    entry["image"] = self._image(entry["image"])
        return replace(
            source,
            text=None if source.text is None else change(source.text),
            data=data,
            reason=None if source.reason is None else self._free(source.reason),
        )

    def _structural(self, text: str) -> str:
        """Only what cannot be a number or version of the host."""
        text = UUID.sub(self._uuid, text)
        text = ID.sub(lambda m: self._id(m[0]), text)
        return self._short.sub(lambda m: self._short_ids[m[0]], text) if self._short else text

    def _free(self, text: str) -> str:
        """Everything that names an owner, in free text."""
        text = self._structural(text)
        text = SERIAL.sub(lambda m: m["before"] + self._serial(m["value"]), text)
        text = MAC.sub(self._mac, text)
        text = NCCL_HOST.sub(lambda m: m["before"] + self._hosts.get(m["name"].lower(), m["name"]), text)
        text = URL.sub(self._place, text)
        text = EXPORT.sub(self._place, text)
        text = HOME.sub(lambda m: m["before"] + self._users.get(m["name"], m["name"]), text)
        if self._host_names:
            text = self._host_names.sub(lambda m: self._hosts[m[0].lower()], text)
        if self._user_names:
            text = self._user_names.sub(lambda m: self._users[m[0]], text)
        text = DOMAIN.sub(lambda m: self._domain(m[0]), text)
        text = IPV4.sub(self._ipv4, text)
        return IPV6.sub(self._ipv6, text)

    def _uuid(self, match: re.Match[str]) -> str:
        text = match[0].lower()
        if text.startswith("00000000-0000-0000-0000-"):
            return text
        return self._tokens.of("uuid", text, lambda n: f"00000000-0000-0000-0000-{n:012x}")

    def _mac(self, match: re.Match[str]) -> str:
        text = match[0].lower()
        if text.startswith("02:00:00:00:"):
            return text
        return self._tokens.of("mac", text, lambda n: f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}")

    def _serial(self, value: str) -> str:
        return value if TOKEN.fullmatch(value) else self._tokens.of("serial", value, lambda n: f"serial-{n}")

    def _place(self, match: re.Match[str]) -> str:
        name = match["name"]
        if _is_address(name) or name in PROTECTED:
            return match[0]
        return match["before"] + (self._hosts.get(name.lower()) or self._domain(name))

    def _domain(self, name: str) -> str:
        lower = name.lower()
        if lower.endswith((".example", *PUBLIC_DOMAINS)) or TOKEN.fullmatch(lower):
            return name
        return self._tokens.of("place", lower, lambda n: f"place-{n}.example")

    def _ipv4(self, match: re.Match[str]) -> str:
        text = match[0]
        if not _is_address(text) or text.startswith(("127.", "0.", "255.", *DOCUMENTATION)):
            return text
        return self._tokens.of("ipv4", text, lambda n: f"{DOCUMENTATION[n // 254 % 3]}.{n % 254 + 1}")

    def _ipv6(self, match: re.Match[str]) -> str:
        text = match[0]
        # `0::` begins a line of cgroup version 2.
        if not _is_address(text) or len(text.replace(":", " ").split()) < 2 or text.lower().startswith("2001:db8:"):
            return text
        return self._tokens.of("ipv6", text.lower(), lambda n: f"2001:db8::{n:x}")  # RFC 3849

    def _image(self, image: str) -> str:
        """An image's registry and owner give way to a token, its own name and tag stay."""
        place, slash, name = image.rpartition("/")
        if not slash or TOKEN.fullmatch(place) or place in PUBLIC_OWNERS or place.startswith(PUBLIC_DOMAINS):
            return image
        return f"{self._tokens.of('registry', place, lambda n: f'registry-{n}')}/{name}"

    def _changed(self, value: Any, change: Callable[[str], str]) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, Mapping):
            return {self._key(str(key), change): self._member(str(key), inner, change) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._changed(inner, change) for inner in value]
        return value

    def _key(self, key: str, change: Callable[[str], str]) -> str:
        # A key is the contract's word or a file of the kernel's; only an absolute path may name somebody.
        return change(key) if key.startswith("/") else self._structural(key)

    def _member(self, key: str, value: Any, change: Callable[[str], str]) -> Any:
        if SERIAL_KEY.fullmatch(key) and isinstance(value, (str, int)) and not isinstance(value, bool):
            return self._serial(str(value))
        return self._changed(value, change)


def _is_common(name: str) -> bool:
    return len(name) < 3 or name.isdigit() or name.lower() in PROTECTED or bool(GENERIC_NAME.match(name))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, inner in value.items() for text in [str(key), *_strings(inner)]]
    if isinstance(value, list):
        return [text for inner in value for text in _strings(inner)]
    return []

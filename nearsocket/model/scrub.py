"""Making a snapshot fit for sharing: names, addresses, serials and UUIDs give way to tokens, the verdict's ground stays.

One input gets one token throughout a snapshot, so that a container still matches its processes. PCI addresses, node and
CPU numbers, sizes, versions, nccl- file names, names of containers and units stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Callable

from nearsocket.model.snapshot import Snapshot, Source

#: Sources that hold numbers, versions and the kernel's own words: names are not looked for there, only UUIDs and the like.
_STRUCTURAL = frozenset(
    {
        "cpus",
        "dkms",
        "driver.libraries",
        "driver.modinfo",
        "driver.module",
        "kernel.images",
        "kernel.mm",
        "kernel.modules",
        "kernel.release",
        "kernel.sysctl",
        "meminfo",
        "nodes",
        "numactl",
        "nvidia.topo",
        "packages",
        "os.release",
        "packages.holds",
        "zfs.arcstats",
    }
)
#: Words that a host or user may be called by but that the kernel, systemd or an engine uses too. In running text they stay.
_PROTECTED_LIST = (
    "root localhost docker podman nvidia sglang vllm nccl cuda python python3 system user default bind prefer interleave numa node"
    " host none ubuntu debian linux kernel active vm net fs dev server worker gpu cpu test lab main models model data admin"
)
_PROTECTED = frozenset(_PROTECTED_LIST.split())
#: Public places; which of them an image came from tells nobody who owns the host.
_PUBLIC_DOMAINS = (
    "nvidia.com",
    "nvcr.io",
    "docker.io",
    "quay.io",
    "ghcr.io",
    "huggingface.co",
    "github.com",
    "kubernetes.io",
    "k8s.io",
)
_PUBLIC_OWNERS = frozenset({"lmsysorg", "vllm", "nvidia", "library", "rocm", "pytorch"})

_UUID = re.compile(r"(?<![0-9a-zA-Z])[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![0-9a-zA-Z])")
_ID = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{64}(?![0-9a-zA-Z])")
_MAC = re.compile(r"(?<![0-9a-fA-F:.-])(?:[0-9a-fA-F]{2}[:-]){5}(?:(?:[0-9a-fA-F]{2}[:-]){14})?[0-9a-fA-F]{2}(?![0-9a-fA-F:-])")
_IPV4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])")
_SERIAL = re.compile(
    r"(?i)(?P<before>\b(?:serial(?:[ _-]?(?:no|number))?|asset[ _-]?tag|partuuid|wwn)\s*[:=]\s*)(?P<value>[\w.-]{4,})"
)
_HOME = re.compile(r"(?P<before>/home/|/Users/|/var/home/|/export/home/)(?P<name>[^/\s\"':,]+)")
_URL = re.compile(r"(?P<before>\b[A-Za-z][A-Za-z0-9+.-]*://(?:[^\s/@\"']*@)?)(?P<name>[A-Za-z0-9][\w.-]*)")
_EXPORT = re.compile(r"(?P<before>^|[\s,=])(?P<name>[A-Za-z][\w.-]*)(?=:/(?!/))", re.MULTILINE)
_DOMAIN = re.compile(
    r"(?<![\w./-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+"
    r"(?:com|net|org|io|ai|co|dev|cloud|internal|local|lan|corp|intra|home|test|example|edu|gov|eu|de|fr|nl|ch|at|uk|cn|jp|kr|in|ru|pl|it|es|se)"
    r"(?![\w.-]*\w)"
)
_NCCL_HOST = re.compile(r"(?P<before>^|\s)(?P<name>[A-Za-z0-9][\w.-]*)(?=:\d{1,10}:\d{1,10} \[)", re.MULTILINE)
_GENERIC_NAME = re.compile(r"(?:node|cpu|numa|socket)[-_]?\d*\Z", re.IGNORECASE)
_DOCUMENTATION = ("192.0.2", "198.51.100", "203.0.113")  # RFC 5737


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
    scrubber = _Scrubber(snapshot)
    boot_id = snapshot.boot_id
    privilege = dict(snapshot.privilege)
    if "user" in privilege:
        privilege["user"] = scrubber.user(str(privilege["user"]))
    return replace(
        snapshot,
        host=scrubber.host(snapshot.host),
        boot_id=None if boot_id is None else scrubber.free(boot_id),
        privilege=privilege,
        sources={name: scrubber.source(name, source) for name, source in snapshot.sources.items()},
    )


class _Scrubber:
    def __init__(self, snapshot: Snapshot) -> None:
        self.tokens = _Tokens()
        self.hosts: dict[str, str] = {}
        self.users: dict[str, str] = {}
        self.short_ids: dict[str, str] = {}
        sysctl = snapshot.data("kernel.sysctl")
        kernel_name = sysctl.get("kernel/hostname", "") if isinstance(sysctl, Mapping) else ""
        for name in (snapshot.host.rpartition("@")[2], str(kernel_name)):
            self._learn_host(name)
        self._learn_user(str(snapshot.privilege.get("user", "")))
        for source in snapshot.sources.values():
            for text in _strings([source.text, source.data, source.reason]):
                for match in _HOME.finditer(text):
                    self._learn_user(match["name"])
                for match in _NCCL_HOST.finditer(text):
                    self._learn_host(match["name"])
                for match in _ID.finditer(text):
                    self.short_ids[match[0][:12]] = self._id(match[0])[:12]
        words = [name for name in {**self.hosts, **self.users} if not _is_common(name)]
        names = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        self.names = re.compile(rf"(?<![\w])(?:{names})(?![\w])") if names else None
        short = "|".join(map(re.escape, self.short_ids))
        self.short = re.compile(rf"(?<![0-9a-zA-Z])(?:{short})(?![0-9a-zA-Z])") if short else None

    def _learn_host(self, name: str) -> None:
        if not name or _is_address(name):
            return
        first, _, domain = name.partition(".")
        for part in {first, name}:
            self.hosts[part] = self.tokens.of("host", first, lambda n: f"host-{n}")
        # The domain and its parents, down to two labels.
        while domain.count(".") >= 1 and domain not in self.hosts:
            self.hosts[domain] = self.tokens.of("domain", domain, lambda n: f"domain-{n}.example")
            domain = domain.partition(".")[2]

    def _learn_user(self, name: str) -> None:
        if name and name.lower() not in _PROTECTED and not name.isdigit():
            self.users[name] = self.tokens.of("user", name, lambda n: f"user-{n}")

    def _id(self, value: str) -> str:
        # The number stands in front, so that the first twelve digits tell two ids apart.
        return self.tokens.of("id", value, lambda n: f"{n:012x}".ljust(64, "0"))

    def host(self, name: str) -> str:
        """A target's name: `user@host`, a name or an address."""
        user, at, bare = name.rpartition("@")
        return (f"{self.user(user)}@" if at else "") + self.hosts.get(bare, self.free(bare))

    def user(self, name: str) -> str:
        """A user's name."""
        return self.users.get(name, name)

    def source(self, name: str, source: Source) -> Source:
        """A source, every text in it scrubbed, keys included."""
        change = self.structural if name in _STRUCTURAL else self.free
        data = _changed(source.data, change, self)
        if name == "kernel.sysctl" and isinstance(data, dict) and isinstance(source.data.get("kernel/hostname"), str):
            data["kernel/hostname"] = self.host(source.data["kernel/hostname"])
        if name == "containers" and isinstance(data, list):
            for entry in data:
                if isinstance(entry, dict) and isinstance(entry.get("image"), str):
                    entry["image"] = self._image(entry["image"])
        return replace(
            source,
            text=None if source.text is None else change(source.text),
            data=data,
            reason=None if source.reason is None else self.free(source.reason),
        )

    def structural(self, text: str) -> str:
        """Only what cannot be a number or version of the host."""
        text = _UUID.sub(lambda m: self.tokens.of("uuid", m[0].lower(), lambda n: f"00000000-0000-0000-0000-{n:012x}"), text)
        text = _ID.sub(lambda m: self._id(m[0]), text)
        return self.short.sub(lambda m: self.short_ids[m[0]], text) if self.short else text

    def free(self, text: str) -> str:
        """Everything that names an owner, in free text."""
        text = self.structural(text)
        text = _SERIAL.sub(lambda m: m["before"] + self.tokens.of("serial", m["value"], lambda n: f"serial-{n}"), text)
        text = _MAC.sub(lambda m: self.tokens.of("mac", m[0].lower(), lambda n: f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}"), text)
        text = _NCCL_HOST.sub(lambda m: m["before"] + self.hosts.get(m["name"], m["name"]), text)
        text = _URL.sub(self._place, text)
        text = _EXPORT.sub(self._place, text)
        text = _HOME.sub(lambda m: m["before"] + self.users.get(m["name"], m["name"]), text)
        if self.names:
            text = self.names.sub(lambda m: self.hosts.get(m[0]) or self.users[m[0]], text)
        text = _DOMAIN.sub(lambda m: self._domain(m[0]), text)
        text = _IPV4.sub(self._ipv4, text)
        return _IPV6.sub(self._ipv6, text)

    def _place(self, match: re.Match[str]) -> str:
        name = match["name"]
        if _is_address(name) or name in _PROTECTED:
            return match[0]
        return match["before"] + (self.hosts.get(name) or self._domain(name))

    def _domain(self, name: str) -> str:
        lower = name.lower()
        if lower.endswith((".example", *_PUBLIC_DOMAINS)) or re.fullmatch(r"(?:host|user|serial|place)-\d+", lower):
            return name
        return self.tokens.of("place", lower, lambda n: f"place-{n}.example")

    def _ipv4(self, match: re.Match[str]) -> str:
        text = match[0]
        if not _is_address(text) or text.startswith(("127.", "0.", "255.", *_DOCUMENTATION)):
            return text
        return self.tokens.of("ipv4", text, lambda n: f"{_DOCUMENTATION[n // 254 % 3]}.{n % 254 + 1}")

    def _ipv6(self, match: re.Match[str]) -> str:
        text = match[0]
        # `0::` begins a line of cgroup version 2.
        if not _is_address(text) or len(text.replace(":", " ").split()) < 2 or text.lower().startswith("2001:db8:"):
            return text
        return self.tokens.of("ipv6", text.lower(), lambda n: f"2001:db8::{n:x}")  # RFC 3849

    def _image(self, image: str) -> str:
        """An image's registry and owner give way to a token, its own name and tag stay."""
        place, slash, name = image.rpartition("/")
        if not slash or place in _PUBLIC_OWNERS or place.startswith(_PUBLIC_DOMAINS):
            return image
        return f"{self.tokens.of('registry', place, lambda n: f'registry-{n}')}/{name}"


def _is_common(name: str) -> bool:
    return len(name) < 3 or name.isdigit() or name.lower() in _PROTECTED or bool(_GENERIC_NAME.match(name))


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


def _changed(value: Any, change: Callable[[str], str], scrubber: _Scrubber) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        # A key is the contract's word or a file of the kernel's; only an absolute path may name somebody.
        return {
            (change if str(key).startswith("/") else scrubber.structural)(str(key)): _changed(inner, change, scrubber)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_changed(inner, change, scrubber) for inner in value]
    return value

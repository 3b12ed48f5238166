"""How what names an owner looks: addresses, serials, names of hosts and users; and the words that only look so."""

from __future__ import annotations

import re

#: Sources that hold numbers, versions and the kernel's own words: names are not looked for there, only UUIDs and the like.
STRUCTURAL = frozenset(
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
PROTECTED_LIST = (
    "root localhost docker podman nvidia sglang vllm nccl cuda python python3 system user default bind prefer interleave numa node"
    " host none ubuntu debian linux kernel active vm net fs dev server worker gpu cpu test lab main models model data admin"
)
PROTECTED = frozenset(PROTECTED_LIST.split())
#: Public places; which of them an image came from tells nobody who owns the host.
PUBLIC_DOMAINS = (
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
PUBLIC_OWNERS = frozenset({"lmsysorg", "vllm", "nvidia", "library", "rocm", "pytorch"})

UUID = re.compile(r"(?<![0-9a-zA-Z])[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![0-9a-zA-Z])")
ID = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{64}(?![0-9a-zA-Z])")
MAC = re.compile(r"(?<![0-9a-fA-F:.-])(?:[0-9a-fA-F]{2}[:-]){5}(?:(?:[0-9a-fA-F]{2}[:-]){14})?[0-9a-fA-F]{2}(?![0-9a-fA-F:-])")
IPV4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])")
SERIAL = re.compile(
    r"(?i)(?P<before>\b(?:serial(?:[ _-]*(?:no\.?|number))?|asset[ _-]?tag|partuuid|wwn)['\"]?\s*[:=]\s*['\"]?)"
    r"(?P<value>\w[\w./-]*)"
)
HOME = re.compile(r"(?P<before>/home/|/Users/|/var/home/|/export/home/)(?P<name>[^/\s\"':,]+)")
URL = re.compile(r"(?P<before>\b[A-Za-z][A-Za-z0-9+.-]*://(?:[^\s/@\"']*@)?)(?P<name>[A-Za-z0-9][\w.-]*)")
EXPORT = re.compile(r"(?P<before>^|[\s,=])(?P<name>[A-Za-z][\w.-]*)(?=:/(?!/))", re.MULTILINE)
DOMAIN = re.compile(
    r"(?<![\w./-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+"
    r"(?:com|net|org|io|ai|co|dev|cloud|internal|local|lan|corp|intra|home|test|example|edu|gov|eu|de|fr|nl|ch|at|uk|cn|jp|kr|in|ru|pl|it|es|se)"
    r"(?![\w.-]*\w)"
)
NCCL_HOST = re.compile(r"(?P<before>^|\s)(?P<name>[A-Za-z0-9][\w.-]*)(?=:\d{1,10}:\d{1,10} \[)", re.MULTILINE)
SERIAL_KEY = re.compile(r"(?i)(?:[a-z]+_)?serial(?:_?number|_?no)?")
#: What scrubbing itself puts in: scrubbed again it stays.
TOKEN = re.compile(r"(?:host|user|serial|place|registry|domain)-\d+(?:\.example)?")
GENERIC_NAME = re.compile(r"(?:node|cpu|numa|socket)[-_]?\d*\Z", re.IGNORECASE)
DOCUMENTATION = ("192.0.2", "198.51.100", "203.0.113")  # RFC 5737

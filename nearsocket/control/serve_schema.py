"""What a person may write about engines: `serve`, `replicas` and `tune`, as pydantic models. Everything may be left out here;
what is missing shows when the levels are merged (control/settings.py)."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from nearsocket.control.strict import Seconds, Size, Strict, Whole, no_boolean
from nearsocket.model import places
from nearsocket.model.plan import gpus

_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:-]*@sha256:[0-9a-f]{64}\Z")


def _image(value: object) -> object:
    return {"reference": value} if isinstance(value, str) else value


def _reference(text: str) -> str:
    if not _IMAGE.match(text):
        raise ValueError("expected an image by digest, such as registry.example/sglang@sha256:... (64 hexadecimal digits)")
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/") or posixpath.normpath(text) != text or "," in text or '"' in text or not text.isprintable():
        raise ValueError("expected an absolute path in its shortest form, without commas, double quotes and control characters")
    return text


def _mount(text: str) -> str:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if mode not in ("", "ro", "rw"):
        raise ValueError("expected SOURCE:TARGET or SOURCE:TARGET:ro")
    _absolute(source)
    _absolute(target)
    return text


def _gpus(value: object) -> object:
    if value == "auto" or value is None:
        return ()
    words = [value] if isinstance(value, str | int) else value
    if not isinstance(words, list | tuple) or not words:
        raise ValueError("expected auto, or a list of GPU indices and PCI addresses")
    made = []
    for word in words:
        if isinstance(word, bool | float):  # YAML reads 0000:41:00.0 without quotes as a number to base 60
            raise ValueError("expected a PCI address in quotes")
        text = str(word).strip()
        if not re.fullmatch(r"[0-9]{1,3}", text) and gpus.address(text) is None:
            raise ValueError("expected GPU indices such as 0 and PCI addresses such as '0000:c1:00.0'")
        made.append(text)
    return tuple(made)


def _listen(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("expected an IP address such as 127.0.0.1 or 0.0.0.0") from None
    return text


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    if words:
        _absolute(words[0])
    return words


def _binding(value: object) -> object:
    if value == "auto":
        return None
    if value in ("none", []):
        return ()
    return [value] if isinstance(value, str) else value


def _plain(text: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ValueError("expected a text of one line without control characters")
    return text


def _unreserved(name: str) -> str:
    if places.reserved(name):
        raise ValueError("expected a name other than shm, probe and probe-..., which are nearsocket's own")
    return name


Text = Annotated[str, Field(max_length=8192), AfterValidator(_plain)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
Path = Annotated[str, Field(max_length=1024), AfterValidator(_absolute)]
Reference = Annotated[str, Field(max_length=400), AfterValidator(_reference)]
Mount = Annotated[str, Field(max_length=2048), AfterValidator(_mount)]
Gpus = Annotated[tuple[str, ...], BeforeValidator(_gpus)]
Listen = Annotated[str, AfterValidator(_listen)]
Words = Annotated[tuple[Text, ...], AfterValidator(_program)]
LayerName = Literal["shm", "cpuset", "numactl", "cumem", "per-rank"]
Binding = Annotated[tuple[LayerName, ...] | None, BeforeValidator(_binding)]
ReplicaName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?$"), AfterValidator(_unreserved)]
Version = Annotated[str, Field(pattern=r"^v?\d+(\.\d+){1,3}((\.?post|rc)\d+)?$")]


class SecretEntry(Strict):
    """Where a secret is: a file on the server that holds its value. The value itself is never here."""

    file: Path


class ImageEntry(Strict):
    """The image by digest, and what is known of its inside."""

    reference: Reference | None = None
    numactl: bool | None = None
    nccl: Version | None = None
    release: Version | None = None
    patch: Literal["chunked-pcie-allreduce"] | None = None


class LimitsEntry(Strict):
    """Times and sizes."""

    start: Seconds | None = None
    stop: Seconds | None = None
    restarts: Annotated[Whole, Field(ge=1, le=100)] | None = None
    restart_delay: Seconds | None = None
    memlock: Size | None = None
    shm: Size | None = None
    cpus: Annotated[Whole, Field(ge=1, le=65536)] | None = None


class VerifyEntry(Strict):
    """How a start is proven, and what a proven far does."""

    policy: Literal["warn", "fail", "restart"] | None = None
    request: bool | None = None
    api_key: Variable | None = None
    timeout: Annotated[Seconds, Field(ge=10, le=3600)] | None = None
    metrics: Path | None = None


class ProbeEntry(Strict):
    """How the path between the GPUs is proven before a start that is new."""

    before_start: Literal["auto", "never"] | None = None
    backend: Literal["nccl", "gloo", "standin"] | None = None
    limit: Annotated[Seconds, Field(ge=10, le=3600)] | None = None


class HooksEntry(Strict):
    """Programs on the server: out of the load balancer before a stop, back in after a start."""

    drain: Words | None = None
    undrain: Words | None = None


class ServeEntry(Strict):
    """How an engine is run; defaults, groups, hosts and replicas may each say a part."""

    engine: Literal["sglang", "vllm"] | None = None
    runtime: Literal["docker", "podman"] | None = None
    image: Annotated[ImageEntry | None, BeforeValidator(_image)] = None
    model: Path | None = None
    command: tuple[Text, ...] | None = None
    arguments: tuple[Text, ...] | None = None
    environment: dict[Variable, Text] | None = None
    secrets: dict[Variable, SecretEntry] | None = None
    nccl: dict[Annotated[str, Field(pattern=r"^NCCL_[A-Z0-9_]+$")], Text] | None = None
    mounts: tuple[Mount, ...] | None = None
    listen: Listen | None = None
    health: Annotated[str, Field(pattern=r"^/[A-Za-z0-9_./?=&-]*$")] | None = None
    gpu_count: Annotated[Whole, Field(ge=1, le=64)] | None = None
    binding: Binding = None
    page_cache: Literal["auto", "drop", "near", "weights", "none"] | None = None
    changed_nodes: Literal["unbound", "refuse"] | None = None
    host_memory: Size | None = None
    limits: LimitsEntry | None = None
    hooks: HooksEntry | None = None
    verify: VerifyEntry | None = None
    probe: ProbeEntry | None = None


class ReplicaEntry(ServeEntry):
    """One engine instance on its own GPUs."""

    name: ReplicaName
    gpus: Gpus = ()
    port: Annotated[Whole, Field(ge=1, le=65535)] | None = None
    adopt: Literal["observe", "next-restart", "now"] | None = None


class TuneEntry(Strict):
    """Host-wide settings, each opted into by naming it."""

    numa_balancing: Annotated[Literal[0, 1], no_boolean("0 or 1")] | None = None
    zone_reclaim_mode: Annotated[Whole, Field(ge=0, le=7)] | None = None
    swappiness: Annotated[Whole, Field(ge=0, le=200)] | None = None
    transparent_hugepages: Literal["always", "madvise", "never"] | None = None
    updates: Literal["leave", "blacklist"] | None = None


class ServingKeys(Strict):
    """What defaults, groups and hosts may say about serving."""

    serve: ServeEntry | None = None
    replicas: tuple[ReplicaEntry, ...] | None = None
    tune: TuneEntry | None = None
    reserved_cores: Annotated[Whole, Field(ge=0, le=1024)] | None = None


def said(entry: Strict | None) -> dict[str, Any]:
    """What the entry says itself, nested, without what it leaves out."""
    return entry.model_dump(exclude_unset=True) if entry is not None else {}

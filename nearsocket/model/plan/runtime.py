"""How a container gets its GPUs on this host: by CDI where the runtime has it, else by Docker's `--gpus`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from nearsocket.model.host import Gpu, Host
from nearsocket.model.plan.values import Gate, Refusal
from nearsocket.model.settings import Runtime
from nearsocket.model.snapshot import SourceStatus
from nearsocket.model.verdicts.reading import files, mapping, why

CDI_KIND = "nvidia.com/gpu"


def gpu_gate(host: Host, runtime: Runtime, gpus: Sequence[Gpu]) -> tuple[Gate, str]:
    """The way, and the reason.

    Docker has CDI where `docker info` lists its spec folders (25 with `features.cdi`, 28.3 and newer by itself). podman knows
    nothing but CDI. UUIDs are used where the CDI files have them, since NVML's order can change between boots.
    """
    specs = "\n".join(files(host, "cdi").values())
    defined = CDI_KIND in specs
    by_uuid = defined and bool(gpus) and all(gpu.uuid and gpu.uuid in specs for gpu in gpus)
    way = Gate.CDI_UUID if by_uuid else Gate.CDI_INDEX
    named = "by UUID" if by_uuid else "by index, resolved at each start"
    if runtime is Runtime.PODMAN:
        seen = f"the CDI files define {CDI_KIND}" if defined else f"podman has CDI alone (no CDI file was seen: {why(host, 'cdi')})"
        return way, f"{seen}, {named}"
    folders = mapping(host, "docker.info").get("CDISpecDirs")
    if folders and defined:
        return way, f"Docker has CDI and the CDI files define {CDI_KIND}, {named}"
    if folders:
        return Gate.GPUS, f"Docker has CDI, but no CDI file defines {CDI_KIND}"
    if not mapping(host, "docker.info"):
        return Gate.GPUS, f"whether Docker has CDI is not known: {why(host, 'docker.info')}"
    return Gate.GPUS, "Docker's CDI is off (docker info names no CDI folder)"


def no_way(host: Host, replica: str, gate: Gate) -> Optional[Refusal]:
    """Why no container gets a GPU here: `--gpus` is NVIDIA's toolkit's, and that is not installed. None where it may work."""
    toolkit = host.sources.get("container.toolkit")
    if gate is not Gate.GPUS or toolkit is None or toolkit.status is not SourceStatus.ABSENT:
        return None
    hint = 'install nvidia-container-toolkit; or write CDI files (nvidia-ctk cdi generate) and say {"features": {"cdi": true}, '
    hint += '"cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]} in /etc/docker/daemon.json (Docker 26 needs both)'
    return Refusal(
        replica, "Docker's CDI gives no GPU here, and NVIDIA's container toolkit, which --gpus needs, is not there", hint
    )

"""What a compose project's labels on its containers say, as docker compose v2 and podman's compose write them."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

PREFIX = "com.docker.compose."
#: Stands, with the reason and `>` behind it, for a file that could not be read.
UNREAD = "<unread: "


def label(labels: Mapping[str, str], name: str) -> str:
    """The value of compose's own label of that name; empty where it is not there."""
    return labels.get(f"{PREFIX}{name}", "")


def paths(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The project's files by absolute path, in their order; podman's compose names them relative to the project's folder."""
    folder = label(labels, "project.working_dir")
    names = [name for name in label(labels, "project.config_files").split(",") if name and name != "-"]
    found = [posixpath.normpath(posixpath.join(folder, name)) for name in names]
    return tuple(path for path in found if path.startswith("/"))


def waits_for(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The services that it depends on (`db:service_started:false,cache:service_healthy:true`)."""
    return tuple(word.partition(":")[0] for word in label(labels, "depends_on").split(",") if word)

"""Engine containers that run on this host: by our labels, or by what the known stacks are named."""

from __future__ import annotations

import fnmatch
import os
from typing import Any

from run.command import Failed, read

from engines import containers, podman

LABEL = "io.spark-converge."
PROJECT = "com.docker.compose.project"


def is_engine(container: dict[str, Any], signs: dict[str, Any]) -> bool:
    """signs: {"compose_projects": [], "image_repositories": [], "name_patterns": []}"""
    labels = container["Config"].get("Labels") or {}
    return (
        any(label.startswith(LABEL) for label in labels)
        or labels.get(PROJECT) in signs.get("compose_projects", ())
        or named(container["Name"].lstrip("/"), container["Config"].get("Image") or "", signs)
    )


def named(name: str, reference: str, signs: dict[str, Any]) -> bool:
    """Is a container known by its name or by its image?"""
    image = familiar(reference.split("@", maxsplit=1)[0])
    return bool({image, image.rsplit(":", 1)[0]} & set(signs.get("image_repositories", ()))) or any(
        fnmatch.fnmatchcase(name, p) for p in signs.get("name_patterns", ())
    )


def familiar(image: str) -> str:
    """As docker shows an image: what it and podman add to a bare name is left out."""
    for added in ("docker.io/", "index.docker.io/", "localhost/", "library/"):
        if image.startswith(added):
            image = image[len(added) :]
    return image


def shims() -> bool:
    """Does any container live, as far as the process list tells?"""
    return any(
        (read(f"/proc/{pid}/comm") or "").startswith("containerd-shim")
        for pid in os.listdir("/proc")
        if pid.isdigit()
    )


def running(signs: dict[str, Any]) -> list[str]:
    """Names of running engines. A docker that does not answer is no "none", unless nothing runs."""
    beside = [podman.title(p) for p in podman.running() if named(p["name"], p["image"], signs)]
    try:
        found = containers.inspect_all() or []
    except Failed:
        if shims():
            raise
        return beside
    ours = [c for c in found if c["State"]["Running"] and is_engine(c, signs)]
    return [c["Name"].lstrip("/") for c in ours] + beside

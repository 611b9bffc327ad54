"""Engine containers that run on this host: by our labels, or by what the known stacks are named."""

from __future__ import annotations

import fnmatch
import os
from typing import Any

from run import processes
from run.command import Failed, read

from engines import containers, outside, podman, signs

LABEL = "io.spark-converge."
PROJECT = "com.docker.compose.project"


def is_engine(container: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """wanted: {"compose_projects": [], "image_repositories": [], "name_patterns": []}"""
    labels = container["Config"].get("Labels") or {}
    return (
        any(label.startswith(LABEL) for label in labels)
        or labels.get(PROJECT) in wanted.get("compose_projects", ())
        or named(container["Name"].lstrip("/"), container["Config"].get("Image") or "", wanted)
    )


def named(name: str, reference: str, wanted: dict[str, Any]) -> bool:
    """Is a container known by its name or by its image?"""
    image = familiar(reference.split("@", maxsplit=1)[0])
    if {image, image.rsplit(":", 1)[0]} & set(wanted.get("image_repositories", ())):
        return True
    return any(fnmatch.fnmatchcase(name, p) for p in wanted.get("name_patterns", ()))


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


def running(wanted: dict[str, Any]) -> list[str]:
    """What runs of the known stacks (wanted: see is_engine) or behaves like an engine. A docker
    that does not answer is no "none", unless nothing runs."""
    every = list(processes.processes())
    outsiders = [f"{one['name']} (pid {one['pid']})" for one in outside.section({})["programs"]]
    beside = [
        podman.title(one)
        for one in podman.running(every)
        if one["signs"] or named(one["name"], one["image"], wanted)
    ]
    try:
        found = containers.inspect_all()
    except Failed:
        if shims():
            raise
        return beside + outsiders
    inside = containers.by_container(every)
    ours = [
        one["Name"].lstrip("/")
        for one in found
        if one["State"]["Running"]  # so it says of one in a loop of crashes, too
        and (is_engine(one, wanted) or signs.of_container(one, inside.get(one["Id"], [])))
    ]
    return ours + beside + outsiders

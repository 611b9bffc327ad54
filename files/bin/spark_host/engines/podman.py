"""Containers that podman runs here, for whichever user: only found and named, never touched.

No daemon knows all of them: every user has a store of their own. But each running one has a monitor
(conmon), whose command line has the container's name and folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from run import processes
from run.command import read, which
from run.processes import Process

from engines import signs

MONITOR = "conmon"
WANTED = {"-c": "id", "--cid": "id", "-n": "name", "--name": "name", "-b": "bundle"}
WANTED["--bundle"] = "bundle"
# What podman puts before the short name of an image of Docker Hub.
HUB = ("docker.io/library/", "docker.io/")


def options(argv: list[str]) -> dict[str, str]:
    """{"id", "name", "bundle"} as far as a monitor's command line has them."""
    return {WANTED[word]: argv[at + 1] for at, word in enumerate(argv[:-1]) if word in WANTED}


def image_of(bundle: str, container_id: str) -> str:
    """As the store has it, "" where it does not say."""
    store = os.path.dirname(os.path.dirname(bundle))  # STORE/overlay-containers/ID/userdata
    try:
        listed = json.loads(read(f"{store}/containers.json") or "[]")
        told = next(one["metadata"] for one in listed if one["id"] == container_id)
        name = str(json.loads(told)["image-name"])
    except (ValueError, LookupError, TypeError, StopIteration):
        return ""
    return next((name[len(hub) :] for hub in HUB if name.startswith(hub)), name)


def descendants(pid: int, among: Sequence[Process]) -> list[Process]:
    below = [one for one in among if one.parent == pid]
    return below + [deeper for one in below for deeper in descendants(one.pid, among)]


def running(among: Sequence[Process] | None = None) -> Iterator[dict[str, Any]]:
    """{"name", "image", "user", "signs"} of each; a monitor of another program (CRI-O) is none of
    them. among: the processes of this host, where they were read already."""
    if not which("podman"):
        return
    among = list(processes.processes()) if among is None else among
    for one in among:
        if os.path.basename(one.argv[0]) != MONITOR:
            continue
        told = options(one.argv)
        by_podman = any(os.path.basename(word) == "podman" for word in one.argv)
        user = processes.owner(one.pid)
        if user == processes.GONE:  # since the list was made
            continue
        if by_podman and {"id", "name", "bundle"} <= set(told):
            image = image_of(told["bundle"].rstrip("/"), told["id"])
            inside = signs.of_processes(descendants(one.pid, among))
            yield {"name": told["name"], "image": image, "user": user, "signs": inside}


def title(one: dict[str, Any]) -> str:
    """As operations name it too: two users may have a container of one name."""
    return f"{one['name']} (podman of {one['user']})"

"""Containers and images of the docker daemon. A daemon that does not answer is an error."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from run import processes
from run.command import Failed, which
from run.places import CONTAINER, cgroups
from run.processes import Process

from engines import podman, recipe, signs

SOCKET = "/var/run/docker.sock"
KEPT = ("Id", "Name", "RestartCount", "Image", "Created")


def ask(path: str) -> tuple[int, Any]:
    """(HTTP status, JSON) from the daemon's own API: a docker command costs ten times as long."""
    return exchange("GET", path)


def tell(path: str, document: Any = None, timeout_s: float = 180) -> tuple[int, Any]:
    """(HTTP status, JSON) of something that the daemon is to do."""
    return exchange("POST", path, "" if document is None else json.dumps(document), timeout_s)


def exchange(method: str, path: str, text: str = "", timeout_s: float = 30) -> tuple[int, Any]:
    """HTTP/1.0, so that the daemon neither chunks its answer nor keeps the connection; JSON is null
    where the daemon says no more than a status."""
    sent = text.encode()
    head = f"{method} {path} HTTP/1.0\r\nHost: docker\r\nContent-Length: {len(sent)}\r\n"
    head += "Content-Type: application/json\r\n" if sent else ""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(timeout_s)
        try:
            link.connect(SOCKET)
            link.sendall(f"{head}\r\n".encode() + sent)
            data = b""
            while part := link.recv(65536):
                data += part
        except OSError as error:
            raise Failed(f"the docker daemon does not answer ({error})") from None
    top, _, body = data.partition(b"\r\n\r\n")
    try:
        return int(top.split()[1]), json.loads(body) if body.strip() else None
    except (IndexError, ValueError, RecursionError):
        raise Failed(f"odd answer of the docker daemon: {data[:120]!r}") from None


def installed() -> bool:
    return os.path.exists(SOCKET) or which("docker")


def inspect_all() -> list[dict[str, Any]]:
    """Inspect documents of all containers; raises Failed when the daemon does not answer."""
    status, listed = ask("/containers/json?all=1")
    if status != 200:
        raise Failed(f"the docker daemon says {status}: {listed}")
    found = []
    for one in listed:
        status, document = ask(f"/containers/{one['Id']}/json")
        if status == 404:  # it vanished in between
            continue
        if status != 200:
            name = (one.get("Names") or [one["Id"][:12]])[0].lstrip("/")
            raise Failed(f"the docker daemon says {status} of the container {name}: {document}")
        found.append(document)
    return found


def published(one: dict[str, Any]) -> list[int]:
    """Ports of this host that docker's proxy gives to the container."""
    bindings = (one.get("NetworkSettings") or {}).get("Ports") or {}
    return sorted({int(b["HostPort"]) for bound in bindings.values() for b in bound or ()})


def image_of(container: dict[str, Any]) -> dict[str, Any]:
    """Its image's document; empty when that was removed under it."""
    status, one = ask(f"/images/{container['Image']}/json")
    return one if status == 200 else {}


def told(one: dict[str, Any], image: dict[str, Any], inside: list[Process]) -> dict[str, Any]:
    """What is said of a container; its environment and its arguments stay on the host."""
    labels, host = one["Config"].get("Labels") or {}, one["HostConfig"]
    return {
        **{key: one.get(key) for key in KEPT},
        "State": {
            key: one["State"].get(key)
            for key in ("Status", "Running", "ExitCode", "StartedAt", "Restarting")
        },
        "Reference": one["Config"].get("Image"),
        "Digests": image.get("RepoDigests") or [],
        "Labels": labels,
        "Published": published(one),
        "Restart": (host.get("RestartPolicy") or {}).get("Name"),
        "AutoRemove": bool(host.get("AutoRemove")),
        "Signs": signs.of_container(one, inside),
        "Recipe": recipe.digest(recipe.recipe(one)),
    }


def section(_: dict[str, Any]) -> dict[str, Any]:
    """{"installed": bool, "containers": [...], "podman": [{name, image, user, signs}]}"""
    running = list(processes.processes())
    beside = list(podman.running(running))
    if not installed():
        return {"installed": False, "containers": [], "podman": beside}
    found, inside = inspect_all(), by_container(running)
    images = {one["Image"]: image_of(one) for one in {c["Image"]: c for c in found}.values()}
    return {
        "installed": True,
        "podman": beside,
        "containers": [told(c, images[c["Image"]], inside.get(c["Id"], [])) for c in found],
    }


def by_container(running: list[Process]) -> dict[str, list[Process]]:
    """{id: processes} of docker's containers."""
    found: dict[str, list[Process]] = {}
    for one in running:
        inside = CONTAINER.search(cgroups(one.pid))
        if inside:
            found.setdefault(inside[1], []).append(one)
    return found


def policy_of(container: dict[str, Any]) -> str:
    """no, always, unless-stopped, on-failure or on-failure:3, as `docker update` takes it."""
    policy = container["HostConfig"]["RestartPolicy"]
    count = policy.get("MaximumRetryCount") or 0
    return f"{policy['Name'] or 'no'}:{count}" if count else policy["Name"] or "no"

"""Containers and images of the docker daemon. A daemon that does not answer is an error."""

from __future__ import annotations

import json
import os
import re
import socket
from typing import Any

import podman
from run import Failed, which

SOCKET = "/var/run/docker.sock"
KEPT = ("Id", "Name", "RestartCount", "Image", "Created")


def ask(path: str) -> tuple[int, Any]:
    """(HTTP status, JSON) from the daemon's own API: a docker command costs ten times as long.

    HTTP/1.0, so that the daemon neither chunks its answer nor keeps the connection.
    """
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(30)
        try:
            link.connect(SOCKET)
            link.sendall(f"GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
            data = b""
            while part := link.recv(65536):
                data += part
        except OSError as error:
            raise Failed(f"the docker daemon does not answer ({error})") from None
    head, _, body = data.partition(b"\r\n\r\n")
    try:
        return int(head.split()[1]), json.loads(body)
    except (IndexError, ValueError):
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


def section(_: dict[str, Any]) -> dict[str, Any]:
    """{"installed": bool, "containers": [...], "podman": [{name, image, user}]}: environments and
    arguments stay on the host."""
    beside = list(podman.running())
    if not installed():
        return {"installed": False, "containers": [], "podman": beside}
    return {
        "installed": True,
        "podman": beside,
        "containers": [
            {
                **{key: one.get(key) for key in KEPT},
                "State": {
                    key: one["State"].get(key)
                    for key in ("Status", "Running", "ExitCode", "StartedAt", "Restarting")
                },
                "Reference": one["Config"].get("Image"),
                "Labels": one["Config"].get("Labels") or {},
                "Published": published(one),
                "Restart": one["HostConfig"].get("RestartPolicy", {}).get("Name"),
            }
            for one in inspect_all()
        ],
    }


def quoted(reference: str) -> str:
    """For the path of a request; by hand, since urllib costs a slow host more than this asks."""
    odd = re.compile(r"[^\w/:@.~-]", re.ASCII)
    return odd.sub(lambda one: "".join(f"%{byte:02X}" for byte in one[0].encode()), reference)


def images(wanted: dict[str, Any]) -> dict[str, Any]:
    """{reference: {id, digests, platform, manifest} or null when the image is not on this host}.

    manifest: digest of this platform's manifest; the containerd store says it from docker 28 on.
    """
    answer = {}
    for reference in wanted["images"]:
        status, one = ask(f"/images/{quoted(reference)}/json?manifests=1")
        if status not in (200, 404):
            raise Failed(f"the docker daemon says {status}: {one}")
        answer[reference] = (
            {
                "id": one["Id"],
                "digests": one.get("RepoDigests") or [],
                "platform": f"{one['Os']}/{one['Architecture']}",
                "manifest": manifest(one),
            }
            if status == 200
            else None
        )
    return answer


def manifest(image: dict[str, Any]) -> str | None:
    """Digest of the one platform's manifest whose content is here; null when that is not said."""
    here = [
        one["Descriptor"]["digest"]
        for one in image.get("Manifests") or []
        if one.get("Kind") == "image" and one.get("Available")
    ]
    return here[0] if len(here) == 1 else None

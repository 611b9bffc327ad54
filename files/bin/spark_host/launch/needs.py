"""What a launch on this host needs and does not find: asked while the old engine still serves."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from adopt import adopt
from engines import containers
from engines.images import quoted
from network import listeners
from run import places
from run.command import Failed, read, run, which

STATE = "/var/lib/spark-converge"
ROOM_BYTES = 256 << 20  # [here] the old engine's logs, and a container's first writes
NET, RDMA = "/sys/class/net", "/sys/class/infiniband"
SOCKETS = re.compile(r"(?:NCCL|GLOO|TP|UCX)_SOCKET_IFNAME$")
CDI = ("/etc/cdi", "/var/run/cdi")


def device_faults(paths: list[str]) -> Iterator[str]:
    yield from (f"no device {path}" for path in paths if not os.path.exists(path))


def gpu_faults(wanted: bool) -> Iterator[str]:
    """Docker gives a GPU by NVIDIA's hook, by its runtime, or by a CDI description."""
    described = any(os.path.isdir(folder) and os.listdir(folder) for folder in CDI)
    if wanted and not described and not which("nvidia-container-runtime-hook"):
        yield "docker cannot give a container the GPU: the NVIDIA container toolkit is not there"


def room_faults() -> Iterator[str]:
    info = daemon()
    for path in (STATE, info.get("DockerRootDir") or "/var/lib/docker"):
        free = adopt.room(path)
        if free < ROOM_BYTES:
            yield f"{free >> 20} MiB are free in {path}, {ROOM_BYTES >> 20} MiB wanted"


def daemon() -> dict[str, Any]:
    status, found = containers.ask("/info")
    if status != 200:
        raise Failed(f"the docker daemon says {status} of itself")
    return dict(found)


def environment_faults(pairs: list[str]) -> Iterator[str]:
    """Interfaces and RDMA devices that an environment names and this host has not, by now."""
    for pair in pairs:
        name, _, value = pair.partition("=")
        words = [word.split(":")[0] for word in value.lstrip("^=").split(",") if word]
        if SOCKETS.search(name) and not value.startswith("^") and len(words) == 1:
            if not os.path.exists(f"{NET}/{words[0]}"):
                yield f"{name} names {words[0]}, and there is no such interface"
            elif os.path.lexists(f"{NET}/{words[0]}/master"):
                master = os.path.basename(os.path.realpath(f"{NET}/{words[0]}/master"))
                yield (
                    f"{name} names {words[0]}, which is a member of {master} now and has no "
                    "address; deploys/stop.py and deploys/undo.py give the fabric back as it was"
                )
        if name == "NCCL_IB_HCA" and not value.startswith("^") and os.path.isdir(RDMA):
            have = os.listdir(RDMA)
            # NCCL takes the beginning of a name for all that begin so, unless it says = first.
            missing = [word for word in words if not any(one.startswith(word) for one in have)]
            yield from (f"{name} names {word}, and there is no such device" for word in missing)


def kept_faults(total: str) -> Iterator[str]:
    """Of an engine that was adopted."""
    runtimes = daemon().get("Runtimes") or {}
    for made in adopt.load(total)["recipes"]:
        yield from (f"{made['name']}: {one}" for one in recipe_faults(made, runtimes))


def recipe_faults(made: dict[str, Any], runtimes: dict[str, Any]) -> Iterator[str]:
    host, config = made["host"], made["config"]
    if adopt.reference(made) is None:
        spelled = config.get("Image") or "no name"
        yield f"its image {spelled} ({made['image'][:19]}) is gone; build or load the same again"
    for bind in host.get("Binds") or ():
        yield from mount_faults("bind" if bind.startswith("/") else "volume", bind.split(":")[0])
    for mount in host.get("Mounts") or ():
        yield from mount_faults(mount.get("Type"), mount.get("Source"))
    yield from device_faults([str(one["PathOnHost"]) for one in host.get("Devices") or ()])
    runtime = host.get("Runtime")
    if runtime and runtime not in runtimes:
        yield f"docker has no runtime {runtime} any more"
    yield from gpu_faults(bool(host.get("DeviceRequests")))
    for name in made["networks"]:
        if containers.ask(f"/networks/{quoted(name)}")[0] == 404:
            yield f"docker has no network {name} any more"
    yield from environment_faults(config.get("Env") or [])
    yield from port_faults(host.get("PortBindings") or {})


def mount_faults(kind: str | None, source: str | None) -> Iterator[str]:
    if kind == "bind" and source and not os.path.exists(source):
        yield f"{source}, which it mounts, is gone"
    if kind == "volume" and source and containers.ask(f"/volumes/{quoted(source)}")[0] == 404:
        yield f"docker has no volume {source} any more"


def port_faults(bindings: dict[str, Any]) -> Iterator[str]:
    """Published ports that a program of this host has, outside of docker."""
    named = [one["HostPort"] for each in bindings.values() for one in each or ()]
    wanted = {int(port) for port in named if port}
    sockets = listeners.sockets(wanted) if wanted else {}
    for inode, pid in (listeners.holders(sockets) if sockets else {}).items():
        name = read(f"/proc/{pid}/comm")
        inside = places.CONTAINER.search(places.cgroups(int(pid)))
        if name != "docker-proxy" and not inside:
            yield f"port {sockets[inode]} is held by {name} (pid {pid})"


def kept_differences(total: str) -> Iterator[str]:
    """What is not as it was when an engine was adopted, and keeps nothing from being launched."""
    found = adopt.load(total)
    where = f"{adopt.folder(total)}/files"
    for one in found["files"]:
        now = sha256(one["path"])
        if now != one["sha256"]:
            word = "is gone" if now is None else "was edited"
            yield f"{one['path']} {word} since it was kept; as it was: {where}{one['path']}"
    checkout = found["checkout"]
    if checkout and checkout["commit"]:
        now = adopt.files.commit(f"{checkout['folder']}/.git")
        if now != checkout["commit"]:
            told = f"is at {now[:12]}" if now else "is gone"
            yield f"{checkout['folder']} {told}, it was at {checkout['commit'][:12]}"
    for made in found["recipes"]:
        name = adopt.reference(made)
        spelled = made["config"].get("Image")
        if name and name != spelled:
            yield f"{spelled} is another image by now; started by id {name[:19]}"


def sha256(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def compose_faults(wanted: dict[str, Any]) -> Iterator[str]:
    """Of a compose project that lies on this host; wanted: {"words", "files", "digest"}.

    words: of `docker compose` up to the project's files; digest: of the image, null for any.
    """
    if run(["docker", "compose", "version"])[0]:
        yield "docker has no compose plugin; install docker-compose-plugin"
        return
    missing = [path for path in wanted["files"] if not os.path.isfile(path)]
    yield from (f"no file {path}" for path in missing)
    if missing:
        return
    code, out, err = run(["docker", "compose", *wanted["words"], "config", "--format", "json"])
    if code:
        yield f"docker compose does not take {wanted['files'][0]}: {' '.join(err.split())[-300:]}"
        return
    services = json.loads(out).get("services", {})
    for name, service in services.items():
        yield from (f"service {name}: {one}" for one in service_faults(service))
    yield from digest_faults(services, wanted["digest"])


def image_of(service: dict[str, Any]) -> tuple[str | None, Any]:
    """(the name in the compose file, what docker has under it or null)."""
    name = service.get("image")
    status, found = containers.ask(f"/images/{quoted(name)}/json") if name else (404, None)
    return name, found if status == 200 else None


def service_faults(service: dict[str, Any]) -> Iterator[str]:
    name, image = image_of(service)
    if name and image is None:
        yield f"its image {name} is not on this host"
    for mount in service.get("volumes") or ():
        if mount.get("type") == "bind":
            yield from mount_faults("bind", mount.get("source"))
    for one in service.get("devices") or ():
        source = one.get("source") if isinstance(one, dict) else str(one).split(":")[0]
        yield from device_faults([source] if source and source.startswith("/") else [])


def digest_faults(services: dict[str, Any], digest: str | None) -> Iterator[str]:
    """The compose file may name a tag, which leads to whatever was built or pulled last."""
    found = [image_of(service) for service in services.values()]
    given = {
        name: {one.partition("@")[2] for one in image.get("RepoDigests") or ()} | {image["Id"]}
        for name, image in found
        if name and image
    }
    if digest and given and all(digest not in known for known in given.values()):
        told = ", ".join(f"{name} ({min(known)})" for name, known in given.items())
        yield f"its compose file names {told}; the stack's lock names {digest}"


def main(_: list[str]) -> dict[str, Any]:
    """{"lacking": [sentence], "different": [sentence]} of what standard input asks for:
    {"kept": digest or null, "compose": {...} or null, "devices": [path], "gpus": bool}"""
    asked = json.load(sys.stdin)
    lacking = [*room_faults(), *device_faults(asked["devices"]), *gpu_faults(asked["gpus"])]
    different: list[str] = []
    if asked["compose"]:
        lacking += compose_faults(asked["compose"])
    if asked["kept"]:
        lacking += kept_faults(asked["kept"])
        different += kept_differences(asked["kept"])
    return {"lacking": list(dict.fromkeys(lacking)), "different": different}

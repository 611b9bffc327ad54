"""Engines in containers of docker that this tool did not start: what it would take to have them
back. Names, ports and digests only: environments and arguments stay on the host."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from engines import containers, recipe
from network import listeners
from run import places, processes

from adopt import command, files, logs

LABEL = "io.spark-converge."
PORTS = range(1, 65536)
USUAL = (8000, 30000, 8888, 8080, 5000)  # of vLLM, SGLang, the seeds' pairs, llama.cpp, TabbyAPI
ASK_S = 5  # of a list of models, which costs an engine nothing
# What a folder of a model has, or a cache of the Hub.
MODEL_ENDS = (".safetensors", ".gguf", ".safetensors.index.json")
CACHE = ("hub", "models--")


def section(_: dict[str, Any]) -> dict[str, Any]:
    """{"engines": [...]}: of running containers that look like a rank of an engine, or serve."""
    if not containers.installed():
        return {"engines": []}
    running = [one for one in containers.inspect_all() if one["State"]["Running"]]
    strange = [one for one in running if not own(one)]
    lines = command_lines()
    ports = listening() if strange else {}
    seen = (
        look(one, running, lines.get(one["Id"], []), ports.get(one["Id"], [])) for one in strange
    )
    return {"engines": [one for one in seen if one["api"] or one["world"] or one["rendezvous"]]}


def own(one: dict[str, Any]) -> bool:
    return any(key.startswith(LABEL) for key in one["Config"].get("Labels") or {})


def inside(pid: int) -> str | None:
    """Id of the docker container that a process runs in."""
    found = places.CONTAINER.search(places.cgroups(pid))
    return found[1] if found else None


def command_lines() -> dict[str, list[list[str]]]:
    """{container's id: command lines of its processes, the oldest first}."""
    found: dict[str, list[list[str]]] = {}
    for one in sorted(processes.processes(), key=lambda process: process.started):
        container = inside(one.pid)
        if container:
            found.setdefault(container, []).append(one.argv)
    return found


def listening() -> dict[str, list[int]]:
    """{container's id: ports of this host that its processes listen on}."""
    sockets = listeners.sockets(PORTS)
    found: dict[str, list[int]] = {}
    for inode, pid in listeners.holders(sockets).items():
        container = inside(int(pid))
        if container:
            found.setdefault(container, []).append(sockets[inode])
    return found


def environment(one: dict[str, Any]) -> dict[str, str]:
    pairs = (word.partition("=") for word in one["Config"].get("Env") or ())
    return {name: value for name, _, value in pairs}


def beside(one: dict[str, Any], running: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The container and whatever else of its compose project runs, in the order of their starts."""
    project = files.labels(one).get(recipe.PROJECT)
    others = [
        other
        for other in running
        if other["Id"] == one["Id"]
        or (project and files.labels(other).get(recipe.PROJECT) == project)
    ]
    return sorted(others, key=lambda other: str(other["State"]["StartedAt"]))


def look(
    one: dict[str, Any],
    running: list[dict[str, Any]],
    lines: list[list[str]],
    ports: list[int],
) -> dict[str, Any]:
    """What the control machine learns of one container; null where nothing says it."""
    name, given = one["Name"].lstrip("/"), environment(one)
    began = [one["Path"], *(one["Args"] or ())]
    said = command.told([*lines, began], given)
    api = asked(offered(said["port"], containers.published(one), ports))
    group = beside(one, running)
    progress, ready = logs.patterns(logs.of_start(name, one["State"]["StartedAt"]))
    kept = [file for other in group for file in files.of(other)]
    return {
        "name": name,
        "containers": {
            other["Name"].lstrip("/"): recipe.digest(recipe.recipe(other)) for other in group
        },
        "project": files.labels(one).get(recipe.PROJECT),
        "reference": one["Config"].get("Image") or "",
        "image": one["Image"],
        "digests": digests(one["Image"]),
        "sum": recipe.total(recipe.recipe(other) for other in group),
        "started_at": one["State"]["StartedAt"],
        "policy": containers.policy_of(one),
        "rank": said["rank"],
        "world": said["world"],
        "address": said["address"],
        "rendezvous": said["rendezvous"],
        "api": api["port"] if api else None,
        "model_name": api["model_name"] if api and api["model_name"] else said["model_name"],
        "context": api["context"] if api else None,
        "progress": progress,
        "ready": ready,
        "models": models(one),
        "files": [{"path": path, "there": os.path.isfile(path)} for path in dict.fromkeys(kept)],
        "checkout": files.checkout(one),
        "folders": sorted({folder for other in group if (folder := files.folder(other))}),
        "cannot": [sentence for other in group for sentence in cannot(other)],
    }


def offered(port: int | None, published: list[int], listening: list[int]) -> list[int]:
    """Ports that may be an API. Never just any that is open: where the ranks meet, a stray question
    can end an engine."""
    if published or port:
        return published or [one for one in [port] if one]
    return [usual for usual in USUAL if usual in listening]


def cannot(one: dict[str, Any]) -> Iterable[str]:
    """What of a container no copy brings back."""
    name, host = one["Name"].lstrip("/"), one["HostConfig"]
    if host.get("AutoRemove"):
        yield f"{name} was started with --rm: docker deletes it, log and all, as soon as it stops"
    if str(host.get("NetworkMode", "")).startswith("container:"):
        yield f"{name} lives in the network of another container, whose id no later one has"
    if one["State"].get("Paused"):
        yield f"{name} is paused (docker unpause {name})"
    for mount in one.get("Mounts") or ():
        if mount.get("Type") == "tmpfs" or not unnamed(mount):
            continue
        yield f"{name} keeps {mount['Destination']} in a volume without a name"


def unnamed(mount: Mapping[str, Any]) -> bool:
    """Is it a volume that docker made for this one container? Those have a digest for a name."""
    name = str(mount.get("Name") or "")
    return len(name) == 64 and not set(name) - set("0123456789abcdef")


def digests(image: str) -> list[str]:
    """Repository digests of an image; none of one that was built or loaded here."""
    status, found = containers.ask(f"/images/{image}/json")
    return sorted(found.get("RepoDigests") or []) if status == 200 else []


def asked(ports: list[int]) -> dict[str, Any] | None:
    """{"port", "model_name", "context"} of the first port whose server lists its models.

    One that wants a key for that is a server too: its model stays null.
    """
    for port in ports:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=ASK_S)
        try:
            link.request("GET", "/v1/models")
            answer = link.getresponse()
            text = answer.read(1 << 20)
            if answer.status in (401, 403):
                return {"port": port, "model_name": None, "context": None}
            first = json.loads(text)["data"][0]
            context = first.get("max_model_len")
            return {"port": port, "model_name": str(first["id"]), "context": context}
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
            continue
        except AttributeError:  # a list of something else
            continue
        finally:
            link.close()
    return None


def models(one: dict[str, Any]) -> list[str]:
    """Folders of this host, out of the mounts, in which models lie."""
    found = []
    for mount in one.get("Mounts") or ():
        source = str(mount.get("Source") or "")
        try:
            names = os.listdir(source) if mount.get("Type") == "bind" else []
        except OSError:
            continue
        if any(name.endswith(MODEL_ENDS) or name.startswith(CACHE) for name in names):
            found.append(source)
    return sorted(set(found))

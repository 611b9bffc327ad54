"""What makes a container an engine, whatever it is called and whoever started it.

Its arguments and its environment are looked at here and stay here: what leaves the host is a list
of signs, each a few words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from run.processes import Process, links
from run.servers import server_of

# A process that has it open has a CUDA context, and with it memory; a display has not.
CUDA = "/dev/nvidia-uvm"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES = ("", "void", "none")  # NVIDIA's container toolkit then hands no GPU over
PLAIN_RUNTIMES = ("", "runc", "crun", "io.containerd.runc.v2")
LARGE_SHM = 1 << 30  # docker's own is 64 MiB; the engines' recipes ask for 32 GiB or more
NAME_CHARS = 60
OPEN, HOST_IPC = "has the GPU open", "host IPC"


def environment(container: dict[str, Any]) -> dict[str, str]:
    pairs = (one.partition("=") for one in container["Config"].get("Env") or ())
    return {name: value for name, _, value in pairs}


def words(container: dict[str, Any]) -> list[str]:
    """The command line that the container is started with."""
    config = container["Config"]
    return [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]


def gpu(container: dict[str, Any]) -> Iterator[str]:
    """Each way in which it was given a GPU."""
    host = container.get("HostConfig") or {}
    for asked in host.get("DeviceRequests") or ():
        named = [one for one in asked.get("DeviceIDs") or () if "/gpu=" in one]
        yield from (f"CDI device {shown(one)}" for one in named)
        if not named and any("gpu" in kinds for kinds in asked.get("Capabilities") or ()):
            yield "GPU requested"
    for device in host.get("Devices") or ():
        path = device.get("PathOnHost") or ""
        if path.startswith("/dev/nvidia"):
            yield f"device {shown(path)}"
    told, runtime = environment(container), host.get("Runtime") or ""
    # Images made with CUDA that do not set the variable are given all, as before it was invented.
    given = told.get(VISIBLE, "all" if "CUDA_VERSION" in told else "") not in NO_DEVICES
    # With docker's own runtime the variable says nothing: every image made with CUDA sets it.
    if given and runtime not in PLAIN_RUNTIMES:
        yield f"runtime {shown(runtime)} with {VISIBLE}"


def shares(container: dict[str, Any]) -> str | None:
    """How its processes share more memory than those of a common container; None when not."""
    host = container.get("HostConfig") or {}
    if host.get("IpcMode") == "host":
        return HOST_IPC
    size = host.get("ShmSize") or 0
    return f"{size >> 30} GiB of shared memory" if size >= LARGE_SHM else None


def of_container(container: dict[str, Any], inside: Sequence[Process]) -> list[str]:
    """Why it is an engine, in a few words each; empty when it is none.

    inside: the processes that run in it: whatever it is started with may have started the server.
    """
    found = list(dict.fromkeys(gpu(container)))
    if any(has_cuda(one.pid) for one in inside):
        found.append(OPEN)
    commands = [words(container), *(one.argv for one in inside)]
    server, memory = next(filter(None, map(server_of, commands)), None), shares(container)
    on_network = (container.get("HostConfig") or {}).get("NetworkMode") == "host"
    # A rank of several, by a program that no list has: nothing else asks for both of these.
    if not found and not (memory and server) and not (memory == HOST_IPC and on_network):
        return []
    said = [server, *found, memory, "host network" if on_network else None]
    return [one for one in said if one]


def of_processes(running: Sequence[Process]) -> list[str]:
    """The same of a container of which nothing but its processes is known."""
    server = next(filter(None, (server_of(one.argv) for one in running)), None)
    held = OPEN if any(has_cuda(one.pid) for one in running) else None
    return [one for one in (server, held) if one]


def has_cuda(pid: int) -> bool:
    return CUDA in links(f"/proc/{pid}/fd")


def shown(text: str) -> str:
    """As it may stand in a sentence: who starts a container writes what they like."""
    return re.sub(r"[^\w./:=@+-]", "?", text[:NAME_CHARS], flags=re.ASCII)

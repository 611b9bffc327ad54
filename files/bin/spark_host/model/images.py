"""The pinned image, pulled by the docker daemon at the word of a unit of its own.

run SECONDS < request   start the pull in its unit or join it; the answer, or how far it is
poll SECONDS            the same question later
stop                    end it; layers that have arrived stay
here                    the pull itself, in the unit

request: {"repository", "digest", "download_bytes"}; the last, what the layers take as the registry
sends them, is null where nobody has asked the registry.

Layers that have arrived stay with the daemon: a pull that was cut short goes on from there.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import socket
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

from engines import containers
from run import detached
from run.command import Failed, read, run
from run.detached import Work

# A daemon that says nothing for so long is not pulling; it reports several times a second.
SILENCE_S = 1800
# Choice of this project: engine images of CUDA unpack to about two and a half times their layers.
UNPACKED = 2.5
CONTAINERD = "/var/lib/containerd"
CONTAINERD_SETTINGS = "/etc/containerd/config.toml"
GIB = 2**30
# What registries say to whoever is not logged in, in the daemon's words.
DENIED = re.compile(r"\bdenied\b|unauthorized|authentication required", re.IGNORECASE)


class Layers:
    """What the daemon has said about each layer. Bytes as they cross the network."""

    def __init__(self, expected_bytes: int | None) -> None:
        self.expected_bytes = expected_bytes
        self.status: dict[str, str] = {}
        self.got: dict[str, int] = {}
        self.size: dict[str, int] = {}
        self.began = time.monotonic()
        self.told = 0

    def feed(self, said: dict[str, Any]) -> None:
        """Take one line of the daemon's; raises Failed with its error."""
        if said.get("error"):
            raise Failed(str(said["error"]))
        self.told += 1
        layer, status = said.get("id"), str(said.get("status", ""))
        detail = said.get("progressDetail") or {}
        if not layer or status.startswith("Pulling from"):
            return
        self.status[layer] = status
        if status == "Downloading" and detail.get("current") is not None:
            self.got[layer] = detail["current"]
            self.size[layer] = max(detail.get("total") or 0, detail["current"])
        elif status not in ("Pulling fs layer", "Waiting", "Downloading"):
            self.got[layer] = self.size.get(layer, 0)

    def progress(self) -> dict[str, Any]:
        """As `detached.Count` says it; a layer that was there already counts nothing."""
        done = sum(self.got.values())
        ready = sum(s in ("Pull complete", "Already exists") for s in self.status.values())
        return {
            "what": f"pulled, {ready} of {len(self.status)} layers unpacked",
            "done": done,
            "total": max(self.expected_bytes or sum(self.size.values()), done),
            "seconds": round(time.monotonic() - self.began, 1),
            "alive": self.told,
        }


def credentials(repository: str) -> dict[str, str]:
    """The header with root's login at this registry, as `docker login` left it; empty without."""
    folder = os.environ.get("DOCKER_CONFIG") or f"{pwd.getpwuid(0).pw_dir}/.docker"
    try:
        with open(f"{folder}/config.json") as file:
            config = json.load(file)
    except (OSError, ValueError):
        return {}
    host = repository.partition("/")[0]
    names = [host, f"https://{host}"]
    if ("." not in host and ":" not in host) or host == "docker.io":
        names = ["https://index.docker.io/v1/"]
    helper = (config.get("credHelpers") or {}).get(names[0]) or config.get("credsStore")
    for name in names:
        one = (config.get("auths") or {}).get(name) or {}
        if one.get("auth"):
            user, _, secret = base64.b64decode(one["auth"]).decode().partition(":")
            return header(user, secret, name)
        if helper:
            code, out, _err = run([f"docker-credential-{helper}", "get"], stdin=name)
            if code == 0:
                found = json.loads(out)
                return header(found["Username"], found["Secret"], name)
    return {}


def header(user: str, secret: str, server: str) -> dict[str, str]:
    login = {"username": user, "password": secret, "serveraddress": server}
    return {"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(login).encode()).decode()}


def said_by_daemon(path: str, headers: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The JSON lines that the daemon answers to a POST, while they come."""
    lines = [f"POST {path} HTTP/1.0", "Host: docker", "Content-Length: 0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(SILENCE_S)
        try:
            link.connect(containers.SOCKET)
            link.sendall("\r\n".join([*lines, "", ""]).encode())
            with link.makefile("rb") as answer:
                status = int(answer.readline().split()[1])
                while answer.readline().strip():
                    pass
                for line in answer:
                    if line.strip():
                        said = json.loads(line)
                        if status != 200:
                            raise Failed(said.get("message") or f"the docker daemon says {status}")
                        yield said
        except (OSError, IndexError) as error:
            raise Failed(f"the docker daemon does not answer ({error})") from None


def containerd_root() -> str:
    """Where the host's own containerd keeps the layers: as its settings say, or the usual place."""
    own = re.split(r"^\s*\[", read(CONTAINERD_SETTINGS) or "", maxsplit=1, flags=re.MULTILINE)[0]
    said = re.search(r"""^\s*root\s*=\s*["']([^"']+)["']""", own, re.MULTILINE)
    return said[1] if said else CONTAINERD


def room(download_bytes: int | None) -> None:
    """Refuse a pull that would fill the disk; without a size nothing can be said beforehand."""
    if download_bytes is None:
        return
    status, info = containers.ask("/info")
    if status != 200:
        raise Failed(f"the docker daemon says {status}: {info}")
    driver = [value for name, value in info.get("DriverStatus") or [] if name == "driver-type"]
    containerd = any("containerd" in value for value in driver)
    folder = info["DockerRootDir"]
    if containerd and os.path.isdir(containerd_root()):
        folder = containerd_root()
    # The containerd store keeps the layers as they came, beside what they unpack to.
    need = download_bytes * (UNPACKED + (1 if containerd else 0))
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < need:
        raise Failed(
            f"{free / GIB:.1f} GiB free on {folder}, about {need / GIB:.1f} GiB needed for layers "
            f"of {download_bytes / GIB:.1f} GiB: make room (nothing of docker's is removed here)"
        )


def pull(request: dict[str, Any], layers: Layers) -> dict[str, Any]:
    repository, digest = request["repository"], request["digest"]
    room(request["download_bytes"])
    query = urllib.parse.urlencode({"fromImage": repository, "tag": digest})
    login = credentials(repository)
    try:
        for said in said_by_daemon(f"/images/create?{query}", login):
            layers.feed(said)
    except Failed as error:
        if login or not DENIED.search(str(error)):
            raise
        host = repository.partition("/")[0]
        where = f" {host}" if "." in host or ":" in host else ""
        raise Failed(
            f"{error}; root has no login there, and another user's does not count: "
            f"`sudo docker login{where}` on that host"
        ) from None
    reference = f"{repository}@{digest}"
    status, _ = containers.ask(f"/images/{urllib.parse.quote(reference, safe='/:@')}/json")
    if status != 200:
        raise Failed("the docker daemon ended the pull without a word, and without the image")
    found = layers.progress()
    return {"ok": True, "bytes": found["done"], "seconds": found["seconds"]}


def subject(request: dict[str, Any]) -> str:
    return f"the pull of {request['repository']}@{request['digest']}"


def main(argv: list[str]) -> dict[str, Any]:
    work = Work("images", subject, pull, lambda request: Layers(request["download_bytes"]))
    return detached.command(work, argv)

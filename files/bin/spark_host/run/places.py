"""Where docker and systemd have a process: a container, a service, a session with a screen."""

from __future__ import annotations

import os
import re
from typing import Any

from run.command import read

# Of a control group: system.slice/docker-<id>.scope, or docker/<id> by the cgroupfs driver.
CONTAINER = re.compile(r"docker[-/]([0-9a-f]{64})")
DOCKER = re.compile(r"/docker[-/][0-9a-f]{64}")
PODMAN = re.compile(r"/libpod-[0-9a-f]{64}")
GROUP = re.compile(r"^\d+:([^:]*):(.*)$", re.MULTILINE)
# Below slices only: what lies in a container's own tree has names that the host's systemd lacks.
SERVICE = re.compile(r"(?:/[^/]+\.slice)*/([\w:.@\\-]+\.service)(?=/|$)", re.ASCII)
SCOPE = re.compile(r"(?:/[^/]+\.slice)*/session-([^/]+)\.scope(?=/|$)")
MANAGER = re.compile(r"(?:/[^/]+\.slice)*/user@(\d+)\.service(?=/|$)")
SESSIONS = "/run/systemd/sessions"
SEEN = ("x11", "wayland", "mir")  # sessions with a screen: they end with the desktop
Screens = tuple[set[str], set[str]]  # ids of sessions with a screen, uids of those who have one


def with_screen() -> Screens:
    ids, uids = set(), set()
    for name in os.listdir(SESSIONS) if os.path.isdir(SESSIONS) else ():
        path = f"{SESSIONS}/{name}"
        if not os.path.isfile(path):  # ID.ref is a FIFO, which ends no sooner than the session
            continue
        told = dict(re.findall(r"^(\w+)=(.*)$", read(path) or "", re.MULTILINE))
        # What a closing one has left behind has outlived its desktop already.
        if told.get("TYPE") in SEEN and told.get("STATE") != "closing":
            ids.add(name)
            uids.add(told.get("UID", ""))
    return ids, uids


def cgroups(pid: int) -> str:
    return read(f"/proc/{pid}/cgroup") or ""


def place(groups: str) -> str:
    """Where systemd has a process, out of its cgroups; v1 has a line for each controller too."""
    found = dict(GROUP.findall(groups))
    return str(found.get("name=systemd") or found.get("", ""))


def outside(groups: str) -> bool:
    """Of docker as a launch knows it: a user's own docker stays. One that is gone is nowhere."""
    return bool(groups) and (not DOCKER.search(groups) or bool(MANAGER.match(place(groups))))


def whereabouts(groups: str, screens: Screens) -> dict[str, Any]:
    """{"unit": of the system, "user_unit": of a user, "screen": it ends with the desktop}."""
    path = place(groups)
    manager = MANAGER.match(path)
    if manager:
        own = SERVICE.match(path[manager.end() :])
        user_unit = own[1] if own else ""
        return {"unit": "", "user_unit": user_unit, "screen": manager[1] in screens[1]}
    unit, scope = SERVICE.match(path), SCOPE.match(path)
    screen = bool(scope and scope[1] in screens[0])
    return {"unit": unit[1] if unit else "", "user_unit": "", "screen": screen}

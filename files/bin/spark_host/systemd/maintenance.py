"""Updates of packages, drivers and firmware: who is at it right now."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from run.command import read

NEEDRESTART = "/etc/needrestart"
LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
INHIBITORS = "/run/systemd/inhibit/*"
# Who keeps the host up while it writes packages or firmware, as they call themselves to logind.
UPDATERS = re.compile(r"fwupd|packagekit|unattended.upgrade|\b(apt|dpkg|snapd)", re.IGNORECASE)


def command_of(pid: str) -> str:
    return read(f"/proc/{pid}/comm") or "a program"


def same_file(descriptor: str, path: str) -> bool:
    """A lock of a container has the same path in there, but is another file."""
    try:
        return os.path.samestat(os.stat(descriptor), os.stat(path))
    except OSError:  # one of them ended or went meanwhile
        return False


def lock_holders() -> list[str]:
    """A sentence for each lock of the host's packages that a program holds or waits for.

    Only what is called like one is asked what file it is: a dead file system does not answer.
    """
    pids = re.findall(r"(?:POSIX|FLOCK) +ADVISORY +WRITE +(\d+) ", read("/proc/locks") or "")
    found = []
    for pid in dict.fromkeys(pids):
        for descriptor in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                name = os.path.basename(os.readlink(descriptor))
            except OSError:  # it ended meanwhile
                continue
            locks = [lock for lock in LOCKS if os.path.basename(lock) == name]
            path = next((lock for lock in locks if same_file(descriptor, lock)), None)
            if path:
                found.append(f"{command_of(pid)} (process {pid}) has {path}")
    return list(dict.fromkeys(found))


def inhibitors() -> list[str]:
    """A sentence for each updater that blocks a shutdown, as fwupd does while it writes."""
    found = []
    for path in filter(os.path.isfile, glob.glob(INHIBITORS)):  # beside each lies a pipe
        said = dict(ln.split("=", 1) for ln in (read(path) or "").splitlines() if "=" in ln)
        who, pid = said.get("WHO", ""), said.get("PID", "")
        blocks = said.get("MODE") == "block" and "shutdown" in said.get("WHAT", "")
        if blocks and UPDATERS.search(f"{who} {command_of(pid)}"):
            found.append(f"{who} (process {pid}) blocks a shutdown: {said.get('WHY', '')}")
    return sorted(found)


def section(_: dict[str, Any]) -> dict[str, Any]:
    return {"busy": lock_holders() + inhibitors(), "needrestart": os.path.isdir(NEEDRESTART)}

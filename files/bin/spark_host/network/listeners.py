"""Who listens on a TCP port of this host, by /proc: no program is needed, and none is started."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from run import places
from run.command import read
from run.processes import links, owner

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTEN = "0A"  # TCP_LISTEN of the kernel


def sockets(ports: Collection[int]) -> dict[str, int]:
    """{inode: port} of the sockets that listen on these ports."""
    found = {}
    for table in TABLES:
        for line in (read(table) or "").splitlines()[1:]:
            words = line.split()
            port = int(words[1].rpartition(":")[2], 16)
            if words[3] == LISTEN and port in ports:
                found[words[9]] = port
    return found


def holders(inodes: Collection[str]) -> dict[str, str]:
    """{inode: process}; a socket that several share counts for the first of them."""
    found: dict[str, str] = {}
    for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        for link in links(f"/proc/{pid}/fd"):
            inode = link[len("socket:[") : -1]
            if link.startswith("socket:[") and inode in inodes:
                found.setdefault(inode, pid)
    return found


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """{"listeners": [{"port", "process", "pid", "user", "unit", "user_unit", "container"}]} of the
    asked ports; pid null where no process has the socket (the kernel's own), container: the id of
    the one it runs in."""
    found = sockets(ask["ports"])
    pids = holders(found) if found else {}
    answer = []
    for inode, port in sorted(found.items(), key=lambda one: one[1]):
        pid = int(pids.get(inode, 0))
        groups = places.cgroups(pid) if pid else ""
        inside = places.CONTAINER.search(groups)
        where = places.whereabouts(groups, (set(), set()))
        answer.append(
            {
                "port": port,
                "process": read(f"/proc/{pid}/comm") if pid else None,
                "pid": pid or None,
                "user": owner(pid) if pid else "",
                "unit": where["unit"],
                "user_unit": where["user_unit"],
                "container": inside[1] if inside else None,
            }
        )
    return {"listeners": answer}

"""Who listens on a TCP port of this host, by /proc: no program is needed, and none is started."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import Any

from run.command import read
from run.processes import links

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTEN = "0A"  # TCP_LISTEN of the kernel
# Of a control group: system.slice/docker-<id>.scope, or docker/<id> by the cgroupfs driver.
CONTAINER = re.compile(r"docker[-/]([0-9a-f]{64})")


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
    """{"listeners": [{"port", "process", "pid", "container"}]} of the asked ports; pid null where
    no process has the socket (the kernel's own), container: the id of the one it runs in."""
    found = sockets(ask["ports"])
    pids = holders(found) if found else {}
    answer = []
    for inode, port in sorted(found.items(), key=lambda one: one[1]):
        pid = pids.get(inode)
        inside = CONTAINER.search(read(f"/proc/{pid}/cgroup") or "") if pid else None
        answer.append(
            {
                "port": port,
                "process": read(f"/proc/{pid}/comm") if pid else None,
                "pid": int(pid) if pid else None,
                "container": inside[1] if inside else None,
            }
        )
    return {"listeners": answer}

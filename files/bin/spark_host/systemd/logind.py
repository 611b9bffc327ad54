"""logind: whether it deletes the shared memory of a user who has logged out (RemoveIPC)."""

from __future__ import annotations

import os
from typing import Any

from run.command import Failed, run

from systemd import units

UNIT = "systemd-logind.service"
PROPERTY = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
LINGER = "/var/lib/systemd/linger"


def section(_: dict[str, Any]) -> dict[str, Any]:
    """{"remove_ipc": what the running logind does, "lingering": [user]}; {"absent": true} where
    there is no logind. The files alone do not tell: an edited one is not read before a reload."""
    if not os.path.exists("/run/systemd/seats"):  # made by logind when it starts
        return {"absent": True}
    command = ["busctl", "--auto-start=no", "get-property", *PROPERTY, "RemoveIPC"]
    status, out, err = run(command)
    if status or out.split()[:1] != ["b"]:
        raise Failed((err or out).strip() or f"busctl: exit status {status}")
    lingering = sorted(os.listdir(LINGER)) if os.path.isdir(LINGER) else []
    return {"remove_ipc": out.split()[1] == "true", "lingering": lingering}


def reload() -> None:
    """Its files read anew; sessions are not touched (systemd 253 and later)."""
    units.systemctl("reload", UNIT)


def main(argv: list[str]) -> dict[str, Any]:
    """reload"""
    if argv[0] != "reload":
        raise ValueError(f"unknown action {argv[0]}")
    reload()
    return {}

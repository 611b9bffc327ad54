"""What this host's own management link lives on, as far as a desktop has a hand in it."""

from __future__ import annotations

import glob
import os
from typing import Any

from run.command import Failed, run

ASKED = (
    "connection.id,connection.permissions,802-11-wireless-security.psk-flags,802-1x.password-flags"
)

# nmcli(1): 8 NetworkManager is not running, 10 connection, device or access point does not exist
NOTHING = (8, 10)


def wireless() -> list[str]:
    folders = sorted(glob.glob("/sys/class/net/*"))
    marks = ("wireless", "phy80211")
    return [os.path.basename(f) for f in folders if any(os.path.exists(f"{f}/{m}") for m in marks)]


def nmcli(*words: str) -> str:
    """What it says; nothing where NetworkManager does not run or knows no such thing."""
    code, out, err = run(["nmcli", *words])
    if code in NOTHING:
        return ""
    if code:
        raise Failed(err.strip() or f"nmcli: exit status {code}")
    return out


def connection(device: str) -> dict[str, Any] | None:
    """How NetworkManager's connection on a device keeps its secrets, None without one."""
    uuid = nmcli("-g", "GENERAL.CON-UUID", "device", "show", device).strip()
    if not uuid:
        return None
    lines = nmcli("-t", "-f", ASKED, "connection", "show", "uuid", uuid).splitlines()
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    if not said:  # it went in between
        return None
    words = (v for name, v in said.items() if name.endswith("-flags"))
    return {
        "device": device,
        "name": said.get("connection.id", uuid),
        "uuid": uuid,
        "users": said.get("connection.permissions", ""),
        "secret_flags": [int(w.split()[0]) for w in words if w and w.split()[0].isdigit()],
    }


def section(_: dict[str, Any]) -> dict[str, Any]:
    """{"wifi": [connection]}; a host without wireless devices is asked nothing."""
    code, _out, _err = run(["nmcli", "--version"]) if wireless() else (127, "", "")
    found = [connection(device) for device in wireless()] if code == 0 else []
    return {"wifi": [one for one in found if one]}

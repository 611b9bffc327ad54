"""What a container was made with, so that it can be compared with what was asked for.

Figures go as they are; the environment, the command and the mounts as hashes, since they may hold
what nobody else shall see.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from typing import Any

# Put in by docker's own client for its proxy, and what the kernel may number anew under a rank.
NOT_ASKED = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy", "nccl_ib_gid_index")


def digest(value: Any) -> str:
    """The same as operations/pair/settings.py makes of what a rank is asked to run."""
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


def entries(environment: Iterable[str]) -> list[str]:
    """Hash of each NAME=value, sorted."""
    counted = (e for e in environment if e.partition("=")[0].lower() not in NOT_ASKED)
    return sorted(digest(one) for one in counted)


def given(container: dict[str, Any], of_image: Collection[str]) -> str:
    """Hash of the environment beside what its image has anyhow (of_image: `entries` of that)."""
    found = entries(container["Config"].get("Env") or ())
    return digest([one for one in found if one not in of_image])


def of(container: dict[str, Any], of_image: Collection[str]) -> dict[str, Any]:
    """{"environment", "command", "mounts": hashes, "limits": {name: figure or words}}."""
    host = container.get("HostConfig") or {}
    limits = {
        "memory": host.get("Memory") or 0,
        "shm": host.get("ShmSize") or 0,
        "network": host.get("NetworkMode") or "",
        "ipc": host.get("IpcMode") or "",
        "capabilities": ",".join(
            sorted(one.replace("CAP_", "", 1) for one in host.get("CapAdd") or ())
        ),
        "devices": ",".join(sorted(one["PathOnHost"] for one in host.get("Devices") or ())),
    }
    for one in host.get("Ulimits") or ():
        limits[f"ulimit {one['Name']}"] = f"{one['Soft']}:{one['Hard']}"
    return {
        "environment": given(container, of_image),
        "command": digest(container["Config"].get("Cmd") or []),
        "mounts": digest(sorted(host.get("Binds") or ())),
        "limits": limits,
    }

"""What an owner's file has to say about this host, as found: ports, people, models.

Read by discover only; the search for models is bounded in depth, in number and in time.
"""

from __future__ import annotations

import glob
import os
import pwd
import socket
import time
from typing import Any

from run.command import read

PLACES = ("/srv", "/opt", "/data", "/mnt", "/models", "/home", "/root")
DEPTH = 8  # ~/.cache/huggingface/hub/models--x--y/snapshots/<revision> is seven below /home
FOLDERS = 20000
SEARCH_S = 15
SKIPPED = (
    "proc",
    "sys",
    "overlay2",
    "containerd",
    "docker",
    "node_modules",
    ".git",
    "site-packages",
)
PERSON_UID = range(1000, 60000)  # login.defs: UID_MIN, UID_MAX
NO_SHELL = ("nologin", "false", "sync")


def ports() -> dict[str, dict[str, Any]]:
    """{interface: {driver, bus, speed_mbps, wireless, virtual}} of those with a device behind."""
    found = {}
    for folder in sorted(glob.glob("/sys/class/net/*")):
        device = folder + "/device"
        if not os.path.exists(device):
            continue
        speed = read(folder + "/speed") or ""
        found[os.path.basename(folder)] = {
            "driver": os.path.basename(os.path.realpath(device + "/driver")),
            "bus": os.path.basename(os.path.realpath(device)),
            "speed_mbps": int(speed) if speed.isdigit() else None,  # -1: no link, or virtual
            "wireless": os.path.exists(folder + "/wireless")
            or os.path.exists(folder + "/phy80211"),
            "virtual": os.path.exists(device + "/physfn"),  # an SR-IOV function of another port
        }
    return found


def hcas() -> dict[str, list[str]]:
    """{RDMA device: the interfaces that it belongs to}."""
    found = {}
    for folder in sorted(glob.glob("/sys/class/infiniband/*")):
        names = {read(path) for path in glob.glob(folder + "/ports/*/gid_attrs/ndevs/*")}
        names.add(read(folder + "/parent"))
        names |= {os.path.basename(path) for path in glob.glob(folder + "/device/net/*")}
        found[os.path.basename(folder)] = sorted(name for name in names if name)
    return found


def people() -> list[str]:
    """Login names of people on this host."""
    return sorted(
        person.pw_name
        for person in pwd.getpwall()
        if person.pw_uid in PERSON_UID and not person.pw_shell.endswith(NO_SHELL)
    )


def remote_mounts() -> set[str]:
    """Folders of other machines: one that is gone would block the search for ever."""
    lines = (line.split() for line in (read("/proc/mounts") or "").splitlines())
    return {words[1] for words in lines if words[2].startswith(("nfs", "cifs", "smb", "fuse."))}


def models() -> dict[str, Any]:
    """{"found": [{path, files, bytes}], "cut": bool}: folders with *.safetensors in them."""
    remote = remote_mounts()
    found: list[dict[str, Any]] = []
    seen, until = 0, time.monotonic() + SEARCH_S
    for place in sorted(set(PLACES) - remote):
        for folder, below, names in os.walk(place):
            seen += 1
            if seen > FOLDERS or time.monotonic() > until:
                return {"found": found, "cut": True}
            depth = folder.count("/") - place.count("/")
            deeper = below if depth < DEPTH else ()
            below[:] = sorted(
                n for n in deeper if n not in SKIPPED and f"{folder}/{n}" not in remote
            )
            weights = [n for n in names if n.endswith(".safetensors")]
            if weights:
                size = sum(size_of(f"{folder}/{name}") for name in weights)
                found.append({"path": folder, "files": len(weights), "bytes": size})
    return {"found": found, "cut": False}


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # a dangling link of a download that was cut short


def section(_: dict[str, Any]) -> dict[str, Any]:
    return {
        "hostname": socket.gethostname(),
        "login": os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name,
        "ports": ports(),
        "hcas": hcas(),
        "people": people(),
        "models": models(),
    }

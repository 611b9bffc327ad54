"""Links, addresses, netplan's files and RDMA devices, and the way by which we came in."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from run.command import Failed, read, run, which
from run.installed import encoded, listed
from systemd import units

RDMA_TOOLS = ("ibv_rc_pingpong", "ib_write_bw")


PROFILES = ("/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections")


FILES_WANTED = 200  # more netplan files than that is not a host we know


def addresses() -> dict[str, dict[str, Any]]:
    status, out, err = run(["ip", "-d", "-j", "address"])
    if status:
        raise Failed(err.strip() or "ip address failed")
    found = {}
    for link in json.loads(out):
        if "ifname" not in link:
            continue
        found[link["ifname"]] = {
            # A bond gives its members its own address; theirs is then the permanent one.
            "mac": link.get("permaddr") or link.get("address") or "",
            "up": "UP" in link.get("flags", []),
            "mtu": link.get("mtu"),
            "state": link.get("operstate"),
            "carrier": "LOWER_UP" in link.get("flags", []),
            "master": link.get("master"),
            "kind": link.get("linkinfo", {}).get("info_kind"),
            "altnames": link.get("altnames", []),
            "addresses": [
                f"{a['local']}/{a['prefixlen']}"
                for a in link.get("addr_info", [])
                if a.get("family") == "inet" and "local" in a
            ],
            "dynamic": [
                f"{a['local']}/{a['prefixlen']}"
                for a in link.get("addr_info", [])
                if a.get("family") == "inet" and a.get("dynamic")
            ],
        }
    return found


def profiles() -> dict[str, str]:
    """{path: lines} of NetworkManager's connections; a line with a secret is never among them."""
    found = {}
    for folder in PROFILES:
        for path in sorted(glob.glob(folder + "/*"))[:FILES_WANTED]:
            lines = (read(path) or "").splitlines()
            kept = [w for w in lines if re.match(r"(interface-name|address\d*|method)\s*=", w)]
            found[path] = "\n".join(kept)
    return found


def control() -> list[str] | None:
    """[client, its port, server, its port] of the SSH connection that runs this: sudo keeps it out
    of our environment, so it is looked for in that of our parents. None without one."""
    pid = os.getpid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat") as text:
                pid = int(text.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return None
        for word in words:
            if word.startswith(b"SSH_CONNECTION="):
                return word.decode().split("=", 1)[1].split()
    return None


def device_to(address: str) -> str | None:
    """The device that packets to an address leave by."""
    code, out, _err = run(["ip", "-j", "route", "get", address])
    routes = json.loads(out) if code == 0 and out.strip() else []
    return next((route["dev"] for route in routes if "dev" in route), None)


def networkd() -> str | None:
    """Why systemd-networkd configures nothing here, None where it may."""
    paths = (f"{folder}/systemd-networkd.service" for folder in units.FOLDERS)
    path = next(filter(os.path.lexists, paths), None)
    if path is None:
        return "not installed"
    return "masked" if os.path.realpath(path) == os.devnull else None


def loopback_names() -> list[str]:
    """Names that /etc/hosts puts on 127.*, localhost left out."""
    found = set()
    for line in (read("/etc/hosts") or "").splitlines():
        words = line.split("#")[0].split()
        if words and words[0].startswith("127."):
            found |= {w for w in words[1:] if not w.startswith("localhost")}
    return sorted(found)


def table(folder: str) -> Iterator[tuple[str, str]]:
    """Index and GID of the entries that are in use: a table has up to 1024, all but a few zero."""
    try:
        above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        for index in os.listdir(above):
            try:
                fd = os.open(index, os.O_RDONLY, dir_fd=above)
            except OSError:
                continue
            try:
                said = os.read(fd, 64)
            except OSError:  # the kernel refuses some unused ones
                said = b""
            finally:
                os.close(fd)
            if said.strip(b"0:\n"):
                yield index, said.decode("ascii", "replace").strip()
    finally:
        os.close(above)


def rdma() -> dict[str, dict[str, Any]]:
    devices = {}
    for folder in sorted(glob.glob("/sys/class/infiniband/*")):
        port = folder + "/ports/1"
        gids = {
            index: {
                "gid": gid,
                "type": read(port + "/gid_attrs/types/" + index),
                "interface": read(port + "/gid_attrs/ndevs/" + index),
            }
            for index, gid in table(port + "/gids")
        }
        devices[os.path.basename(folder)] = {
            "state": read(port + "/state"),
            "rate": read(port + "/rate"),
            "gids": gids,
        }
    return devices


def section(_: dict[str, Any]) -> dict[str, Any]:
    bonds = {p: read("/proc/net/bonding/" + p) for p in listed("/proc/net/bonding")}
    files = {}
    for folder in ("/etc/netplan", "/run/netplan", "/usr/lib/netplan", "/lib/netplan"):
        if os.path.realpath(folder) != folder:
            continue  # /lib is /usr/lib: the same files once
        for path in sorted(glob.glob(folder + "/*.yaml"))[:FILES_WANTED]:
            files[path] = encoded(path)
    client = control()
    status, out, _err = run(["ip", "-j", "route", "show", "default"])
    routes = json.loads(out) if status == 0 and out.strip() else []
    return {
        "interfaces": addresses(),
        "bonds": bonds,
        "netplan": files,
        "rdma": rdma(),
        "default_interfaces": sorted({r["dev"] for r in routes if "dev" in r}),
        "profiles": profiles(),
        "control_address": client[2] if client else None,
        "control_device": device_to(client[0]) if client else None,
        "hostname": os.uname().nodename,
        "loopback_names": loopback_names(),
        "networkd": networkd(),
        "tools": [name for name in RDMA_TOOLS if which(name)],
    }

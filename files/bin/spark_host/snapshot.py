"""The whole state of the host in one run: the sections below, each on its own.

A section that fails says {"unknown": reason}; the others still answer.
"""

from __future__ import annotations

import base64
import glob
import hashlib
import importlib
import json
import os
import re
import stat
import threading
import time
from collections.abc import Callable
from typing import Any

import containers
import cpufreq
import crontab
import lease
import listeners
import logind
import maintenance
import oom
import reach
import shards
import shm
import starters
import sysctls
import units
import userunits
from run import Failed, read, run, which

INSTALLED = "/usr/local/lib/spark-converge/spark_host"
# Words of the kernel command line that win over the default target: kernel-command-line(7).
OVERRIDE = re.compile(r"systemd\.unit=\S+|[1-5]|[sS]|single|rescue|emergency|-b")
RDMA_TOOLS = ("ibv_rc_pingpong", "ib_write_bw")
PROFILES = ("/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections")
LIMIT_S = 150  # the longest that a section waits for one program is 60 s
WORKERS = 4  # what they do is to wait for other programs
STUCK_S = 20  # without any answer for so long another one begins
FILES_WANTED = 200  # more netplan files than that is not a host we know


def encoded(path: str) -> dict[str, Any]:
    """A file as {"mode", "uid", "gid", "b64"}: bytes travel unharmed."""
    info = os.lstat(path)
    with open(path, "rb") as file:
        data = file.read()
    return {
        "mode": stat.S_IMODE(info.st_mode),
        "uid": info.st_uid,
        "gid": info.st_gid,
        "b64": base64.b64encode(data).decode(),
    }


def boot(_: dict[str, Any]) -> dict[str, Any]:
    status, out, err = run(["systemctl", "get-default"])
    fault = units.default_fault()
    if status and not fault:
        raise Failed(err.strip() or "systemctl get-default failed")
    words = (read("/proc/cmdline") or "").split()
    override = [w for w in words if OVERRIDE.fullmatch(w)]
    return {
        "default_target": "" if status else out.strip(),
        "fault": fault,
        "override": " ".join(override) or None,
        "override_from": bootloader_files(override),
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "machine": os.uname().machine,
        "kernel": os.uname().release,
    }


def bootloader_files(words: list[str]) -> list[str]:
    """Files of grub's settings that have one of these words of the kernel command line."""
    paths = ["/etc/default/grub", *sorted(glob.glob("/etc/default/grub.d/*"))]
    lines = {p: [ln for ln in (read(p) or "").splitlines() if "CMDLINE" in ln] for p in paths}
    marks = [re.compile(rf"(?<![\w.=-]){re.escape(word)}(?![\w.=-])") for word in words]
    return [
        p
        for p in paths
        if any(m.search(ln) for m in marks for ln in lines[p] if not ln.strip().startswith("#"))
    ]


def services(ask: dict[str, Any]) -> dict[str, Any]:
    return units.with_neighbours(ask["units"])


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
            "mac": link.get("permaddr") or link.get("address"),
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


def rdma() -> dict[str, dict[str, Any]]:
    devices = {}
    for folder in sorted(glob.glob("/sys/class/infiniband/*")):
        port = folder + "/ports/1"
        gids = {}
        for path in glob.glob(port + "/gids/*"):
            index = os.path.basename(path)
            gid = read(path)
            if gid and gid.strip("0:"):
                gids[index] = {
                    "gid": gid,
                    "type": read(port + "/gid_attrs/types/" + index),
                    "interface": read(port + "/gid_attrs/ndevs/" + index),
                }
        devices[os.path.basename(folder)] = {
            "state": read(port + "/state"),
            "rate": read(port + "/rate"),
            "gids": gids,
        }
    return devices


def fabric(_: dict[str, Any]) -> dict[str, Any]:
    bonds = {p: read("/proc/net/bonding/" + p) for p in _listed("/proc/net/bonding")}
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


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def memory(_: dict[str, Any]) -> dict[str, Any]:
    figures = {}
    for line in (read("/proc/meminfo") or "").splitlines():
        name, _colon, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            figures[name] = int(words[0])
    if "MemTotal" not in figures:
        raise Failed("/proc/meminfo has no MemTotal")
    size = os.statvfs(shm.FOLDER)
    shm_kib = size.f_blocks * size.f_frsize // 1024
    return {"meminfo_kib": figures, "shm": shm.segments(), "shm_kib": shm_kib}


def files(ask: dict[str, Any]) -> dict[str, Any]:
    """Files of ours on the host: {path: {mode, uid, gid, b64}} or null when absent."""
    return {p: (encoded(p) if os.path.isfile(p) else None) for p in ask["files"]}


def program(_: dict[str, Any]) -> dict[str, Any]:
    """SHA-256 over the installed program, to see whether it is the control machine's."""
    digest = hashlib.sha256()
    names = [n for n in _listed(INSTALLED) if n.endswith(".py")]
    for name in names:
        with open(os.path.join(INSTALLED, name), "rb") as file:
            digest.update(name.encode() + b"\0" + file.read())
    return {"sha256": digest.hexdigest() if names else None}


def record(_: dict[str, Any]) -> Any:
    text = read("/var/lib/spark-converge/generation.json")
    return json.loads(text) if text else {}


SECTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "lease": lease.section,
    "boot": boot,
    "services": services,
    "cpufreq": cpufreq.section,
    "fabric": fabric,
    "memory": memory,
    "sysctl": sysctls.section,
    "logind": logind.section,
    "oom": oom.section,
    "listeners": listeners.section,
    "crontab": crontab.section,
    "starters": starters.section,
    "maintenance": maintenance.section,
    "reach": reach.section,
    "userunits": userunits.section,
    "containers": containers.section,
    "images": containers.images,
    "shards": shards.section,
    "files": files,
    "program": program,
    "record": record,
}

# Read, and even loaded, only when a job asks for them: part -> the module that has it.
EXTRA = {
    **{"machine": "machine", "gpu": "gpu", "discovered": "discovered", "journal": "restore"},
    **{"leftovers": "place", "holders": "holders"},
}


def section(name: str) -> Callable[[dict[str, Any]], Any]:
    return SECTIONS.get(name) or importlib.import_module(EXTRA[name]).section


def answer(name: str, ask: dict[str, Any]) -> Any:
    try:
        return section(name)(ask)
    except (Failed, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return {"unknown": f"{type(error).__name__}: {error}"}


def main(argv: list[str]) -> dict[str, Any]:
    ask = json.loads(argv[0])
    names = [*SECTIONS, *(name for name in EXTRA if name in ask.get("extra", ()))]
    todo, found = names[::-1], {}
    done = threading.Semaphore(0)

    # Bare threads: concurrent.futures loads so much that it costs a slow host more than it saves.
    def work() -> None:
        while True:
            try:
                name = todo.pop()
            except IndexError:  # none is left
                return
            try:
                found[name] = answer(name, ask)
            finally:
                done.release()

    # Daemons: one that never comes back (a file on a dead NFS server) ends with the program.
    def begin() -> None:
        threading.Thread(target=work, daemon=True).start()

    for _ in range(WORKERS):
        begin()
    deadline = time.monotonic() + LIMIT_S
    for _ in names:
        while not done.acquire(timeout=min(STUCK_S, max(0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                break
            begin()  # all of them may wait for the same dead mount
    late = {
        "unknown": f"no answer in {LIMIT_S} s; does something that it reads lie on a dead mount?"
    }
    return {name: found.get(name, late) for name in names}

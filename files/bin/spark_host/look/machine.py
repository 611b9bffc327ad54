"""What hosts of one cluster should have alike, and what the machine feels: sensors and clocks.

Read by verify only. Each figure is null where this host has no such thing.
"""

from __future__ import annotations

import glob
import json
import os
from typing import Any

from clocks import gpu
from run.command import read, run

# A driver that hangs must not hold up the others' answer.
PROBE_S = 10


def docker() -> dict[str, Any]:
    """{"version", "driver", "store"}; {"absent": True} without docker, {"unread": why} without
    an answer of its daemon."""
    status, out, err = run(["docker", "info", "--format", "{{json .}}"], PROBE_S)
    if status == 127:
        return {"absent": True}
    try:
        info = json.loads(out)
    except ValueError:
        return {"unread": err.strip() or "docker info failed"}
    if not info.get("ServerVersion"):
        return {"unread": err.strip() or " ".join(info.get("ServerErrors") or ["no daemon"])}
    store = [value for name, value in info.get("DriverStatus") or [] if name == "driver-type"]
    return {
        "version": info.get("ServerVersion"),
        "driver": info.get("Driver"),
        # The containerd image store names its snapshotter here; the classic one says nothing.
        "store": "containerd" if any("containerd" in value for value in store) else "docker",
    }


def docker_limits() -> dict[str, str] | None:
    """{"memlock", "stack", "nofile"} of dockerd, which containers without ulimits of their own
    begin with; bytes and files, or "unlimited"."""
    pid = read("/run/docker.pid")
    names = {"Max locked memory": "memlock", "Max stack size": "stack", "Max open files": "nofile"}
    found = {}
    for line in (read(f"/proc/{pid}/limits") or "").splitlines() if pid else ():
        name = line[:26].strip()
        if name in names:
            found[names[name]] = line[26:].split()[0]
    return found or None


def zones() -> list[dict[str, Any]]:
    """Thermal zones: {"name", "celsius", "passive_celsius", "critical_celsius"}."""
    found = []
    for folder in sorted(glob.glob("/sys/class/thermal/thermal_zone*")):
        trips: dict[str, float] = {}
        for path in glob.glob(folder + "/trip_point_*_type"):
            limit = _celsius(read(path.replace("_type", "_temp")))
            kind = read(path)
            if kind and limit and limit > 0:
                trips[kind] = min(limit, trips.get(kind, limit))
        found.append(
            {
                "name": read(folder + "/type") or os.path.basename(folder),
                "celsius": _celsius(read(folder + "/temp")),
                "passive_celsius": trips.get("passive"),
                "critical_celsius": trips.get("critical") or trips.get("hot"),
            }
        )
    return found


def hwmon() -> list[dict[str, Any]]:
    """Sensors of drivers (NVMe, NIC): {"name", "celsius", "critical_celsius"}."""
    found = []
    for path in sorted(glob.glob("/sys/class/hwmon/hwmon*/temp*_input")):
        stem = path[: -len("_input")]
        name = read(os.path.dirname(path) + "/name") or "hwmon"
        label = read(stem + "_label")
        found.append(
            {
                "name": f"{name} {label}" if label else name,
                "celsius": _celsius(read(path)),
                "critical_celsius": _celsius(read(stem + "_crit")),
            }
        )
    return found


def _celsius(text: str | None) -> float | None:
    """Millidegrees as sysfs has them, in degrees; None for anything else."""
    try:
        return int(text) / 1000  # type: ignore[arg-type]  # None: TypeError
    except (TypeError, ValueError):
        return None


def clocks() -> dict[str, dict[str, int | None]]:
    """{policy: {"now_mhz", "cap_mhz", "top_mhz"}} in MHz."""
    found = {}
    for folder in sorted(glob.glob("/sys/devices/system/cpu/cpufreq/policy*")):
        names = {"now_mhz": "scaling_cur_freq", "cap_mhz": "scaling_max_freq"}
        names["top_mhz"] = "cpuinfo_max_freq"
        found[os.path.basename(folder)] = {
            key: _mhz(read(f"{folder}/{name}")) for key, name in names.items()
        }
    return found


def _mhz(text: str | None) -> int | None:
    return int(text) // 1000 if text and text.isdigit() else None


def nics() -> dict[str, str | None]:
    """{device: firmware} of the RDMA devices; "" for a software device, which has none."""
    return {
        os.path.basename(folder): read(folder + "/fw_ver")
        for folder in sorted(glob.glob("/sys/class/infiniband/*"))
    }


def os_name() -> str | None:
    for line in (read("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.split("=", 1)[1].strip('"')
    return None


def section(_: dict[str, Any]) -> dict[str, Any]:
    return {
        "os": os_name(),
        "product": read("/sys/class/dmi/id/product_name"),
        "bios": read("/sys/class/dmi/id/bios_version"),
        "cpus": os.cpu_count(),
        "docker": docker(),
        "docker_limits": docker_limits(),
        "gpus": gpu.gpus(),
        "nic_firmware": nics(),
        "zones": zones(),
        "hwmon": hwmon(),
        "clocks": clocks(),
    }

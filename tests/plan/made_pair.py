"""Hosts as spark-host describes them, made here: dirty as the seeds found theirs, or converged.

A snapshot is the plain JSON document of files/bin/spark_host/snapshot.py; tests change single
values of it. Unit tests parse it with `facts.snapshot.state_of`, @fake hosts answer with it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from facts.run.program import program_sha256
from facts.state import HostState, state_of
from inventory.host_settings import shipped
from inventory.schema import Cluster
from operations.clocks import cpufreq, gpu
from operations.memory import sysctl
from operations.model import shards
from operations.network.netplan import PATH, document
from operations.network.wanted import wanted as fabric_of
from operations.pair.identity import specs
from operations.run import program
from operations.systemd import logind, maintenance
from stacks.definition import Stack, load, names
from tests.unit.on_host import module

Snapshot = dict[str, Any]

WATCHDOG = (
    "* * * * * /usr/local/bin/spark1-inference-ready.sh >> /var/log/spark1-inference-ready.log 2>&1"
)
STARTER = "/usr/local/bin/spark1-inference-ready.sh"
spark_host_crontab = module("watchdogs.crontab")
CRONTAB = (
    "# m h  dom mon dow   command\n#\n# Spark pair, inference lane.\n\n"
    f"{WATCHDOG}\n17 4 * * 0 /usr/bin/find /var/tmp -name 'bench-*.json' -mtime +60 -delete\n"
)
# What nvidia-smi says of a Spark's GPU at rest; it has no memory of its own.
GPU = {
    "name": "NVIDIA GB10",
    "driver_version": "580.95.05",
    "vbios_version": "9A.0B.17.00.00",
    "temperature.gpu": "52",
    "clocks.sm": "2411",
    "clocks_event_reasons.active": "0x0000000000000001",
    "clocks.max.sm": "3003",
    "memory.total": "[N/A]",
}
# What programs may get for an outgoing connection.
CHANCE = {"net.ipv4.ip_local_port_range": "32768 60999", "net.ipv4.ip_local_reserved_ports": ""}
PORTS = ("enp1s0f0np0", "enp1s0f1np1")
# asked name -> canonical name, active, file state, triggers; as found on the lab's `fresh`
DESKTOP: dict[str, tuple[str, str, str, str]] = {
    "gdm3.service": ("gdm.service", "active", "indirect", ""),
    "gnome-remote-desktop.service": ("gnome-remote-desktop.service", "active", "enabled", ""),
    "cups.service": ("cups.service", "active", "enabled", "cups.socket cups.path"),
    "cups-browsed.service": ("cups-browsed.service", "active", "enabled", ""),
    "bluetooth.service": ("bluetooth.service", "inactive", "enabled", ""),
    "avahi-daemon.service": ("avahi-daemon.service", "active", "enabled", "avahi-daemon.socket"),
    "ModemManager.service": ("ModemManager.service", "active", "enabled", ""),
    "colord.service": ("colord.service", "inactive", "static", ""),
}
# Installed on a Spark as on the lab: any D-Bus call would start it.
PROFILES = "power-profiles-daemon.service"
# The same of what updates a host by itself, and what their timers start.
UPDATES: dict[str, tuple[str, str]] = {
    "apt-daily.timer": ("active", "enabled"),
    "apt-daily-upgrade.timer": ("active", "enabled"),
    "unattended-upgrades.service": ("active", "enabled"),
    "fwupd-refresh.timer": ("active", "enabled"),
    "fwupd.service": ("inactive", "static"),
}
UPDATES_ABSENT = (
    "update-notifier-download.timer",
    "packagekit.service",
    "nvidia-spark-mlnx-firmware-manager.service",
)
TRIGGERS = {t for *_, words in DESKTOP.values() for t in words.split()}


def cluster_data(hosts: int = 2, **changes: Any) -> dict[str, Any]:
    """An owner's file with `hosts` hosts, as plain data."""
    nodes = [
        {
            "name": f"spark{n}",
            "address": f"192.0.2.{10 + n}",
            "fabric_address": f"192.168.100.{n}",
        }
        for n in range(1, hosts + 1)
    ]
    return {
        "ssh": {"user": "ci"},
        "head": nodes[0],
        "workers": nodes[1:],
        "fabric": {"interfaces": list(PORTS)},
        "stack": "lab",
        "rollback_stack": "dsf-lab",
        "model_dir": "/srv/models",
    } | changes


def cluster(hosts: int = 2, **changes: Any) -> Cluster:
    return Cluster.model_validate(cluster_data(hosts, **changes))


def write_locks(folder: Path) -> None:
    """Locks of the two lab stacks, with made digests."""
    folder.mkdir(exist_ok=True)
    for name, files in (("lab", 120), ("dsf-lab", 12)):
        lock = {
            "stack": name,
            "image": {"index": f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"},
            "model": {
                "repository": "lab/tiny",
                "revision": hashlib.sha1(name.encode()).hexdigest(),  # noqa: S324 - 40 digits
                "files": [
                    {
                        "name": f"model-{n:05d}-of-{files:05d}.safetensors",
                        "size": 65640,
                        "sha256": hashlib.sha256(f"{name}{n}".encode()).hexdigest(),
                    }
                    for n in range(1, files + 1)
                ],
            },
        }
        (folder / f"{name}.lock.yaml").write_text(yaml.safe_dump(lock))


@cache
def locked(name: str, folder: Path) -> Stack:
    write_locks(folder)
    return load(name, folder)


def file_of(text: str | bytes, mode: int = 0o600) -> dict[str, Any]:
    data = text.encode() if isinstance(text, str) else text
    return {"mode": mode, "uid": 0, "gid": 0, "b64": base64.b64encode(data).decode()}


def table_of(text: str) -> dict[str, Any]:
    """The crontab of root, judged as the host does; its watchdog's script is one that starts."""
    path, data = f"{spark_host_crontab.PLACES.users}/root", text.encode()
    reader = module("watchdogs.mentions").Reader(())
    reader.weights[STARTER, "/root"] = "starts"
    judged = {
        "lines": spark_host_crontab.verdicts(reader, path, data, "/root"),
        "unended": module("watchdogs.lines").unended(text),
    }
    return file_of(text) | judged | {"path": path}


def unit(name: str, active: str, file_state: str, triggers: str = "") -> dict[str, Any]:
    load_state = {"masked": "masked", "masked-runtime": "masked"}.get(file_state, "loaded")
    return {
        "Id": name,
        "LoadState": load_state,
        "ActiveState": active,
        "UnitFileState": file_state,
        "TriggeredBy": triggers,
        "starters": [],
    }


def run_of(timer: str) -> str:
    """apt-daily.service for apt-daily.timer; nothing for what is no timer."""
    return timer.replace(".timer", ".service") if timer.endswith(".timer") else ""


def update_unit(name: str, active: str, file_state: str) -> dict[str, Any]:
    return unit(name, active, file_state) | {"Triggers": run_of(name)}


def absent_unit(name: str) -> dict[str, Any]:
    return {
        "Id": name,
        "LoadState": "not-found",
        "ActiveState": "inactive",
        "UnitFileState": "",
        "starters": [],
    }


def link(mtu: int = 1500, *addresses: str, **changes: Any) -> dict[str, Any]:
    return {
        "mac": "52:54:00:00:00:01",
        "mtu": mtu,
        "state": "UP",
        "carrier": True,
        "master": None,
        "kind": None,
        "altnames": [],
        "addresses": list(addresses),
    } | changes


def bond_text(
    members: Mapping[str, str],
    mode: str = "fault-tolerance (active-backup)",
    primary: str = f"{PORTS[0]} (primary_reselect always)",
    active: str | None = None,
    hash_policy: str = "",
) -> str:
    """/proc/net/bonding/bond0 as Linux 6.12 writes it; members: name -> MII status."""
    hashed = f"Transmit Hash Policy: {hash_policy}\n" if hash_policy else ""
    head = (
        "Ethernet Channel Bonding Driver: v6.12.74+deb13-amd64\n\n"
        f"Bonding Mode: {mode}\n{hashed}Primary Slave: {primary}\n"
        f"Currently Active Slave: {active or next(iter(members), 'None')}\n"
        "MII Status: up\nMII Polling Interval (ms): 100\nUp Delay (ms): 0\nDown Delay (ms): 0\n"
        "Peer Notification Delay (ms): 0\n"
    )
    return head + "".join(
        f"\nSlave Interface: {name}\nMII Status: {status}\nSpeed: Unknown\nDuplex: Unknown\n"
        f"Link Failure Count: 0\nPermanent HW addr: 52:54:01:aa:00:0{n}\nSlave queue ID: 0\n"
        for n, (name, status) in enumerate(members.items(), start=2)
    )


def roce(address: str, interface: str, index: int = 1) -> dict[str, Any]:
    """One RDMA device with its link-local GID and the RoCE v2 one of an IPv4 address."""
    octets = [int(part) for part in address.split(".")]
    mapped = f"0000:0000:0000:0000:0000:ffff:{octets[0]:02x}{octets[1]:02x}:" + (
        f"{octets[2]:02x}{octets[3]:02x}"
    )
    local = "fe80:0000:0000:0000:5054:01ff:feaa:0002"
    return {
        "state": "4: ACTIVE",
        "gids": {
            "0": {"gid": local, "type": "RoCE v2", "interface": interface},
            str(index): {"gid": mapped, "type": "RoCE v2", "interface": interface},
        },
    }


def container(name: str, image: str, labels: Mapping[str, str], **changes: Any) -> dict[str, Any]:
    """A running container; `changes` to its top-level keys."""
    return {
        "Id": hashlib.sha256(name.encode()).hexdigest(),
        "Name": f"/{name}",
        "RestartCount": 0,
        "State": {
            "Status": "running",
            "Running": True,
            "ExitCode": 0,
            "StartedAt": "2026-08-26T06:00:00Z",
            "Restarting": False,
        },
        "Image": "sha256:" + hashlib.sha256(image.encode()).hexdigest(),
        "Reference": image,
        "Digests": [image] if "@" in image else [],
        "Labels": dict(labels),
        "Published": [],
        "Restart": "no",
        "AutoRemove": False,
        "Signs": [],
        "Recipe": hashlib.sha256(f"recipe of {name}".encode()).hexdigest(),
    } | changes


def listener(port: int, **changes: Any) -> dict[str, Any]:
    """A program outside of docker that listens; `changes` to it."""
    return {
        "port": port,
        "process": "python3",
        "pid": 4711,
        "user": "milo",
        "unit": "",
        "user_unit": "",
        "container": None,
    } | changes


def old_rank(dsf: Stack) -> dict[str, Any]:
    labels = {"com.docker.compose.project": "dsf-lab", "com.docker.compose.service": "engine"}
    made = container("dsf-lab-engine-1", dsf.image_reference, labels)
    return made | {"Restart": "unless-stopped"}


def found_engine(name: str, rank: int) -> dict[str, Any]:
    """What spark-host says of a rank that no stack file knows."""
    digest = container(name, "", {})["Recipe"]
    return {
        "name": name,
        "containers": {name: digest},
        "project": None if rank else "ds4",
        "reference": "dspark-vllm-gx10:aug26",
        "image": f"sha256:{'5' * 64}",
        "digests": [],
        "sum": hashlib.sha256(name.encode()).hexdigest(),
        "started_at": f"2026-08-26T06:00:{25 - 25 * rank:02d}.123456789Z",
        "policy": "unless-stopped",
        "rank": rank,
        "world": 2,
        "address": "10.0.0.1",
        "rendezvous": 25000,
        "api": None if rank else 8888,
        "model_name": None if rank else "deepseek-v4-flash-0731",
        "context": None if rank else 200000,
        "progress": [r"checkpoint shards:\s+\d+% Completed \| (\d+)/\d+"],
        "ready": None if rank else "Application startup complete",
        "models": ["/srv/hf"],
        "files": [],
        "checkout": None,
        "folders": [] if rank else ["/opt/ds4"],
        "cannot": [],
    }


def found_pair(wanted: Cluster, lab: Stack, dsf: Stack) -> list[Snapshot]:
    """Dirty hosts with an engine of no stack file: the head by compose, the worker by itself."""
    made = [dirty(wanted, rank, lab, dsf) for rank in range(2)]
    for rank, name in enumerate(("ds4-vllm-1", "vllm-worker")):
        labels = {} if rank else {"com.docker.compose.project": "ds4"}
        one = container(name, "dspark-vllm-gx10:aug26", labels)
        signs = {"Restart": "unless-stopped", "Signs": ["has the GPU"]}
        made[rank]["containers"]["containers"] = [one | signs]
        made[rank]["adoptable"] = {"engines": [found_engine(name, rank)]}
    return made


def policy(cpus: str, **changes: Any) -> dict[str, Any]:
    """One CPU frequency policy of a Spark's large cores; cpus: those of it that are online."""
    return {
        "governor": "performance",
        "offered": ["performance", "schedutil"],
        "online_cpus": cpus,
        "cap_khz": 3900000,
        "top_khz": 3900000,
        "bottom_khz": 338000,
        "steps_khz": [],
        "back_khz": None,
    } | changes


def image(reference: str) -> dict[str, Any]:
    return {
        "id": "sha256:" + hashlib.sha256(reference.encode()).hexdigest(),
        "digests": [reference],
        "platform": "linux/amd64",
        "manifest": None,
    }


def install(made: Snapshot) -> None:
    """The on-host program and its console command are there."""
    made["program"] = {"sha256": program_sha256()}
    text = program.undo_text([load(name) for name in names()])
    made["files"][program.UNDO_COMMAND] = file_of(text, 0o755)


def dirty(wanted: Cluster, rank: int, lab: Stack, dsf: Stack) -> Snapshot:
    """A host of the lab's `fresh`: desktop, governor performance, old stack, leftovers."""
    node = wanted.nodes[rank]
    address = f"{node.fabric_address}/24"
    playbook = yaml.safe_dump(
        {"network": {"version": 2, "ethernets": {PORTS[0]: {"addresses": [address]}}}}
    )
    management = "network:\n  version: 2\n  ethernets:\n    enP7s7:\n      dhcp4: true\n"
    users = {"root": table_of(CRONTAB) | {"gid": 104}} if rank == 0 else {}
    return {
        "lease": {"holder": None},
        "boot": {
            "default_target": "graphical.target",
            "fault": None,
            "override": None,
            "override_from": [],
            "boot_id": f"boot-{rank}",
            "machine": "x86_64",
            "kernel": "6.12.74",
        },
        "services": {
            "units": {
                **{asked: unit(*found) for asked, found in DESKTOP.items()},
                **{name: update_unit(name, *found) for name, found in UPDATES.items()},
                **{name: absent_unit(name) for name in UPDATES_ABSENT},
                **{name: absent_unit(name) for name in (cpufreq.UNIT, gpu.UNIT)},
                **{name: absent_unit(name) for name in shipped().governor_owners},
                PROFILES: unit(PROFILES, "inactive", "disabled")
                | {"starters": ["D-Bus as power-profiles-daemon.service"]},
            },
            "triggers": {
                **{name: unit(name, "active", "enabled") for name in sorted(TRIGGERS)},
                **{run_of(n): unit(run_of(n), "inactive", "static") for n in UPDATES if run_of(n)},
            },
        },
        "cpufreq": {
            "policies": {f"policy{n}": policy(str(n)) for n in range(2)},
            "writers": {"units": {}, "triggers": {}},
            "left_alone": [],
            "profile": None,
        },
        "fabric": {
            "interfaces": {
                "lo": link(65536),
                "enP7s7": link(1500, f"10.0.2.{11 + rank}/24"),
                PORTS[0]: link(1500, address),
                PORTS[1]: link(1500),
            },
            "bonds": {},
            "netplan": {
                "/etc/netplan/01-mgmt.yaml": file_of(management),
                "/etc/netplan/40-cx7.yaml": file_of(playbook),
            },
            "rdma": {"rocep1s0f0": roce(node.fabric_address, PORTS[0])},
            "default_interfaces": ["enP7s7"],
        },
        "memory": {
            "meminfo_kib": {
                "MemTotal": 1500000,
                "MemFree": 300000,
                "MemAvailable": 900000,
                "Cached": 600000,
                "SwapTotal": 0,
                "SwapFree": 0,
            },
            "shm": [
                {"name": "psm_3f9ac41e", "bytes": 2097152, "verdict": "leftover"},
                {"name": "sem.loky-4711-x9", "bytes": 32, "verdict": "leftover"},
            ],
        },
        "sysctl": {
            "values": {**dict.fromkeys(shipped().sysctl, "60"), **CHANCE},
            "files": [],
        },
        "logind": {"remove_ipc": True, "lingering": []},
        "oom": {"killers": []},
        "listeners": {"listeners": []},
        "crontab": {
            "users": users,
            "deleted": [],
            "installed": True,
        },
        "maintenance": {"busy": [], "needrestart": True},
        "reach": {"wifi": []},
        "userunits": {"units": []},
        "starters": {"units": [], "scripts": [], "at_jobs": []},
        "containers": {"installed": True, "containers": [old_rank(dsf)]},
        "outside": {"programs": []},
        "images": {lab.image_reference: None, dsf.image_reference: image(dsf.image_reference)},
        "shards": {shards.directory(one, wanted.model_dir): "unverified" for one in (lab, dsf)},
        "gpu": {"gpus": [dict(GPU)]},
        "holders": {"programs": [], "rest_mib": 90, "gpu_unread": None},
        "files": dict.fromkeys(
            (
                *(cpufreq.UNIT_PATH, gpu.UNIT_PATH, program.UNDO_COMMAND),
                *(sysctl.PATH, logind.PATH, maintenance.NEEDRESTART),
            )
        ),
        "program": {"sha256": None},
        "record": {},
    }


def bare(wanted: Cluster, rank: int, lab: Stack, dsf: Stack) -> Snapshot:
    """A converged host on which nothing runs."""
    made = dirty(wanted, rank, lab, dsf)
    node = wanted.nodes[rank]
    made["boot"]["default_target"] = "multi-user.target"
    for asked, (name, _, file_state, triggers) in DESKTOP.items():
        ended = "masked" if file_state in ("static", "indirect") else "disabled"
        made["services"]["units"][asked] = unit(name, "inactive", ended, triggers)
    for name, (_, file_state) in UPDATES.items():
        ended = "masked" if file_state == "static" else "disabled"
        made["services"]["units"][name] = update_unit(name, "inactive", ended)
    made["files"][maintenance.NEEDRESTART] = file_of(maintenance.NEEDRESTART_TEXT, 0o644)
    made["services"]["units"][cpufreq.UNIT] = unit(cpufreq.UNIT, "active", "enabled")
    made["services"]["units"][PROFILES] = unit(PROFILES, "inactive", "masked")
    for name in TRIGGERS:
        made["services"]["triggers"][name] = unit(name, "inactive", "disabled")
    governor = shipped().governor
    for one in made["cpufreq"]["policies"].values():
        one["governor"] = governor
    cap_mhz = wanted.clocks.cpu_max_mhz
    made["files"][cpufreq.UNIT_PATH] = file_of(cpufreq.unit_text(governor, cap_mhz), 0o644)
    if cap_mhz:
        for one in made["cpufreq"]["policies"].values():
            one["cap_khz"] = cap_mhz * 1000
    if wanted.clocks.gpu_mhz:
        made["files"][gpu.UNIT_PATH] = file_of(gpu.unit_text(wanted.clocks.gpu_mhz), 0o644)
        made["services"]["units"][gpu.UNIT] = unit(gpu.UNIT, "active", "enabled")
    settings = shipped().sysctl
    made["sysctl"]["values"] |= {key: str(value) for key, value in settings.items()}
    made["files"][sysctl.PATH] = file_of(sysctl.text(settings), 0o644)
    made["logind"]["remove_ipc"] = False
    made["files"][logind.PATH] = file_of(logind.TEXT, 0o644)
    mtu = wanted.fabric.mtu
    made["fabric"] |= {
        "interfaces": {
            "lo": link(65536),
            "enP7s7": link(1500, f"10.0.2.{11 + rank}/24"),
            "bond0": link(mtu, f"{node.fabric_address}/24", kind="bond"),
            **{port: link(mtu, master="bond0") for port in PORTS},
        },
        "bonds": {"bond0": bond_text(dict.fromkeys(PORTS, "up"))},
        "netplan": {
            "/etc/netplan/01-mgmt.yaml": made["fabric"]["netplan"]["/etc/netplan/01-mgmt.yaml"],
            PATH: file_of(document(fabric_of(wanted, node))),
        },
        "rdma": {"rocep1s0f0": roce(node.fabric_address, "bond0")},
    }
    made["memory"]["shm"] = []
    if rank == 0:
        held = CRONTAB.replace(WATCHDOG, f"#SPARK-HELD-20260826 {WATCHDOG}")
        made["crontab"]["users"]["root"] |= table_of(held)
    made["containers"]["containers"] = []
    made["images"] = {one.image_reference: image(one.image_reference) for one in (lab, dsf)}
    made["shards"] = dict.fromkeys(made["shards"], "verified")
    install(made)
    return made


def running(wanted: Cluster, lab: Stack, dsf: Stack) -> list[Snapshot]:
    """A converged cluster with a rank of `lab` on every host, all of one generation."""
    made = [bare(wanted, rank, lab, dsf) for rank in range(len(wanted.nodes))]
    for spec, snapshot in zip(specs(wanted, lab, states(made)), made, strict=True):
        labels = {**spec.labels, "io.spark-converge.generation": "20260826T060000Z"}
        one = container(spec.container_name, spec.image, labels)
        snapshot["containers"]["containers"] = [one]
        snapshot["record"] = {
            "generation": "20260826T060000Z",
            "stack": lab.name,
            "rank": spec.rank,
            "spec": spec.spec,
            "container_id": one["Id"],
            "started_at": one["State"]["StartedAt"],
        }
    return made


def states(snapshots: list[Snapshot]) -> list[HostState]:
    return [state_of(snapshot) for snapshot in snapshots]

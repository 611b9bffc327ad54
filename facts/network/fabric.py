"""The links between the ranks: interfaces, bonds, netplan files, RDMA devices."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, fields
from typing import Any

from facts.run.unknown import Section


@dataclass(frozen=True)
class Link:
    name: str
    mtu: int
    carrier: bool
    master: str | None
    kind: str | None
    altnames: tuple[str, ...]
    addresses: tuple[str, ...]  # IPv4, "192.168.100.1/24"
    dynamic: tuple[str, ...] = ()  # those of them that DHCP gave
    mac: str = ""  # of the hardware, whatever a bond makes of it
    up: bool = True  # by its own switch; without it nothing is known of its cable


@dataclass(frozen=True)
class Bond:
    """As /proc/net/bonding/<name> says, not as a file hopes; mii_ms: how often links are polled;
    hash_policy: None in a mode without one."""

    name: str
    mode: str
    primary: str | None
    active: str | None
    mii_ms: int
    members: tuple[str, ...]
    members_up: tuple[str, ...]
    hash_policy: str | None = None


@dataclass(frozen=True)
class NetplanFile:
    path: str
    text: str
    mode: int


@dataclass(frozen=True)
class Profile:
    """A connection of NetworkManager: its file and the lines that name interface and addresses."""

    path: str
    text: str


@dataclass(frozen=True)
class Gid:
    index: int
    gid: str
    type: str
    interface: str


@dataclass(frozen=True)
class Hca:
    name: str
    state: str
    gids: tuple[Gid, ...]
    rate_gbps: float | None = None


@dataclass(frozen=True)
class Fabric:
    """control_address: where this control connection comes in, None for a run on the host itself.

    loopback_names: host names that /etc/hosts puts on 127.*; tools: RDMA tests that are installed;
    networkd: why systemd-networkd configures nothing there, None where it may.
    """

    links: dict[str, Link]
    bonds: dict[str, Bond]
    netplan: tuple[NetplanFile, ...]
    hcas: tuple[Hca, ...]
    default_interfaces: tuple[str, ...]
    profiles: tuple[Profile, ...] = ()
    control_address: str | None = None
    control_device: str | None = None
    hostname: str = ""
    loopback_names: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    networkd: str | None = None


MODES = {
    "fault-tolerance (active-backup)": "active-backup",
    "load balancing (round-robin)": "balance-rr",
    "load balancing (xor)": "balance-xor",
    "IEEE 802.3ad Dynamic link aggregation": "802.3ad",
    "fault-tolerance (broadcast)": "broadcast",
    "transmit load balancing": "balance-tlb",
    "adaptive load balancing": "balance-alb",
}


def bond(name: str, text: str) -> Bond:
    """Parse /proc/net/bonding/<name> (kernel: Documentation/networking/bonding.rst)."""
    mode = re.search(r"^Bonding Mode: (.*)$", text, re.MULTILINE)
    active = re.search(r"^Currently Active Slave: (\S+)$", text, re.MULTILINE)
    primary = re.search(r"^Primary Slave: (\S+)", text, re.MULTILINE)
    members = re.findall(r"^Slave Interface: (\S+)\nMII Status: (.+)$", text, re.MULTILINE)
    policy = re.search(r"^Transmit Hash Policy: (\S+)", text, re.MULTILINE)
    mii = re.search(r"^MII Polling Interval \(ms\): (\d+)$", text, re.MULTILINE)
    raw = mode.group(1).split(" (fail_over_mac")[0].strip() if mode else "unknown"
    return Bond(
        name=name,
        mode=MODES.get(raw, raw),
        primary=primary.group(1) if primary and primary.group(1) != "None" else None,
        active=active.group(1) if active and active.group(1) != "None" else None,
        mii_ms=int(mii.group(1)) if mii else 0,
        members=tuple(m for m, _ in members),
        members_up=tuple(m for m, status in members if status == "up"),
        hash_policy=policy.group(1) if policy else None,
    )


def rate_of(text: str) -> float | None:
    """Gb/s of a port's `rate`: 200 Gb/sec (4X HDR)."""
    match = re.match(r"([0-9.]+) Gb/sec", text)
    return float(match[1]) if match else None


def given(kind: type, found: Section) -> dict[str, Any]:
    """The values of a record's own fields, lists as tuples; what is not told is left out."""
    told = {f.name: found[f.name] for f in fields(kind) if f.name in found}
    return {key: tuple(v) if isinstance(v, list) else v for key, v in told.items()}


def gid(index: str, found: Section) -> Gid:
    return Gid(int(index), found["gid"], found["type"] or "", found["interface"] or "")


def hca(name: str, found: Section) -> Hca:
    gids = sorted((gid(*item) for item in found["gids"].items()), key=lambda one: one.index)
    state = (found["state"] or "").split(": ")[-1]
    return Hca(name, state, tuple(gids), rate_of(found.get("rate") or ""))


def parse(section: Section) -> Fabric:
    read = {
        path: base64.b64decode(found["b64"]).decode("utf-8", "replace")
        for path, found in sorted(section["netplan"].items())
    }
    made = {
        "links": {
            n: Link(**given(Link, one | {"name": n})) for n, one in section["interfaces"].items()
        },
        "bonds": {n: bond(n, text) for n, text in section["bonds"].items() if text},
        "netplan": tuple(NetplanFile(p, t, section["netplan"][p]["mode"]) for p, t in read.items()),
        "hcas": tuple(hca(*item) for item in sorted(section["rdma"].items())),
        "profiles": tuple(Profile(*item) for item in sorted(section.get("profiles", {}).items())),
    }
    return Fabric(**given(Fabric, section) | made)

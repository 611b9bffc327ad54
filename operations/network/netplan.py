"""Netplan's text: the document for a fabric, what files say about devices, one by one and merged.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import yaml

from facts.network.fabric import NetplanFile
from inventory.schema import BOND_DEVICE
from operations.network.wanted import WantedBond, WantedFabric, WantedLink

FILE = "60-spark-converge.yaml"
PATH = f"/etc/netplan/{FILE}"
HEADER = "# Written by spark-converge: the fabric only. The originals are in its journal.\n"
# netplan's sections that define devices; anything else in a file does not name one.
DEVICE_SECTIONS = (
    "ethernets", "wifis", "modems", "bridges", "bonds", "vlans", "tunnels", "vrfs",
    "dummy-devices", "virtual-ethernets", "nm-devices",
)  # fmt: skip
# Beside the devices of a section it stands for all of them.
RENDERER = "renderer"
# A file hides those of the same name in folders that stand after its own (netplan(5)).
FOLDERS = ("/run/netplan", "/etc/netplan", "/usr/lib/netplan", "/lib/netplan")
# What netplan takes for a key that is not there.
DEFAULTS: Mapping[str, Any] = {
    "dhcp4": False,
    "dhcp6": False,
    "optional": False,
    "link-local": ["ipv6"],
    "addresses": [],
}

Definitions = Mapping[str, Mapping[str, Any]]


def _device(link: WantedLink) -> dict[str, Any]:
    """A device that only our file configures. Optional, so that a host without its cable boots;
    `renderer` for each, so that the management link keeps the one that the owner gave it."""
    return {
        "renderer": "networkd",
        "dhcp4": False,
        "dhcp6": False,
        "link-local": [],
        "mtu": link.mtu,
        "optional": True,
    }


def _parameters(bond: WantedBond) -> dict[str, Any]:
    found: dict[str, Any] = {"mode": bond.mode, "mii-monitor-interval": bond.mii_ms}
    found |= {"primary": bond.primary} if bond.primary else {}
    return found | ({"transmit-hash-policy": bond.hash_policy} if bond.hash_policy else {})


def definitions(wanted: WantedFabric) -> dict[str, dict[str, Any]]:
    """{device: its keys} as our file has them."""
    found = {}
    for link in wanted.links:
        bond = wanted.bond if link.name == BOND_DEVICE else None
        found[link.name] = {
            **_device(link),
            **({"interfaces": list(bond.members)} if bond else {}),
            **({"addresses": list(link.addresses)} if link.addresses else {}),
            **({"parameters": _parameters(bond)} if bond else {}),
        }
    return found


def document(wanted: WantedFabric) -> str:
    """Our netplan file for one host, without any key that is global."""
    devices = definitions(wanted)
    network: dict[str, Any] = {"version": 2}
    network["ethernets"] = {name: devices[name] for name in wanted.ports}
    if wanted.bond:
        network["bonds"] = {BOND_DEVICE: devices[BOND_DEVICE]}
    return HEADER + yaml.safe_dump({"network": network}, sort_keys=False)


@lru_cache(maxsize=64)  # the same few files are asked for again and again
def _read(text: str) -> tuple[Mapping[str, Any], Definitions] | None:
    """(what is below `network`, {device: its keys}); None when it is no readable netplan."""
    try:
        network = (yaml.safe_load(text) or {}).get("network") or {}
        return network, {
            str(name): dict(keys or {})
            for section in DEVICE_SECTIONS
            for name, keys in (network.get(section) or {}).items()
            if name != RENDERER
        }
    except (yaml.YAMLError, AttributeError, TypeError, ValueError, RecursionError):
        return None  # ValueError: month 13


def definitions_in(text: str) -> Definitions | None:
    """{device: its keys} of a netplan document; None when it is no readable netplan."""
    found = _read(text)
    return found[1] if found else None


def means_the_same(one: str, other: str) -> bool:
    """Would netplan read the same in both, whatever their comments, quotes and order?"""
    return _read(one) is not None and _read(one) == _read(other)


def devices_in(text: str) -> set[str] | None:
    """Names of the devices that a netplan file defines; None when it is no readable netplan."""
    found = definitions_in(text)
    return None if found is None else set(found)


def in_etc(file: NetplanFile) -> bool:
    """One of the owner's own."""
    return file.path.startswith("/etc/netplan/") and file.path != PATH


def in_force(files: Sequence[NetplanFile]) -> list[NetplanFile]:
    """The files that netplan reads: of each name the one in the first of its folders."""
    kept: dict[str, NetplanFile] = {}
    for folder in FOLDERS:
        for file in files:
            where, name = file.path.rsplit("/", 1)
            if where == folder:
                kept.setdefault(name, file)
    return [kept[name] for name in sorted(kept)]


def of_others(files: Sequence[NetplanFile]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(path, device, its keys) of every definition in force that is not in our own file."""
    for file in in_force(files):
        if file.path != PATH:
            for name, keys in (definitions_in(file.text) or {}).items():
                yield file.path, name, keys


def by_networkd(files: Sequence[NetplanFile]) -> set[str]:
    """Names below `ethernets` that networkd configures, by their own renderer, their section's or
    the last global one: only such a definition takes links by its match that no file names."""
    everywhere, own = "networkd", dict[str, Any]()
    for network, devices in filter(None, (_read(file.text) for file in in_force(files))):
        everywhere = network.get(RENDERER, everywhere)
        section = network.get("ethernets") or {}
        for name in (str(name) for name in section if name != RENDERER):
            found = devices[name].get(RENDERER) or section.get(RENDERER)
            own[name] = found or own.get(name)
    return {name for name, renderer in own.items() if (renderer or everywhere) == "networkd"}


def places(files: Sequence[NetplanFile], device: str, key: str | None = None) -> str:
    """The files, ours left out, that define a device (or one key of it), for a sentence."""
    found = [
        path
        for path, name, keys in of_others(files)
        if name == device and (key is None or key in keys)
    ]
    return ", ".join(found) or "no file but ours"


def _plain(key: str, value: object) -> object:
    """A value as netplan may write it in either of two ways."""
    if isinstance(value, dict):
        return {k: _plain(k, v) for k, v in value.items()}
    if isinstance(value, list):
        return sorted(map(str, value)) if key in ("addresses", "interfaces") else value
    return value if isinstance(value, bool) else str(value)


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Keys in which two definitions differ, defaults filled in."""
    for key in dict.fromkeys((*one, *other)):
        values = [_plain(key, each.get(key, DEFAULTS.get(key))) for each in (one, other)]
        if values[0] != values[1]:
            yield key


def _last_line(node: yaml.Node) -> int:
    """Number from 0 of the last line of a node's own text: a block collection itself ends only
    where the next thing begins, behind comments and blank lines."""
    block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    if block and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(node, yaml.MappingNode) else last)
    literal = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    return int(node.end_mark.line) - (1 if literal else 0)


def lines_to_move(text: str, devices: set[str]) -> list[str]:
    """The lines of a netplan file that define these devices, numbered as in the file."""
    root = yaml.compose(text)
    found: list[str] = []
    lines = text.splitlines()

    def walk(node: yaml.Node | None, depth: int) -> None:
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            if depth == 2 and key.value in devices:
                span = range(key.start_mark.line, _last_line(value) + 1)
                found.extend(f"{n + 1}: {lines[n]}" for n in span)
            else:
                walk(value, depth + 1)

    walk(root, 0)
    return found

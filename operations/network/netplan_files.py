"""What netplan's files say about devices, one by one and merged. Pure text and comparison."""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from facts.network.fabric import Fabric, Link, NetplanFile

FILE = "60-spark-converge.yaml"
PATH = f"/etc/netplan/{FILE}"
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

Definitions = dict[str, dict[str, Any]]


def definitions_in(text: str) -> Definitions | None:
    """{device: its keys} of a netplan document; None when it is no readable netplan."""
    try:
        network = (yaml.safe_load(text) or {}).get("network") or {}
        return {
            str(name): dict(keys or {})
            for section in DEVICE_SECTIONS
            for name, keys in (network.get(section) or {}).items()
            if name != RENDERER
        }
    except (yaml.YAMLError, AttributeError, TypeError, ValueError):  # ValueError: month 13
        return None


def devices_in(text: str) -> set[str] | None:
    """Names of the devices that a netplan file defines; None when it is no readable netplan."""
    found = definitions_in(text)
    return None if found is None else set(found)


def in_etc(file: NetplanFile) -> bool:
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


def by_networkd(files: Sequence[NetplanFile]) -> set[str]:
    """Names below `ethernets` that networkd configures, by their own renderer, their section's or
    the last global one: only such a definition takes links by its match that no file names."""
    everywhere, own = "networkd", dict[str, Any]()
    for file in in_force(files):
        definitions = definitions_in(file.text)
        if definitions is None:
            continue
        network = (yaml.safe_load(file.text) or {}).get("network") or {}
        everywhere = network.get(RENDERER, everywhere)
        section = network.get("ethernets") or {}
        for name in (str(name) for name in section if name != RENDERER):
            found = definitions[name].get(RENDERER) or section.get(RENDERER)
            own[name] = found or own.get(name)
    return {name for name, renderer in own.items() if (renderer or everywhere) == "networkd"}


def places(files: Sequence[NetplanFile], device: str, key: str | None = None) -> str:
    """The files, ours left out, that define a device (or one key of it), for a sentence."""
    found = [
        file.path
        for file in in_force(files)
        if file.path != PATH
        for keys in [(definitions_in(file.text) or {}).get(device)]
        if keys is not None and (key is None or key in keys)
    ]
    return ", ".join(found) or "no file but ours"


def static_addresses(keys: Mapping[str, Any]) -> list[str]:
    """The IPv4 addresses of a definition; one with a label is a mapping with one key."""
    given = keys.get("addresses") or []
    texts = [str(next(iter(one), "")) if isinstance(one, dict) else str(one) for one in given]
    return [text for text in texts if ":" not in text]


def usable(address: str) -> bool:
    return not ipaddress.IPv4Interface(address).is_link_local


def _risk(path: str, name: str, keys: Mapping[str, Any], link: Link, control: str) -> str | None:
    """What `netplan apply` would do to the addresses of a link in use, None when nothing."""
    wanted = static_addresses(keys)
    held = [a for a in link.addresses if usable(a)]
    new = [a for a in wanted if a not in held]
    lost = [a for a in held if a.split("/")[0] == control and a not in wanted]
    if not wanted or not held or not (new or (lost and not keys.get("dhcp4"))):
        return None
    return (
        f"{path}: addresses of {name} are {', '.join(wanted)}, the link has {', '.join(held)}: "
        "netplan apply would change a link that is not the fabric's; mend the file, or apply it "
        "yourself"
    )


def risks(ours: set[str], fabric: Fabric) -> Iterator[str]:
    """Why `netplan apply` would do more than the fabric, for every file that is in force."""
    matching = by_networkd(fabric.netplan)
    for file in in_force(fabric.netplan):
        for name, keys in (definitions_in(file.text) or {}).items():
            link = fabric.links.get(str(keys.get("set-name", name)))
            if name in ours or file.path == PATH:
                continue
            if link is not None:
                said = _risk(file.path, name, keys, link, fabric.control_address or "")
                yield from [said] if said else []
            taken = [n for n in sorted(ours) if _matches(keys.get("match"), fabric.links.get(n))]
            if taken and name in matching:
                yield (
                    f"{file.path}: match of {name} takes {', '.join(taken)} too, and networkd "
                    "follows the first definition that fits; name its own devices there"
                )


def claims(ours: set[str], members: Sequence[str], files: Sequence[NetplanFile]) -> Iterator[str]:
    """Devices of other files that are built on the fabric's.

    members: ports of a bond of ours, which carry nothing but that bond
    """
    for file in in_force(files):
        for name, keys in (definitions_in(file.text) or {}).items():
            if name in ours or file.path == PATH:
                continue
            inside = keys.get("interfaces")
            taken = ours & {*map(str, inside if isinstance(inside, list) else ())}
            taken |= {*members} & {str(keys.get("link"))}
            if taken:
                yield (
                    f"{file.path}: {name} is built on {', '.join(sorted(taken))} of the fabric, "
                    "which can be only one thing at a time; take it out there"
                )


def _matches(match: object, link: Link | None) -> bool:
    """Does a `match` of netplan take a physical link? All of its keys have to fit."""
    if not isinstance(match, Mapping) or link is None or link.kind:
        return False
    names = match.get("name", "*")
    globs = names if isinstance(names, list) else [names]
    mac = str(match.get("macaddress", link.mac)).lower()
    driver = match.get("driver")  # not known here: only a match by driver alone is passed over
    if driver and not {"name", "macaddress"} & set(match):
        return False
    titles = (link.name, *link.altnames)
    return mac == link.mac and any(fnmatch.fnmatchcase(t, str(g)) for g in globs for t in titles)


def _plain(key: str, value: object) -> object:
    """A value as netplan may write it in either of two ways."""
    if isinstance(value, dict):
        return {k: _plain(k, v) for k, v in value.items()}
    if isinstance(value, list):
        return sorted(map(str, value)) if key in ("addresses", "interfaces") else value
    return value if isinstance(value, bool) else str(value)


def _keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Keys in which two definitions differ, defaults filled in."""
    for key in dict.fromkeys((*one, *other)):
        values = [_plain(key, each.get(key, DEFAULTS.get(key))) for each in (one, other)]
        if values[0] != values[1]:
            yield key


def merge_faults(
    wanted: Definitions, leaving: set[str], files: Sequence[NetplanFile], before: str, after: str
) -> list[str]:
    """Why the merged configuration is not ours for our devices and as before for all others.

    wanted: of our own document; leaving: further devices that are ours to take away; files: as
    found on the host; before, after: `netplan get` without and with our change.
    """
    old, new = definitions_in(before), definitions_in(after)
    if old is None or new is None:
        return ["netplan get gave nothing that can be read"]
    said = []
    for name, keys in wanted.items():
        for key in _keys(keys, new.get(name, {})):
            found = new.get(name, {}).get(key, "nothing")
            said.append(
                f"{name}: {key} would be {found}, {keys.get(key, 'nothing')} wanted "
                f"(set in {places(files, name, key)})"
            )
    for name in sorted({*old, *new} - {*wanted, *leaving}):
        for key in _keys(old.get(name, {}), new.get(name, {})):
            said.append(
                f"{name}: {key} would change from {old.get(name, {}).get(key, 'nothing')} to "
                f"{new.get(name, {}).get(key, 'nothing')} (set in {places(files, name, key)})"
            )
    return said + [f"{name} would still be defined" for name in sorted(leaving & set(new))]


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

"""The fabric as a netplan document, and how a host differs from it. Pure text and comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from facts.fabric import Fabric, NetplanFile
from inventory.schema import BOND_DEVICE, Cluster, Node

FILE = "60-spark-converge.yaml"
PATH = f"/etc/netplan/{FILE}"
HEADER = "# Written by spark-converge: the fabric only. The originals are in its journal.\n"
# netplan's sections that define devices; anything else in a file does not name one.
DEVICE_SECTIONS = (
    "ethernets", "wifis", "modems", "bridges", "bonds", "vlans", "tunnels", "vrfs",
    "dummy-devices", "virtual-ethernets", "nm-devices",
)  # fmt: skip


def _device(mtu: int) -> dict[str, Any]:
    """A device that only this file configures; made anew each time, or YAML would write aliases."""
    return {
        "renderer": "networkd",
        "dhcp4": False,
        "dhcp6": False,
        "link-local": [],
        "mtu": mtu,
        "optional": True,
    }


def primary(cluster: Cluster) -> str | None:
    """The member that carries the traffic while it is up, None where the mode has no such thing.

    Hosts that are cabled to each other without a switch must send on the same cable: a frame that
    arrives at a member which is not the active one is dropped. After a reset of one host the two
    ends otherwise stay on different cables (seen in the lab).
    """
    fabric = cluster.fabric
    has_primary = fabric.bond_mode in ("active-backup", "balance-tlb", "balance-alb")
    return fabric.interfaces[0] if has_primary else None


def _bond_parameters(cluster: Cluster) -> dict[str, Any]:
    # 100 ms: the kernel's documented example (Documentation/networking/bonding.rst)
    parameters = {"mode": cluster.fabric.bond_mode, "mii-monitor-interval": 100}
    return parameters | ({"primary": primary(cluster)} if primary(cluster) else {})


def document(cluster: Cluster, node: Node) -> str:
    """Our netplan file for one host: per-device renderer, everything optional, no global key.

    Optional, so that a host without its cable still boots; `renderer` per device, so that the
    management link keeps the renderer that the owner gave it.
    """
    fabric = cluster.fabric
    address = f"{node.fabric_address}/{fabric.prefix}"
    network: dict[str, Any] = {"version": 2}
    if fabric.mode == "bond":
        network["ethernets"] = {name: _device(fabric.mtu) for name in fabric.interfaces}
        network["bonds"] = {
            BOND_DEVICE: {
                **_device(fabric.mtu),
                "interfaces": list(fabric.interfaces),
                "addresses": [address],
                "parameters": _bond_parameters(cluster),
            }
        }
    else:
        network["ethernets"] = {fabric.device: {**_device(fabric.mtu), "addresses": [address]}}
    return HEADER + yaml.safe_dump({"network": network}, sort_keys=False)


def devices_in(text: str) -> set[str] | None:
    """Names of the devices that a netplan file defines; None when it is no readable netplan."""
    try:
        network = (yaml.safe_load(text) or {}).get("network") or {}
        return {str(name) for section in DEVICE_SECTIONS for name in (network.get(section) or {})}
    except (yaml.YAMLError, AttributeError, TypeError, ValueError):  # ValueError: month 13
        return None


def fabric_devices(cluster: Cluster) -> set[str]:
    return {*cluster.fabric.interfaces, BOND_DEVICE}


def in_etc(file: NetplanFile) -> bool:
    return file.path.startswith("/etc/netplan/") and file.path != PATH


def replaced(cluster: Cluster, files: Sequence[NetplanFile]) -> list[str]:
    """Names of the owner's files that define only fabric devices: ours replaces them."""
    ours = fabric_devices(cluster)
    names = []
    for file in files:
        devices = devices_in(file.text)
        if in_etc(file) and devices and devices <= ours:
            names.append(file.path.rsplit("/", 1)[1])
    return names


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


def complaints(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    """Why the fabric of this host cannot be converged, all reasons, with what to do."""
    said = []
    for name in cluster.fabric.interfaces:
        if name in fabric.links:
            continue
        other = [link.name for link in fabric.links.values() if name in link.altnames]
        near = other or [n for n in fabric.links if n.startswith(name) or name.startswith(n + "n")]
        hint = f"; the host has {', '.join(near)}: put that name" if near else "; see `ip link`"
        said.append(f"{node.name}: fabric interface {name} is absent{hint} in fabric.interfaces")
    ours = fabric_devices(cluster)
    for file in fabric.netplan:
        devices = devices_in(file.text)
        if devices is None and in_etc(file):
            said.append(f"{node.name}: {file.path} is no readable netplan file: mend it first")
        elif devices and in_etc(file) and devices & ours and devices - ours:
            mixed = "\n        ".join(lines_to_move(file.text, devices & ours))
            said.append(
                f"{node.name}: {file.path} defines {', '.join(sorted(devices & ours))} beside "
                f"{', '.join(sorted(devices - ours))}; move these lines into a file of their own:"
                f"\n        {mixed}"
            )
    riding = ours & set(fabric.default_interfaces)
    if riding:
        said.append(
            f"{node.name}: the default route goes over the fabric ({', '.join(sorted(riding))}); "
            "give the host a management link of its own first"
        )
    return said


def bond_faults(cluster: Cluster, fabric: Fabric) -> list[str]:
    """How /proc/net/bonding/bond0 differs from the bond that is wanted."""
    wanted = cluster.fabric
    bond = fabric.bonds.get(BOND_DEVICE)
    if bond is None:
        return [f"{BOND_DEVICE} does not exist"]
    said = []
    if bond.mode != wanted.bond_mode:
        said.append(f"{BOND_DEVICE} is in mode {bond.mode}, {wanted.bond_mode} wanted")
    first = primary(cluster)
    if first and bond.primary != first:
        said.append(f"{BOND_DEVICE} has primary {bond.primary or 'none'}, {first} wanted")
    elif first and first in bond.members_up and bond.active != first:
        said.append(f"{BOND_DEVICE} sends on {bond.active or 'no member'} though {first} is up")
    missing = sorted(set(wanted.interfaces) - set(bond.members))
    if missing:
        said.append(f"{BOND_DEVICE} lacks {', '.join(missing)}")
    return said


def live_faults(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    """What the kernel's state lacks; file contents do not count here."""
    wanted = cluster.fabric
    address = f"{node.fabric_address}/{wanted.prefix}"
    said = bond_faults(cluster, fabric) if wanted.mode == "bond" else []
    if wanted.mode == "bond" and BOND_DEVICE not in fabric.bonds:
        return said
    for name in dict.fromkeys((wanted.device, *wanted.interfaces)):
        link = fabric.links.get(name)
        if link is None:
            said.append(f"{name} does not exist")
        elif link.mtu != wanted.mtu:
            said.append(f"{name} has MTU {link.mtu}, {wanted.mtu} wanted")
        if link is not None and link.master and wanted.mode != "bond":
            said.append(f"{name} is a member of {link.master}")
    carrier = fabric.links.get(wanted.device)
    if carrier is not None and address not in carrier.addresses:
        said.append(f"{wanted.device} lacks {address}")
    for link in fabric.links.values():
        if link.name != wanted.device and address in link.addresses:
            said.append(f"{link.name} still has {address}")
    return said


def why_not_converged(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    """Everything in which the host's fabric differs from the owner's file; empty when converged."""
    said = live_faults(cluster, node, fabric)
    own = next((f for f in fabric.netplan if f.path == PATH), None)
    if own is None or own.text != document(cluster, node):
        said.append(f"{PATH} is {'absent' if own is None else 'not as wanted'}")
    elif own.mode != 0o600:
        said.append(f"{PATH} has mode {own.mode:o}, 600 wanted")
    said += [
        f"/etc/netplan/{n} defines fabric devices too" for n in replaced(cluster, fabric.netplan)
    ]
    return said


def trial_plan(cluster: Cluster, node: Node, fabric: Fabric) -> dict[str, Any]:
    """What spark-host's `fabric try` takes."""
    bond = fabric.bonds.get(BOND_DEVICE)
    # networkd before systemd 257 does not change the mode of a bond that exists (systemd#36406).
    remake = bond is not None and (
        cluster.fabric.mode != "bond" or bond.mode != cluster.fabric.bond_mode
    )
    return {
        "files": {FILE: document(cluster, node)},
        "devices": sorted(fabric_devices(cluster)),
        "shadow": replaced(cluster, fabric.netplan),
        "delete_links": [BOND_DEVICE] if remake else [],
        "created_links": [BOND_DEVICE] if bond is None and cluster.fabric.mode == "bond" else [],
    }

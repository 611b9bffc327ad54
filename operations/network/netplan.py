"""The fabric as a netplan document, and how a host differs from it. Pure text and comparison."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any

import yaml

from facts.network.fabric import Bond, Fabric, NetplanFile
from inventory.schema import BOND_DEVICE, Cluster, Node
from operations.network.netplan_files import (
    FILE,
    PATH,
    claims,
    definitions_in,
    devices_in,
    in_etc,
    lines_to_move,
    places,
    risks,
    usable,
)

HEADER = "# Written by spark-converge: the fabric only. The originals are in its journal.\n"
# 100 ms: the kernel's documented example (Documentation/networking/bonding.rst)
MII_MS = 100
KERNELS_HASH = "layer2"  # of a bond that nobody gave a policy: the same document


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
    found: dict[str, Any] = {"mode": cluster.fabric.bond_mode, "mii-monitor-interval": MII_MS}
    found |= {"primary": primary(cluster)} if primary(cluster) else {}
    hashed = cluster.fabric.transmit_hash_policy
    return found | ({"transmit-hash-policy": hashed} if hashed else {})


def document(cluster: Cluster, node: Node) -> str:
    """Our netplan file for one host: per-device renderer, everything optional, no global key.

    Optional, so that a host without its cable still boots; `renderer` per device, so that the
    management link keeps the renderer that the owner gave it.
    """
    fabric = cluster.fabric
    ethernets = {name: _device(fabric.mtu) for name in fabric.interfaces}
    network: dict[str, Any] = {"version": 2, "ethernets": ethernets}
    if fabric.mode == "bond":
        network["bonds"] = {
            BOND_DEVICE: {
                **_device(fabric.mtu),
                "interfaces": list(fabric.interfaces),
                "addresses": [f"{node.fabric_address}/{fabric.prefix}"],
                "parameters": _bond_parameters(cluster),
            }
        }
    else:
        for device, address in cluster.rails(node):
            ethernets[device]["addresses"] = [f"{address}/{fabric.prefix}"]
    return HEADER + yaml.safe_dump({"network": network}, sort_keys=False)


def bonds_over(cluster: Cluster, fabric: Fabric) -> list[Bond]:
    """The bonds that hold fabric interfaces now, whoever made them."""
    wanted = set(cluster.fabric.interfaces)
    return [bond for bond in fabric.bonds.values() if wanted & set(bond.members)]


def own_definitions(fabric: Fabric) -> set[str]:
    """The devices that our own file defines on this host, none when it is not there."""
    own = next((file for file in fabric.netplan if file.path == PATH), None)
    return (devices_in(own.text) or set()) if own else set()


def fabric_devices(cluster: Cluster, fabric: Fabric) -> set[str]:
    """The names that only our file may define: interfaces under all their names, and bonds over
    them with their other members. networkd takes a definition under another name of a link too."""
    names = set(cluster.fabric.interfaces)
    for bond in bonds_over(cluster, fabric):
        names |= {bond.name, *bond.members}
    if cluster.fabric.mode == "bond":
        names.add(BOND_DEVICE)
    links = [fabric.links[name] for name in names if name in fabric.links]
    return names | {alt for link in links for alt in link.altnames}


def foreign_bond(cluster: Cluster, fabric: Fabric) -> Bond | None:
    """A bond over fabric interfaces that works and that somebody else made."""
    ours = own_definitions(fabric)
    for bond in bonds_over(cluster, fabric):
        link = fabric.links.get(bond.name)
        if bond.name not in ours and bond.members_up and link is not None and link.addresses:
            return bond
    return None


def replaced(ours: set[str], files: Sequence[NetplanFile]) -> list[str]:
    """Names of the owner's files that define only fabric devices: ours replaces them."""
    names = []
    for file in files:
        devices = devices_in(file.text)
        if in_etc(file) and devices and devices <= ours:
            names.append(file.path.rsplit("/", 1)[1])
    return names


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
    ours = fabric_devices(cluster, fabric)
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
    held = [n for n in sorted(ours) if _holds(fabric, n, fabric.control_address)]
    if held:
        said.append(
            f"{node.name}: the control connection comes in at {fabric.control_address} on the "
            f"fabric ({', '.join(held)}); connect to the management address (address in the "
            "owner's file)"
        )
    elif fabric.control_device in ours:
        said.append(
            f"{node.name}: answers on the control connection leave over the fabric "
            f"({fabric.control_device}); route to this machine over the management link"
        )
    if fabric.networkd and not _left_to_its_maker(cluster, fabric):
        unmask = "sudo systemctl unmask systemd-networkd.service systemd-networkd.socket"
        said.append(
            f"{node.name}: systemd-networkd is {fabric.networkd}, and it alone configures the "
            "fabric, now or at the next boot; "
            + (unmask if fabric.networkd == "masked" else "install it")
        )
    if why_not_converged(cluster, node, fabric):
        members = cluster.fabric.interfaces if cluster.fabric.mode == "bond" else ()
        said += [f"{node.name}: {risk}" for risk in risks(ours, fabric)]
        said += [f"{node.name}: {claim}" for claim in claims(ours, members, fabric.netplan)]
        said += [f"{node.name}: {overlap}" for overlap in overlaps(cluster, node, fabric)]
        said += [f"{node.name}: {why}" for why in _left_alone(cluster, node, fabric)]
    return said


def overlaps(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    """Addresses of links beside the fabric by which packets to the other ranks would leave: in its
    subnet, or in a part of it. A larger one that holds it does no harm: the closer route wins."""
    ours = fabric_devices(cluster, fabric) | own_definitions(fabric)
    nets = [
        ipaddress.IPv4Network(f"{bare}/{cluster.fabric.prefix}", strict=False)
        for _, bare in cluster.rails(node)
    ]
    return [
        f"{link.name} has {address}, in the subnet {net} of the fabric: packets to the other ranks "
        "may leave by it; take it away there, or give the fabric another subnet"
        for link in fabric.links.values()
        if link.name not in ours
        for address in link.addresses
        for net in nets
        if ipaddress.IPv4Interface(address).network.subnet_of(net)
    ]


def _kept(fabric: Fabric, bond: str) -> bool:
    """Does any file that lasts make this bond?"""
    files = [f for f in fabric.netplan if f.path != PATH and not f.path.startswith("/run/")]
    profiles = [p for p in fabric.profiles if not p.path.startswith("/run/")]
    return any(bond in (devices_in(file.text) or ()) for file in files) or any(
        f"interface-name={bond}" in profile.text.splitlines() for profile in profiles
    )


def _holds(fabric: Fabric, name: str, address: str | None) -> bool:
    link = fabric.links.get(name)
    return link is not None and any(a.split("/")[0] == address for a in link.addresses)


def _left_alone(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    """A bond that somebody made and that works is changed only on request."""
    bond = foreign_bond(cluster, fabric)
    if bond is None or cluster.policy.foreign_bond == "replace":
        return []
    faults = standing_faults(cluster, node, fabric)
    if not faults and cluster.fabric.mode == "bond":
        return []
    why = "; ".join(faults) or f"mode {cluster.fabric.mode} is wanted"
    return [
        f"{bond.name} ({bond.mode} of {', '.join(bond.members)}, from "
        f"{places(fabric.netplan, bond.name)}) works and is not ours, but {why}; put what it is "
        "into the owner's file, or allow the change with policy.foreign_bond: replace"
    ]


def _other_hash(cluster: Cluster, fabric: Fabric, bond: Bond) -> str | None:
    """The hash policy that the bond should have, None where it has it or nobody asks.

    One of ours that the owner's file says no more is asked to be the kernel's own again.
    """
    wanted: str | None = cluster.fabric.transmit_hash_policy
    if wanted is None and BOND_DEVICE in own_definitions(fabric):
        wanted = KERNELS_HASH
    return None if bond.hash_policy in (None, wanted) else wanted


def bond_faults(cluster: Cluster, fabric: Fabric) -> list[str]:
    """How /proc/net/bonding/bond0 differs from the bond that is wanted."""
    wanted = cluster.fabric
    bond = fabric.bonds.get(BOND_DEVICE)
    if bond is None:
        return [f"{BOND_DEVICE} does not exist"]
    said = []
    if bond.mode != wanted.bond_mode:
        said.append(f"{BOND_DEVICE} is in mode {bond.mode}, {wanted.bond_mode} wanted")
    if bond.mode == wanted.bond_mode and (policy := _other_hash(cluster, fabric, bond)):
        said.append(f"{BOND_DEVICE} hashes by {bond.hash_policy}, {policy} wanted")
    first = primary(cluster)
    if first and first in bond.members_up and bond.active != first:
        said.append(f"{BOND_DEVICE} sends on {bond.active or 'no member'} though {first} is up")
    missing = sorted(set(wanted.interfaces) - set(bond.members))
    if missing:
        said.append(f"{BOND_DEVICE} lacks {', '.join(missing)}")
    more = sorted(set(bond.members) - set(wanted.interfaces))
    if more:
        said.append(f"{BOND_DEVICE} has {', '.join(more)} too")
    return said


def care_faults(cluster: Cluster, fabric: Fabric) -> list[str]:
    """In what bond0 would be kept otherwise by us: how it comes back from a fault, not whether it
    carries anything now. Nothing without a bond."""
    bond = fabric.bonds.get(BOND_DEVICE)
    if bond is None or cluster.fabric.mode != "bond":
        return []
    said = []
    first = primary(cluster)
    if first and bond.primary != first:
        said.append(f"{BOND_DEVICE} has primary {bond.primary or 'none'}, {first} wanted")
    if bond.mii_ms != MII_MS:
        said.append(f"{BOND_DEVICE} looks at its links every {bond.mii_ms} ms, {MII_MS} wanted")
    return said


def _left_to_its_maker(cluster: Cluster, fabric: Fabric) -> bool:
    """Is there a bond of somebody else that works, lasts and stays?"""
    bond = foreign_bond(cluster, fabric)
    stays = cluster.policy.foreign_bond != "replace"
    return bond is not None and stays and _kept(fabric, bond.name)


def standing_faults(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    """What the kernel's state lacks; primary and link polling of a bond that stays its maker's do
    not count: no setting of the owner's file could say them."""
    said = live_faults(cluster, node, fabric)
    passed = care_faults(cluster, fabric) if _left_to_its_maker(cluster, fabric) else []
    return [why for why in said if why not in passed]


def advice(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    """What is worth knowing of a bond that is left to its maker."""
    if not _left_to_its_maker(cluster, fabric):
        return []
    return [
        f"{node.name}: {why}, and it is not ours: after a fault the hosts may send on different "
        "cables, or late on the other; policy.foreign_bond: replace would change that"
        for why in care_faults(cluster, fabric)
    ]


def live_faults(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    """What the kernel's state lacks; file contents do not count here."""
    wanted = cluster.fabric
    said = bond_faults(cluster, fabric) if wanted.mode == "bond" else []
    said += care_faults(cluster, fabric)
    if wanted.mode == "bond" and BOND_DEVICE not in fabric.bonds:
        return said
    if wanted.mode != "bond" and BOND_DEVICE in {*fabric.bonds} & own_definitions(fabric):
        said.append(f"{BOND_DEVICE} still exists")
    for name in dict.fromkeys((wanted.device, *wanted.interfaces)):
        link = fabric.links.get(name)
        if link is None:
            said.append(f"{name} does not exist")
        elif link.mtu != wanted.mtu:
            said.append(f"{name} has MTU {link.mtu}, {wanted.mtu} wanted")
        if link is not None and link.master and wanted.mode != "bond":
            said.append(f"{name} is a member of {link.master}")
    for device, bare in cluster.rails(node):
        address = f"{bare}/{wanted.prefix}"
        carrier = fabric.links.get(device)
        if carrier is not None and address not in carrier.addresses:
            said.append(f"{device} lacks {address}")
        for link in fabric.links.values():
            if link.name != device and address in link.addresses:
                said.append(f"{link.name} still has {address}")
    return said


def volatile(cluster: Cluster, fabric: Fabric) -> list[str]:
    """Addresses of the fabric that no file of the host names: they end with its next boot."""
    kept = [file.text for file in fabric.netplan if not file.path.startswith("/run/")]
    kept += [p.text for p in fabric.profiles if not p.path.startswith("/run/")]
    said = []
    for name in sorted(fabric_devices(cluster, fabric)):
        link = fabric.links.get(name)
        fixed = sorted(set(link.addresses) - set(link.dynamic)) if link else []
        for address in filter(usable, fixed):
            bare = re.compile(rf"(?<![0-9.]){re.escape(address)}(?![0-9])")
            if any(map(bare.search, kept)):
                continue
            by = next((p.path for p in fabric.profiles if bare.search(p.text)), "no file at all")
            said.append(f"{address} of {name} is volatile (in {by}): a reboot ends it")
    return said


def why_not_converged(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    """Everything in which the host's fabric differs from the owner's file; empty when converged."""
    said = standing_faults(cluster, node, fabric)
    bond = foreign_bond(cluster, fabric)
    ours_to_change = cluster.policy.foreign_bond == "replace" or cluster.fabric.mode != "bond"
    if bond is not None and not ours_to_change and not said and _kept(fabric, bond.name):
        return []  # somebody else's, and as wanted
    own = next((f for f in fabric.netplan if f.path == PATH), None)
    if own is None or own.text != document(cluster, node):
        said.append(f"{PATH} is {'absent' if own is None else 'not as wanted'}")
    elif own.mode != 0o600:
        said.append(f"{PATH} has mode {own.mode:o}, 600 wanted")
    ours = fabric_devices(cluster, fabric)
    said += [f"/etc/netplan/{n} defines fabric devices too" for n in replaced(ours, fabric.netplan)]
    return said


def trial_plan(cluster: Cluster, node: Node, fabric: Fabric) -> dict[str, Any]:
    """What spark-host's `fabric try` takes."""
    ours = fabric_devices(cluster, fabric)
    bond = fabric.bonds.get(BOND_DEVICE)
    made = cluster.fabric.mode == "bond"
    gone = {b.name for b in bonds_over(cluster, fabric)} | ({BOND_DEVICE} & own_definitions(fabric))
    if made:
        gone.discard(BOND_DEVICE)
        # networkd before systemd 257 does not change a bond that exists (systemd#36406).
        gone |= {BOND_DEVICE} if bond is not None and _to_remake(cluster, fabric, bond) else set()
    return {
        "files": {FILE: document(cluster, node)},
        "devices": sorted(
            name for name in ours | own_definitions(fabric) if _is_link_name(fabric, name)
        ),
        "shadow": replaced(ours, fabric.netplan),
        "delete_links": sorted(gone),
        "created_links": [BOND_DEVICE] if bond is None and made else [],
    }


def _to_remake(cluster: Cluster, fabric: Fabric, bond: Bond) -> bool:
    other = bond.mode != cluster.fabric.bond_mode or bond.mii_ms != MII_MS
    other = other or _other_hash(cluster, fabric, bond) is not None
    return other or bool(set(bond.members) - set(cluster.fabric.interfaces))


def _is_link_name(fabric: Fabric, name: str) -> bool:
    """False for a name that is only another name of a link."""
    return not any(name in link.altnames for link in fabric.links.values())


def merged_wanted(cluster: Cluster, node: Node, fabric: Fabric) -> tuple[Any, set[str]]:
    """(our document's definitions, further names that must not be defined any more)."""
    wanted = definitions_in(document(cluster, node)) or {}
    leaving = fabric_devices(cluster, fabric) | own_definitions(fabric)
    return wanted, leaving - set(wanted)

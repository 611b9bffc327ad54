"""What the fabric of one host shall be: its links as data, made of the owner's file alone."""

from __future__ import annotations

from dataclasses import dataclass

from inventory.schema import BOND_DEVICE, Cluster, Node

# 100 ms: the kernel's documented example (Documentation/networking/bonding.rst)
MII_MS = 100
WITH_PRIMARY = ("active-backup", "balance-tlb", "balance-alb")


@dataclass(frozen=True)
class WantedLink:
    """mtu: in bytes; addresses: such as 192.168.100.1/24."""

    name: str
    mtu: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class WantedBond:
    """primary: the member that carries the traffic while it is up, None where the mode has none;
    hash_policy: None where nobody asks for one.

    Hosts that are cabled to each other without a switch must send on the same cable: a frame that
    arrives at a member which is not the active one is dropped. After a reset of one host the two
    ends otherwise stay on different cables (seen in the lab).
    """

    mode: str
    members: tuple[str, ...]
    primary: str | None
    hash_policy: str | None
    mii_ms: int = MII_MS


@dataclass(frozen=True)
class WantedFabric:
    """links: all that have an MTU to keep, the bond first; ports: those that are hardware;
    spares_others: a bond that somebody else made stays as it is."""

    host: str
    mode: str
    links: tuple[WantedLink, ...]
    ports: tuple[str, ...]
    bond: WantedBond | None
    spares_others: bool


def wanted(cluster: Cluster, node: Node) -> WantedFabric:
    fabric, ports = cluster.fabric, cluster.interfaces(node)
    held = {device: (f"{address}/{fabric.prefix}",) for device, address in cluster.rails(node)}
    bond = None
    if fabric.mode == "bond":
        first = ports[0] if fabric.bond_mode in WITH_PRIMARY else None
        bond = WantedBond(fabric.bond_mode, ports, first, fabric.transmit_hash_policy)
    names = (BOND_DEVICE, *ports) if bond else ports
    links = tuple(WantedLink(name, fabric.mtu, held.get(name, ())) for name in names)
    spares = cluster.policy.foreign_bond != "replace"
    return WantedFabric(node.name, fabric.mode, links, ports, bond, spares)

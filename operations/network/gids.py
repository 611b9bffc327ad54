"""Which RDMA devices and GIDs carry the fabric of a rank. Pure."""

from __future__ import annotations

import ipaddress

from facts.network.fabric import Fabric
from inventory.schema import Cluster
from stacks.render import FabricFacts


def roce_v2_index(fabric: Fabric, hca: str, address: str) -> int | None:
    """Index of the RoCE v2 GID that holds an IPv4 address (as ::ffff:a.b.c.d) on one device."""
    wanted = ipaddress.IPv6Address(f"::ffff:{address}")
    for device in fabric.hcas:
        for gid in device.gids:
            if (
                device.name == hca
                and gid.type == "RoCE v2"
                and ipaddress.IPv6Address(gid.gid) == wanted
            ):
                return gid.index
    return None


def hca_addresses(cluster: Cluster, rank: int, fabric: Fabric) -> dict[str, str]:
    """{RDMA device on the fabric: the address that it shall be reached at}, by its link."""
    node = cluster.nodes[rank]
    held = dict.fromkeys((cluster.device(node), *cluster.interfaces(node)), node.fabric_address)
    held |= dict(cluster.rails(node))
    return {h.name: a for h in fabric.hcas for g in h.gids if (a := held.get(g.interface))}


def fabric_facts(cluster: Cluster, rank: int, fabric: Fabric) -> FabricFacts:
    """What rendering needs from the fabric that was found on this rank's host."""
    node = cluster.nodes[rank]
    on = hca_addresses(cluster, rank, fabric)
    indexes = {hca: roce_v2_index(fabric, hca, address) for hca, address in on.items()}
    return FabricFacts(
        interface=cluster.device(node),
        address=node.fabric_address,
        cidr=str(cluster.fabric_range),
        hcas=tuple(on),
        gid_indexes={hca: index for hca, index in indexes.items() if index is not None},
    )

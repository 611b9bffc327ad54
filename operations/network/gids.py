"""Which RDMA devices and GIDs carry the fabric of a rank. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

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
    """{RDMA device on the fabric: the address that it shall be reached at}, by its link; in the
    order of the rails, which is the same on all hosts whatever the devices are called."""
    node = cluster.nodes[rank]
    held = dict.fromkeys((cluster.device(node), *cluster.interfaces(node)), node.fabric_address)
    held |= dict(cluster.rails(node))
    rails = [address for _, address in cluster.rails(node)]
    found = {h.name: a for h in fabric.hcas for g in h.gids if (a := held.get(g.interface))}
    return dict(sorted(found.items(), key=lambda item: rails.index(item[1])))


def usable(cluster: Cluster, rank: int, fabric: Fabric) -> dict[str, int]:
    """{RDMA device that is active and has a GID of its address: the index of that GID}."""
    active = {hca.name for hca in fabric.hcas if hca.state == "ACTIVE"}
    on = hca_addresses(cluster, rank, fabric)
    indexes = {hca: roce_v2_index(fabric, hca, address) for hca, address in on.items()}
    return {hca: gid for hca, gid in indexes.items() if hca in active and gid is not None}


def fabric_facts(cluster: Cluster, rank: int, fabric: Fabric) -> FabricFacts:
    """What rendering needs from the fabric that was found on this rank's host.

    Of its RDMA devices those that can carry it; where none can, all: what is wrong with them is
    said before a launch (operations/launch/rdma.py).
    """
    node = cluster.nodes[rank]
    able = usable(cluster, rank, fabric)
    return FabricFacts(
        interface=cluster.device(node),
        address=node.fabric_address,
        cidr=str(cluster.fabric_range),
        hcas=tuple(able or hca_addresses(cluster, rank, fabric)),
        gid_indexes=able,
    )


def unlike(cluster: Cluster, fabrics: Sequence[Fabric]) -> Iterator[str]:
    """RDMA devices that one host has on a rail and another one lacks: NCCL would hang on them."""
    told, counts = [], set()
    for node, fabric in zip(cluster.nodes, fabrics, strict=True):
        able = usable(cluster, node.rank, fabric)
        on = hca_addresses(cluster, node.rank, fabric)
        rails = [address for _, address in cluster.rails(node)]
        counts.add(tuple([on[hca] for hca in able].count(address) for address in rails))
        told.append(f"{node.name} {' '.join(able) or 'none'}")
    if len(counts) > 1:
        yield (
            f"the RDMA devices that can carry the fabric differ ({', '.join(told)}), as many on "
            "each rail of every host expected; see `rdma link` and `ibv_devinfo` there"
        )

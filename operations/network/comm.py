"""How the ranks will find each other: what forbids a launch, what is only worth saying. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from facts.network.fabric import Fabric
from inventory.schema import Cluster, Node
from operations.network.gids import fabric_facts
from stacks.render import RankSpec

SOCKET_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
# Modes 1, 2 and 4: in another one a card leaves RoCE LAG (docs.nvidia.com/networking, MLNX_OFED,
# RDMA over Converged Ethernet; mlx5's lag.c takes active-backup and hash alone).
RDMA_MODES = ("active-backup", "balance-xor", "802.3ad")
# rocep1s0f0 and roceP2p1s0f0 are two PCIe functions of one QSFP cage of a Spark.
TWINS = re.compile(r"roce(?:P\d+)?(p\d+s\d+.*)")


def socket_faults(cluster: Cluster, spec: RankSpec, fabric: Fabric) -> Iterator[str]:
    """Interfaces in the environment that this host will not have, or without an IPv4 address."""
    for name in SOCKET_VARIABLES:
        interface = spec.env.get(name)
        if not interface or interface == cluster.device(cluster.nodes[spec.rank]):
            continue  # empty is said elsewhere; the fabric's own is converged before the launch
        link = fabric.links.get(interface)
        if link is None:
            yield f"{spec.host}: {name}={interface} found; this host has no such interface"
        elif not link.addresses:
            yield f"{spec.host}: {name}={interface} found; that interface has no IPv4 address"


def unused_twins(cluster: Cluster, node: Node, fabric: Fabric) -> dict[str, str]:
    """{RDMA device that is up and not used: the used one on the same cable}."""
    used = fabric_facts(cluster, node.rank, fabric).hcas
    places = {match[1]: hca for hca in used if (match := TWINS.fullmatch(hca))}
    return {
        hca.name: places[match[1]]
        for hca in fabric.hcas
        if hca.name not in used and hca.state == "ACTIVE"
        if (match := TWINS.fullmatch(hca.name)) and match[1] in places
    }


def twin_advice(cluster: Cluster, node: Node, fabric: Fabric) -> Iterator[str]:
    for twin, used in unused_twins(cluster, node, fabric).items():
        yield (
            f"{node.name}: {twin} is up on the cable of {used} but not in NCCL_IB_HCA, and one "
            "function carries about half of what the cable can; mode dual-rail with the "
            "interfaces of both uses both"
        )


def name_advice(spec: RankSpec, fabric: Fabric) -> Iterator[str]:
    """The host's own name on 127.0.1.1 misleads who asks for it: gloo without an interface."""
    name = fabric.hostname.split(".")[0]
    if name not in fabric.loopback_names or not spec.create_argv:
        return
    asks = [word for word in (*spec.command, *spec.env.values()) if name in re.split(r"\W", word)]
    if asks or "GLOO_SOCKET_IFNAME" not in spec.env:
        yield (
            f"{spec.host}: /etc/hosts puts {name} on 127.*, and {spec.stack} "
            f"{'names it (' + asks[0] + ')' if asks else 'lets gloo ask for it'}; the other ranks "
            "would be sent to themselves: give it its fabric address there"
        )


def bond_advice(cluster: Cluster, node: Node, fabric: Fabric) -> Iterator[str]:
    """Bond modes in which a card's ports stay RDMA devices of their own."""
    mode = cluster.fabric.bond_mode
    if cluster.fabric.mode == "bond" and mode not in RDMA_MODES and fabric.hcas:
        yield (
            f"{node.name}: bond_mode {mode} found; RDMA can use a bond in {', '.join(RDMA_MODES)} "
            "alone (NVIDIA MLNX_OFED documentation, RDMA over Converged Ethernet, RoCE LAG)"
        )

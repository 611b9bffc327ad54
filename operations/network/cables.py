"""How the cables run between the hosts, as far as carriers, addresses and MTUs tell. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence

from facts.network.fabric import Fabric, Link
from inventory.schema import Cluster, Node
from operations.network.judge import case, unfit, usable

Hosts = Sequence[tuple[Node, Fabric]]


def carrier_of(address: str, fabric: Fabric) -> Link | None:
    """The link that holds an IPv4 address now, whatever the owner's file wants."""
    held = (
        link
        for link in fabric.links.values()
        if any(each.split("/")[0] == address for each in link.addresses)
    )
    return next(held, None)


def ends(cluster: Cluster, fabrics: Sequence[Fabric]) -> Iterator[list[Link | None]]:
    """For each cable of the owner's file its ends in rank order, None for a port that is absent."""
    for names in zip(*(cluster.interfaces(node) for node in cluster.nodes), strict=True):
        yield [fabric.links.get(name) for name, fabric in zip(names, fabrics, strict=False)]


def bare(link: Link | None) -> bool:
    """Is a port up and without a cable? Of one that is not up nothing is known."""
    return link is not None and link.up and not link.carrier


def advice(cluster: Cluster, fabrics: Sequence[Fabric]) -> Iterator[str]:
    """Ports that have no cable on any host."""
    cables = list(ends(cluster, fabrics))
    without = [one for one in cables if all(map(bare, one))]
    rest = [one for one in cables if one not in without]
    if cluster.fabric.mode != "single" and without and len(rest) == 1:
        names = ", ".join(dict.fromkeys(link.name for one in without for link in one if link))
        left = dict.fromkeys(link.name for link in rest[0] if link)
        yield (
            f"no cable in {names} on any host: with one cable, mode single with "
            f"interfaces [{', '.join(left)}] is recommended"
        )


def networks(link: Link | None) -> set[ipaddress.IPv4Network]:
    held = filter(usable, link.addresses) if link else ()
    return {ipaddress.IPv4Interface(address).network for address in held}


def beside(fabric: Fabric, name: str) -> list[Link]:
    """The other ports of the card that a port is of: enp1s0f1np1 beside enp1s0f0np0."""
    card = re.sub(r"f\d+(np?\d+)?$", "", name)
    return [
        link
        for link in fabric.links.values()
        if link.name.startswith(f"{card}f") and link.name != name and not link.kind
    ]


def crossed(cluster: Cluster, fabrics: Sequence[Fabric]) -> Iterator[str]:
    """Ports that the owner's file joins though the cable leads elsewhere. Nothing of hosts whose
    fabric is as wanted."""
    hosts = list(zip(cluster.nodes, fabrics, strict=True))
    if any(unfit(case(cluster, node, fabric)) for node, fabric in hosts):
        yield from _by_subnet(cluster, hosts)
        yield from (_by_plugs if cluster.fabric.mode == "bond" else _by_carrier)(cluster, hosts)


def _by_subnet(cluster: Cluster, hosts: Hosts) -> Iterator[str]:
    """The subnet of a head's port is on another port of the other host."""
    for first, *rest in ends(cluster, [fabric for _, fabric in hosts]):
        for (node, fabric), link in zip(hosts[1:], rest, strict=True):
            if first is None or link is None:
                continue
            for net in sorted(networks(first) - networks(link)):
                for other in (o for o in beside(fabric, link.name) if net in networks(o)):
                    yield _told(f"{net} is on", cluster.head.name, first, node.name, other)


def _by_plugs(cluster: Cluster, hosts: Hosts) -> Iterator[str]:
    """There is one cable, and it is in ports of different places."""
    cables = list(ends(cluster, [fabric for _, fabric in hosts]))
    used = [
        [link for one in cables if (link := one[rank]) and not bare(link)]
        for rank in range(len(hosts))
    ]
    if any(len(found) != 1 for found in used) or any(not any(map(bare, one)) for one in cables):
        return
    for (node, _), (link,) in zip(hosts[1:], used[1:], strict=True):
        yield _told("the only cable is in", cluster.head.name, used[0][0], node.name, link)


def _by_carrier(cluster: Cluster, hosts: Hosts) -> Iterator[str]:
    """The cable is in another port than the one that is named."""
    for one in ends(cluster, [fabric for _, fabric in hosts]):
        for (node, fabric), link in zip(hosts, one, strict=True):
            if link is None or not bare(link):
                continue
            for other in beside(fabric, link.name):
                if other.up and other.carrier and other.name not in cluster.interfaces(node):
                    yield (
                        f"{node.name}: no cable in {link.name}, but one in {other.name}; plug it "
                        f"over, or give that host interfaces with {other.name} in its place"
                    )


def _told(sign: str, host: str, link: Link, other_host: str, other: Link) -> str:
    return (
        f"{sign} {link.name} of {host} and on {other.name} of {other_host}: a cable that joins "
        "other ports than fabric.interfaces does; name them in one place (interfaces at a host "
        "where they differ), and bond no ports that lead to different hosts (mode: single)"
    )


def uneven(cluster: Cluster, fabrics: Sequence[Fabric]) -> Iterator[str]:
    """Why full frames would not pass on a fabric that the job leaves as it is."""
    found: dict[str, Link] = {}
    for node, fabric in zip(cluster.nodes, fabrics, strict=True):
        for _, address in cluster.rails(node):
            link = carrier_of(address, fabric)
            if link is None:
                yield (
                    f"{node.name}: no link holds {address}, its fabric address in the owner's "
                    "file; bring the link up (deploys/prepare.py does while nothing runs)"
                )
                continue
            found[f"{node.name} {link.name}"] = link
            for member in fabric.links.values():
                if member.master == link.name and member.mtu != link.mtu:
                    found[f"{node.name} {member.name}"] = member
    if len({link.mtu for link in found.values()}) > 1:
        told = ", ".join(f"{where} {link.mtu}" for where, link in found.items())
        yield (
            f"the MTUs of the fabric differ ({told}), the same everywhere expected, and this job "
            "leaves the fabric as it is: stop the engines (deploys/stop.py), then "
            "deploys/prepare.py sets them"
        )

"""How the cables run: what is refused before any engine goes down for it."""

from __future__ import annotations

from typing import Any

import pytest

from facts.network.fabric import Fabric
from inventory.schema import Cluster
from operations.network.cables import crossed, uneven
from operations.network.netplan import PATH, document
from operations.network.wanted import wanted
from tests.plan.made_pair import PORTS, bond_text, cluster, cluster_data, file_of, link
from tests.unit.network.test_netplan import converged

P0, P1 = PORTS
PAIR = cluster()
SINGLE = cluster(fabric={"mode": "single", "interfaces": [P0]})


def wired(*ports: Any) -> Fabric:
    """A host that is not converged, with links at P0 and P1."""
    links = dict(zip(PORTS, ports, strict=True))
    return converged(interfaces=links, bonds={}, netplan={})


def free(*addresses: str, **changes: Any) -> dict[str, Any]:
    return link(9000, *addresses, **changes)


BARE = free(carrier=False)


@pytest.mark.parametrize(
    ("made", "head", "worker", "said"),
    [
        (  # a ring, and two cables that cross
            PAIR,
            wired(free("10.1.1.1/24"), free("10.1.2.1/24")),
            wired(free("10.1.3.2/24"), free("10.1.1.2/24")),
            f"10.1.1.0/24 is on {P0} of spark1 and on {P1} of spark2: a cable that joins other",
        ),
        (
            SINGLE,
            wired(free("10.1.1.1/24"), free()),
            wired(free(), free("10.1.1.2/24")),
            f"10.1.1.0/24 is on {P0} of spark1 and on {P1} of spark2: a cable that joins other",
        ),
        (
            PAIR,
            wired(free(), BARE),
            wired(BARE, free()),
            f"the only cable is in {P0} of spark1 and on {P1} of spark2",
        ),
        (
            SINGLE,
            wired(free(), BARE),
            wired(BARE, free()),
            f"spark2: no cable in {P0}, but one in {P1}; plug it over",
        ),
        (PAIR, wired(free(), free()), wired(free(), free()), None),
        (PAIR, wired(free("10.1.1.1/24"), free()), wired(free("10.1.1.2/24"), free()), None),
        (PAIR, wired(free(), BARE), wired(free(), BARE), None),
        (SINGLE, wired(free(), BARE), wired(free(up=False, carrier=False), free()), None),
    ],
)
def test_a_cable_that_leads_elsewhere_is_named(
    made: Cluster, head: Fabric, worker: Fabric, said: str | None
) -> None:
    found = list(crossed(made, [head, worker]))
    assert [line[: len(said or "")] for line in found] == ([said] if said else [])


def test_names_of_a_host_follow_its_cable() -> None:
    data = cluster_data(fabric={"mode": "single", "interfaces": [P0]})
    data["workers"][0]["interfaces"] = [P1]
    made = Cluster.model_validate(data)
    assert made.rails(made.nodes[1]) == [(P1, "192.168.100.2")]
    hosts = [wired(free("10.1.1.1/24"), BARE), wired(BARE, free("10.1.1.2/24"))]
    assert list(crossed(made, hosts)) == []


def as_wanted(rank: int, carries: str) -> Fabric:
    """A converged host whose bond has a cable in one member only."""
    node = PAIR.nodes[rank]
    links = {"bond0": link(9000, f"{node.fabric_address}/24", kind="bond")}
    links |= {port: link(9000, master="bond0", carrier=port == carries) for port in PORTS}
    members = {port: "up" if port == carries else "down" for port in PORTS}
    return converged(
        interfaces=links,
        bonds={"bond0": bond_text(members, active=carries)},
        netplan={PATH: file_of(document(wanted(PAIR, node)))},
    )


def test_nothing_is_said_of_a_fabric_that_is_as_wanted() -> None:
    assert list(crossed(PAIR, [as_wanted(0, P0), as_wanted(1, P1)])) == []
    assert len(list(crossed(PAIR, [as_wanted(0, P0), wired(BARE, free())]))) == 1


def bonded(address: str, mtu: int, *members: int) -> Fabric:
    links = {"bond0": link(mtu, address, kind="bond")}
    ports = zip(PORTS, members, strict=True)
    return converged(interfaces=links | {p: link(m, master="bond0") for p, m in ports})


@pytest.mark.parametrize(
    ("worker", "told"),
    [
        (bonded("192.168.100.2/24", 9000, 9000, 9000), None),
        (bonded("192.168.100.2/24", 1500, 1500, 1500), "spark1 bond0 9000, spark2 bond0 1500"),
        (
            bonded("192.168.100.2/24", 9000, 9000, 1500),
            f"spark1 bond0 9000, spark2 bond0 9000, spark2 {P1} 1500",
        ),
        (wired(link(1500, "192.168.100.2/24"), BARE), f"spark1 bond0 9000, spark2 {P0} 1500"),
    ],
)
def test_mtus_that_differ_are_told_before_a_job_that_leaves_them(
    worker: Fabric, told: str | None
) -> None:
    head = bonded("192.168.100.1/24", 9000, 9000, 9000)
    said = list(uneven(PAIR, [head, worker]))
    assert [f"({told})" in line for line in said] == [True] * bool(told)


def test_a_host_without_its_fabric_address_is_told_too() -> None:
    head = bonded("192.168.100.1/24", 9000, 9000, 9000)
    (said,) = uneven(PAIR, [head, wired(BARE, BARE)])
    assert said.startswith("spark2: no link holds 192.168.100.2, ")

"""How the ranks find each other: refusals and advice of the preflight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from facts.network.fabric import Fabric
from operations.network.cables import advice as cable_advice
from operations.network.comm import (
    bond_advice,
    name_advice,
    socket_faults,
    twin_advice,
    unused_twins,
)
from stacks.render import FabricFacts, RankSpec, rank_spec
from tests.plan.made_pair import PORTS, cluster, link, roce
from tests.unit.network.test_netplan import DUAL, converged, interfaces
from tests.unit.stacks.test_stacks_render import LAB

PAIR = cluster()
HEAD = PAIR.head


def spec(**env: str) -> RankSpec:
    facts = FabricFacts("bond0", HEAD.fabric_address, "192.168.100.0/24", (), {})
    made = rank_spec(LAB, PAIR, 0, facts)
    return replace(made, env={**made.env, **env})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("eth7", ["spark1: GLOO_SOCKET_IFNAME=eth7 found; this host has no such interface"]),
        (
            PORTS[0],
            [f"spark1: GLOO_SOCKET_IFNAME={PORTS[0]} found; that interface has no IPv4 address"],
        ),
        ("enP7s7", []),
        ("bond0", []),
    ],
)
def test_d09_gloo_needs_an_interface_that_is_there_with_an_address(
    name: str, said: list[str]
) -> None:
    assert list(socket_faults(PAIR, spec(GLOO_SOCKET_IFNAME=name), converged())) == said


def test_d09_the_fabrics_device_may_still_have_to_be_made() -> None:
    assert list(socket_faults(PAIR, spec(), interfaces(bond0=None))) == []


def named(**changes: Any) -> Fabric:
    return converged(hostname="spark1.example", loopback_names=["spark1", "x"], **changes)


def test_d09_the_own_name_on_the_loopback_is_told_where_it_will_be_asked_for() -> None:
    bare = replace(spec(), env={})
    (said,) = name_advice(bare, named())
    assert said.startswith("spark1: /etc/hosts puts spark1 on 127.*, and lab lets gloo ask for it")
    assert list(name_advice(spec(), named())) == []
    assert "names it (tcp://spark1:1)" in next(name_advice(spec(A="tcp://spark1:1"), named()))
    assert list(name_advice(bare, converged(hostname="spark1"))) == []


def twins(state: str = "4: ACTIVE") -> dict[str, Any]:
    """The two functions of one cage and a port of another one, as a Spark has them."""
    twin = roce("10.7.7.7", "enP2p1s0f0np0") | {"state": state}
    return {
        "rocep1s0f0": roce(HEAD.fabric_address, "bond0"),
        "roceP2p1s0f0": twin,
        "rocep1s0f1": roce("10.7.7.8", "other"),
    }


def test_d07_a_twin_that_is_up_and_not_listed_is_told() -> None:
    fabric = converged(rdma=twins())
    assert unused_twins(PAIR, HEAD, fabric) == {"roceP2p1s0f0": "rocep1s0f0"}
    (said,) = twin_advice(PAIR, HEAD, fabric)
    assert list(twin_advice(PAIR, PAIR.nodes[1], converged())) == []
    assert said.startswith("spark1: roceP2p1s0f0 is up on the cable of rocep1s0f0 but not in NCCL")
    assert unused_twins(PAIR, HEAD, converged(rdma=twins("1: DOWN"))) == {}


def test_d07_twins_that_are_both_rails_are_both_used() -> None:
    both = {
        "rocep1s0f0": roce("192.168.100.1", PORTS[0]),
        "roceP2p1s0f0": roce("192.168.101.1", PORTS[1]),
    }
    assert unused_twins(DUAL, DUAL.head, converged(rdma=both)) == {}


def test_one_cable_on_both_hosts_is_told_with_the_mode_for_it() -> None:
    one = interfaces(**{PORTS[1]: link(9000, carrier=False)})
    off = interfaces(**{PORTS[1]: link(9000, carrier=False, up=False)})
    said = (
        "no cable in enp1s0f1np1 on any host: with one cable, mode single with interfaces "
        "[enp1s0f0np0] is recommended"
    )
    assert list(cable_advice(PAIR, [one, one])) == [said]
    assert list(cable_advice(DUAL, [one, one])) == [said]
    assert list(cable_advice(PAIR, [one, converged()])) == []
    assert list(cable_advice(PAIR, [one, off])) == []
    single = cluster(fabric={"mode": "single", "interfaces": [PORTS[1]]})
    assert list(cable_advice(single, [one, one])) == []


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("balance-rr", True),
        ("balance-tlb", True),
        ("balance-alb", True),
        ("active-backup", False),
        ("balance-xor", False),
        ("802.3ad", False),
    ],
)
def test_bond_modes_that_rdma_cannot_use_are_advised_against(mode: str, told: bool) -> None:
    made = cluster(fabric={"interfaces": list(PORTS), "bond_mode": mode})
    said = list(bond_advice(made, made.head, converged(rdma=twins())))
    assert [f"bond_mode {mode} found" in line for line in said] == [True] * told
    assert list(bond_advice(made, made.head, converged())) == []

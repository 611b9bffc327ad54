"""The fabric: our netplan file, what stands in its way, and how the live state differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from facts.network.fabric import Fabric, NetplanFile, parse
from inventory.schema import Cluster, Node
from operations.network import fabric as trial
from operations.network import judge, netplan, obstacles
from operations.network.netplan import PATH, devices_in, lines_to_move
from operations.network.wanted import wanted
from tests.plan.made_pair import PORTS, bond_text, cluster, file_of, link

PAIR = cluster()
HEAD = PAIR.nodes[0]
ADDRESS = "192.168.100.1/24"
TOPS = ("run", "etc")

MIXED = """\
network:
  version: 2
  ethernets:
    enP7s7:
      dhcp4: true
    enp1s0f0np0:
      addresses: [192.168.100.1/24]
      mtu: 9000
    # the second cable
    enp1s0f1np1: {mtu: 9000}
    eth9:
      dhcp4: false
"""


def document(cluster: Cluster, node: Node) -> str:
    return netplan.document(wanted(cluster, node))


def complaints(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    return obstacles.complaints(judge.case(cluster, node, fabric))


def live_faults(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    return judge.live_faults(judge.case(cluster, node, fabric))


def why_not_converged(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    return judge.why_not_converged(judge.case(cluster, node, fabric))


def trial_plan(cluster: Cluster, node: Node, fabric: Fabric) -> dict[str, Any]:
    return trial.trial_plan(judge.case(cluster, node, fabric))


def advice(cluster: Cluster, node: Node, fabric: Fabric) -> list[str]:
    return judge.advice(judge.case(cluster, node, fabric))


def volatile(cluster: Cluster, fabric: Fabric) -> list[str]:
    return judge.volatile(judge.case(cluster, cluster.head, fabric))


def replaced(text: str, path: str = "/etc/netplan/50-x.yaml") -> list[str]:
    """Which file of that name and text a converged head's own would take the place of."""
    return judge.case(PAIR, HEAD, converged(netplan={path: file_of(text)})).replaced


def converged(**changes: Any) -> Fabric:
    """The fabric of a converged head, with sections changed."""
    section = {
        "interfaces": {
            "enP7s7": link(1500, "10.0.2.11/24"),
            "bond0": link(9000, ADDRESS, kind="bond"),
            **{port: link(9000, master="bond0") for port in PORTS},
        },
        "bonds": {"bond0": bond_text(dict.fromkeys(PORTS, "up"))},
        "netplan": {PATH: file_of(document(PAIR, HEAD))},
        "rdma": {},
        "default_interfaces": ["enP7s7"],
    }
    return parse(section | changes)


def interfaces(**changes: dict[str, Any] | None) -> Fabric:
    """Links of the converged head, some changed or (None) taken away."""
    links = {name: vars(found) for name, found in converged().links.items()} | changes
    return converged(interfaces={name: found for name, found in links.items() if found})


def test_the_bond_document_has_no_global_key_and_everything_optional() -> None:
    network = yaml.safe_load(document(PAIR, HEAD))["network"]
    assert set(network) == {"version", "ethernets", "bonds"}
    assert set(network["ethernets"]) == set(PORTS)
    bond = network["bonds"]["bond0"]
    for device in (*network["ethernets"].values(), bond):
        assert (device["renderer"], device["mtu"], device["optional"]) == ("networkd", 9000, True)
        assert (device["dhcp4"], device["dhcp6"], device["link-local"]) == (False, False, [])
    assert bond["addresses"] == [ADDRESS]
    assert bond["interfaces"] == list(PORTS)
    assert bond["parameters"] == {
        "mode": "active-backup",
        "mii-monitor-interval": 100,
        "primary": PORTS[0],
    }
    assert "addresses" not in network["ethernets"][PORTS[0]]


def test_each_host_gets_its_own_address_and_the_owners_values() -> None:
    made = cluster(
        3, fabric={"interfaces": list(PORTS), "mtu": 1500, "prefix": 16, "bond_mode": "balance-xor"}
    )
    texts = [
        yaml.safe_load(document(made, node))["network"]["bonds"]["bond0"] for node in made.nodes
    ]
    assert [t["addresses"] for t in texts] == [[f"192.168.100.{n}/16"] for n in (1, 2, 3)]
    assert {t["parameters"]["mode"] for t in texts} == {"balance-xor"}
    assert {t["mtu"] for t in texts} == {1500}


def test_a_single_cable_has_no_bond() -> None:
    made = cluster(fabric={"mode": "single", "interfaces": [PORTS[0]]})
    network = yaml.safe_load(document(made, made.nodes[1]))["network"]
    assert set(network) == {"version", "ethernets"}
    assert network["ethernets"][PORTS[0]]["addresses"] == ["192.168.100.2/24"]


def test_no_anchors_in_the_document() -> None:
    assert "&id" not in document(PAIR, HEAD)


def test_devices_of_every_section_are_seen() -> None:
    text = "network: {bonds: {b: {}}, wifis: {w: {}}, vlans: {v.1: {}}, ethernets: {e: {}}}"
    assert devices_in(text) == {"b", "w", "v.1", "e"}
    assert devices_in("network: {version: 2}") == set()
    assert devices_in("") == set()


@pytest.mark.parametrize(
    "text",
    [
        "network: [",
        "- a\n- b",
        "just text",
        "network: 5",
        "network: {ethernets: 5}",
        "network: {version: 2, x: 2026-13-45}",
        "network: {ethernets: {? [a, b] : {}}}",
        "\t\x00",
    ],
)
def test_no_readable_netplan_is_said_and_never_raises(text: str) -> None:
    assert devices_in(text) is None
    fabric = converged(netplan={"/etc/netplan/50-x.yaml": file_of(text)})
    assert complaints(PAIR, HEAD, fabric) == [
        "spark1: /etc/netplan/50-x.yaml is no readable netplan file: mend it first"
    ]


def test_only_the_owners_files_of_fabric_devices_alone_are_replaced() -> None:
    fabric_only = "network: {ethernets: {enp1s0f0np0: {}}, bonds: {bond0: {}}}"
    assert replaced(fabric_only) == ["50-x.yaml"]
    assert replaced(fabric_only, "/run/netplan/50-x.yaml") == []
    assert replaced(fabric_only, PATH) == []
    assert replaced(MIXED) == []
    assert replaced("network: {version: 2}") == []
    assert replaced("network: {ethernets: {eth9: {}}}") == []
    assert replaced("network: [") == []


def test_a_mixed_file_is_refused_with_exactly_the_lines_to_move() -> None:
    lines = lines_to_move(MIXED, set(PORTS))
    assert lines == [
        "6:     enp1s0f0np0:",
        "7:       addresses: [192.168.100.1/24]",
        "8:       mtu: 9000",
        "10:     enp1s0f1np1: {mtu: 9000}",
    ]
    fabric = converged(netplan={"/etc/netplan/50-x.yaml": file_of(MIXED)})
    (said,) = complaints(PAIR, HEAD, fabric)
    assert said.startswith(
        "spark1: /etc/netplan/50-x.yaml defines enp1s0f0np0, enp1s0f1np1 beside enP7s7, eth9; "
        "move these lines"
    )
    for line in lines:
        assert line in said


def test_the_last_device_of_a_mixed_file_is_given_to_its_end() -> None:
    text = "network:\n  ethernets:\n    enP7s7: {}\n  bonds:\n    bond0:\n      mtu: 9000\n"
    assert lines_to_move(text, {"bond0"}) == ["5:     bond0:", "6:       mtu: 9000"]
    assert lines_to_move(text.rstrip("\n"), {"bond0"})[-1] == "6:       mtu: 9000"
    assert lines_to_move("network: {ethernets: {enp1s0f0np0: {}, a: {}}}", {"enp1s0f0np0"}) == [
        "1: network: {ethernets: {enp1s0f0np0: {}, a: {}}}"
    ]
    assert lines_to_move("network:\n  ethernets:\n    bond0:\n    a: {}\n", {"bond0"}) == [
        "3:     bond0:"
    ]


def test_mixed_files_outside_etc_are_not_ours_to_mend() -> None:
    assert complaints(PAIR, HEAD, converged(netplan={"/run/netplan/a.yaml": file_of(MIXED)})) == []


def test_d11_an_altname_leads_to_the_name_that_exists() -> None:
    renamed = link(1500, altnames=[PORTS[0]])
    fabric = interfaces(**{PORTS[0]: None, "enp1s0f0": renamed})
    assert complaints(PAIR, HEAD, fabric) == [
        "spark1: fabric interface enp1s0f0np0 is absent; the host has enp1s0f0: put that name "
        "in fabric.interfaces"
    ]


@pytest.mark.parametrize(
    ("asked", "there"), [("enp1s0f0", "enp1s0f0np0"), ("enp1s0f0np0", "enp1s0f0")]
)
def test_d11_a_lost_or_new_suffix_is_seen_without_altnames(asked: str, there: str) -> None:
    made = cluster(fabric={"mode": "single", "interfaces": [asked]})
    (said,) = complaints(made, made.nodes[0], converged(interfaces={there: link()}))
    assert f"the host has {there}: put that name" in said


def test_an_interface_that_is_nowhere_is_said_plainly() -> None:
    (said,) = complaints(PAIR, HEAD, interfaces(**{PORTS[1]: None}))
    assert "enp1s0f1np1 is absent" in said
    assert "ip link" in said
    assert "put that name" not in said


@pytest.mark.parametrize("device", ["bond0", PORTS[0]])
def test_a_default_route_over_the_fabric_is_refused(device: str) -> None:
    (said,) = complaints(PAIR, HEAD, converged(default_interfaces=["enP7s7", device]))
    assert f"the default route goes over the fabric ({device})" in said


def test_all_complaints_come_at_once() -> None:
    fabric = converged(
        interfaces={PORTS[0]: link()},
        netplan={"/etc/netplan/a.yaml": file_of(MIXED), "/etc/netplan/b.yaml": file_of("- x")},
        default_interfaces=[PORTS[0]],
    )
    assert len(complaints(PAIR, HEAD, fabric)) == 4


def test_a_converged_host_has_no_faults() -> None:
    assert why_not_converged(PAIR, HEAD, converged()) == []
    assert complaints(PAIR, HEAD, converged()) == []


@pytest.mark.parametrize(
    ("fabric", "said"),
    [
        (converged(bonds={}), ["bond0 does not exist"]),
        (
            converged(bonds={"bond0": bond_text({PORTS[0]: "up"})}),
            ["bond0 lacks enp1s0f1np1"],
        ),
        (
            interfaces(bond0=link(1500, ADDRESS)),
            ["bond0 has MTU 1500, 9000 wanted"],
        ),
        (
            interfaces(**{PORTS[1]: link(1500, master="bond0")}),
            ["enp1s0f1np1 has MTU 1500, 9000 wanted"],
        ),
        (interfaces(bond0=link(9000)), ["bond0 lacks 192.168.100.1/24"]),
        (
            interfaces(bond0=link(9000, "192.168.100.1/16")),
            ["bond0 lacks 192.168.100.1/24"],
        ),
        (
            interfaces(**{PORTS[0]: link(9000, ADDRESS)}),
            ["enp1s0f0np0 still has 192.168.100.1/24"],
        ),
        (interfaces(**{PORTS[1]: None}), ["enp1s0f1np1 does not exist"]),
    ],
)
def test_each_drift_of_the_live_state_is_named(fabric: Fabric, said: list[str]) -> None:
    assert live_faults(PAIR, HEAD, fabric) == said


def test_d13_a_bond_in_another_mode_is_a_fault_and_is_made_anew() -> None:
    wrong = converged(
        bonds={"bond0": bond_text(dict.fromkeys(PORTS, "up"), "load balancing (round-robin)")}
    )
    assert live_faults(PAIR, HEAD, wrong) == ["bond0 is in mode balance-rr, active-backup wanted"]
    assert trial_plan(PAIR, HEAD, wrong)["delete_links"] == ["bond0"]
    assert trial_plan(PAIR, HEAD, wrong)["created_links"] == []
    assert trial_plan(PAIR, HEAD, converged())["delete_links"] == []


def test_a_bond_that_the_trial_makes_goes_with_it() -> None:
    plan = trial_plan(PAIR, HEAD, converged(bonds={}))
    assert (plan["delete_links"], plan["created_links"]) == ([], ["bond0"])
    assert plan["files"] == {"60-spark-converge.yaml": document(PAIR, HEAD)}


def test_a_bond_goes_when_a_single_cable_is_wanted() -> None:
    single = cluster(fabric={"mode": "single", "interfaces": [PORTS[0]]})
    plan = trial_plan(single, single.nodes[0], converged())
    assert (plan["delete_links"], plan["created_links"]) == (["bond0"], [])


def test_a_member_that_is_still_enslaved_is_no_single_cable() -> None:
    single = cluster(fabric={"mode": "single", "interfaces": [PORTS[0]]})
    enslaved = interfaces(bond0=link(9000), **{PORTS[0]: link(9000, ADDRESS, master="bond0")})
    assert live_faults(single, single.nodes[0], enslaved) == [
        "bond0 still exists",
        "enp1s0f0np0 is a member of bond0",
    ]


def test_files_count_too_but_only_for_convergence() -> None:
    playbook = "network: {ethernets: {enp1s0f0np0: {addresses: [192.168.100.1/24]}}}"
    files = {"/etc/netplan/40-cx7.yaml": file_of(playbook)}
    fabric = converged(netplan=files)
    assert live_faults(PAIR, HEAD, fabric) == []
    assert why_not_converged(PAIR, HEAD, fabric) == [
        f"{PATH} is absent",
        "/etc/netplan/40-cx7.yaml defines fabric devices too",
    ]
    assert trial_plan(PAIR, HEAD, fabric)["shadow"] == ["40-cx7.yaml"]


def test_our_own_file_must_be_the_text_and_closed_to_others() -> None:
    other = document(PAIR, PAIR.nodes[1])
    assert why_not_converged(PAIR, HEAD, converged(netplan={PATH: file_of(other)})) == [
        f"{PATH} is not as wanted"
    ]
    open_file = {PATH: file_of(document(PAIR, HEAD), 0o644)}
    assert why_not_converged(PAIR, HEAD, converged(netplan=open_file)) == [
        f"{PATH} has mode 644, 600 wanted"
    ]


OWN = document(PAIR, HEAD)


@pytest.mark.parametrize(
    ("text", "mode", "cosmetic"),
    [
        (OWN, 0o644, True),
        (OWN, 0o640, True),
        (OWN + "# a note of the owner's\n", 0o600, True),
        (OWN.replace("renderer: networkd", 'renderer: "networkd"') + "\n\n", 0o644, True),
        (OWN.split("\n", 1)[1], 0o600, True),
        (OWN.replace("mtu: 9000", "mtu: 1500"), 0o600, False),
        (OWN.replace("version: 2", "version: 2\n  renderer: networkd"), 0o600, False),
        ("network: [", 0o600, False),
        (OWN, 0o600, False),
    ],
)
def test_what_netplan_reads_alike_never_counts_against_a_running_pair(
    text: str, mode: int, cosmetic: bool
) -> None:
    now = judge.case(PAIR, HEAD, converged(netplan={PATH: file_of(text, mode)}))
    assert judge.cosmetic(now) is cosmetic
    assert judge.unfit(now) == ([] if cosmetic else judge.why_not_converged(now))
    assert bool(judge.why_not_converged(now)) is ((text, mode) != (OWN, 0o600))


def test_a_cosmetic_difference_beside_a_real_one_is_no_longer_cosmetic() -> None:
    open_file = {PATH: file_of(OWN, 0o644)}
    assert not judge.cosmetic(judge.case(PAIR, HEAD, converged(netplan=open_file, bonds={})))
    second = open_file | {"/etc/netplan/50-x.yaml": file_of(OWN)}
    assert not judge.cosmetic(judge.case(PAIR, HEAD, converged(netplan=second)))


def bond(**told: Any) -> Fabric:
    """The converged head with another /proc/net/bonding/bond0."""
    return converged(bonds={"bond0": bond_text(dict.fromkeys(PORTS, "up"), **told)})


def test_both_ends_of_the_cables_must_send_on_the_same_one() -> None:
    assert live_faults(PAIR, HEAD, bond(primary="None")) == [
        f"bond0 has primary none, {PORTS[0]} wanted"
    ]
    assert live_faults(PAIR, HEAD, bond(active=PORTS[1])) == [
        f"bond0 sends on {PORTS[1]} though {PORTS[0]} is up"
    ]


def test_a_mode_that_sends_on_all_members_has_no_primary() -> None:
    made = cluster(2, fabric={"interfaces": list(PORTS), "bond_mode": "balance-xor"})
    network = yaml.safe_load(document(made, made.head))["network"]
    assert "primary" not in network["bonds"]["bond0"]["parameters"]


XOR = {"interfaces": list(PORTS), "bond_mode": "balance-xor"}
HASHED = cluster(fabric=XOR | {"transmit_hash_policy": "layer3+4"})


def hashing(policy: str, own: Cluster | None) -> Fabric:
    """The head with a bond that hashes; own: the owner's file that our document was made of."""
    netplan = {PATH: file_of(document(own, own.head))} if own else {}
    members = dict.fromkeys(PORTS, "up")
    text = bond_text(members, "load balancing (xor)", "None", hash_policy=policy)
    return converged(bonds={"bond0": text}, netplan=netplan)


def test_a_bond_hashes_as_the_owners_file_says() -> None:
    network = yaml.safe_load(document(HASHED, HASHED.head))["network"]
    assert network["bonds"]["bond0"]["parameters"]["transmit-hash-policy"] == "layer3+4"
    assert why_not_converged(HASHED, HASHED.head, hashing("layer3+4 (1)", HASHED)) == []
    other = hashing("layer2 (0)", HASHED)
    assert live_faults(HASHED, HASHED.head, other) == ["bond0 hashes by layer2, layer3+4 wanted"]
    # networkd before systemd 257 does not change a bond that exists
    assert trial_plan(HASHED, HASHED.head, other)["delete_links"] == ["bond0"]


def test_a_hash_policy_that_is_not_asked_for_any_more_is_the_kernels_again() -> None:
    plain = cluster(fabric=XOR)
    assert live_faults(plain, plain.head, hashing("layer3+4 (1)", plain)) == [
        "bond0 hashes by layer3+4, layer2 wanted"
    ]
    assert live_faults(plain, plain.head, hashing("layer2 (0)", plain)) == []
    assert live_faults(plain, plain.head, hashing("layer3+4 (1)", None)) == [], "somebody else's"


# Two rails

RAILS = cluster(fabric={"mode": "bond", "interfaces": list(PORTS)}).model_dump(mode="json")
for number, entry in enumerate((RAILS["head"], *RAILS["workers"]), start=1):
    entry["rail2_address"] = f"192.168.101.{number}"
RAILS["fabric"]["mode"] = "dual-rail"
DUAL = Cluster.model_validate(RAILS)


def dual(**changes: Any) -> Fabric:
    """A head in mode dual-rail, with sections changed."""
    links = {
        "enP7s7": link(1500, "10.0.2.11/24"),
        PORTS[0]: link(9000, ADDRESS),
        PORTS[1]: link(9000, "192.168.101.1/24"),
    }
    files = {PATH: file_of(document(DUAL, DUAL.head))}
    return converged(**{"interfaces": links, "bonds": {}, "netplan": files} | changes)


def test_each_rail_has_its_own_address_and_no_bond() -> None:
    network = yaml.safe_load(document(DUAL, DUAL.nodes[1]))["network"]
    assert set(network) == {"version", "ethernets"}
    assert [network["ethernets"][port]["addresses"] for port in PORTS] == [
        ["192.168.100.2/24"],
        ["192.168.101.2/24"],
    ]
    assert why_not_converged(DUAL, DUAL.head, dual()) == complaints(DUAL, DUAL.head, dual()) == []


def test_d15_from_a_bond_to_two_rails_the_bond_goes() -> None:
    said = live_faults(DUAL, DUAL.head, converged())
    assert said[:3] == [
        "bond0 still exists",
        f"{PORTS[0]} is a member of bond0",
        f"{PORTS[1]} is a member of bond0",
    ]
    assert f"{PORTS[1]} lacks 192.168.101.1/24" in said
    plan = trial_plan(DUAL, DUAL.head, converged())
    assert (plan["delete_links"], plan["created_links"]) == (["bond0"], [])
    assert plan["devices"] == ["bond0", *PORTS]


def test_d15_the_other_member_of_a_bond_is_freed_and_kept_for_undo() -> None:
    single = cluster(fabric={"mode": "single", "interfaces": [PORTS[0]]})
    assert trial_plan(single, single.head, converged())["devices"] == ["bond0", *PORTS]


def test_a_bond_over_other_ports_is_no_concern_of_two_rails() -> None:
    links = {name: vars(one) for name, one in dual().links.items()}
    links |= {"bond0": link(1500, "10.5.5.1/24", kind="bond"), "eth5": link(master="bond0")}
    there = dual(interfaces=links, bonds={"bond0": bond_text({"eth5": "up"})})
    assert why_not_converged(DUAL, DUAL.head, there) == complaints(DUAL, DUAL.head, there) == []
    plan = trial_plan(DUAL, DUAL.head, there)
    assert (plan["devices"], plan["delete_links"]) == ([*PORTS], [])


def test_rails_that_were_swapped_are_named() -> None:
    swapped = dual(
        interfaces={PORTS[0]: link(9000, "192.168.101.1/24"), PORTS[1]: link(9000, ADDRESS)}
    )
    assert live_faults(DUAL, DUAL.head, swapped) == [
        f"{PORTS[0]} lacks {ADDRESS}",
        f"{PORTS[1]} still has {ADDRESS}",
        f"{PORTS[1]} lacks 192.168.101.1/24",
        f"{PORTS[0]} still has 192.168.101.1/24",
    ]


# Bonds of others

FOREIGN = {"/etc/netplan/50-bond.yaml": file_of(document(PAIR, HEAD))}
REPLACE = cluster(policy={"foreign_bond": "replace"})


def test_a_bond_of_somebody_else_that_is_as_wanted_is_left_alone() -> None:
    there = converged(netplan=FOREIGN)
    assert why_not_converged(PAIR, HEAD, there) == complaints(PAIR, HEAD, there) == []
    assert why_not_converged(REPLACE, HEAD, there) == [
        f"{PATH} is absent",
        "/etc/netplan/50-bond.yaml defines fabric devices too",
    ]


def test_a_bond_of_somebody_else_that_works_is_changed_on_request_only() -> None:
    text = bond_text(dict.fromkeys(PORTS, "up"), "load balancing (round-robin)")
    there = converged(netplan=FOREIGN, bonds={"bond0": text})
    assert complaints(PAIR, HEAD, there) == [
        "spark1: bond0 (balance-rr of enp1s0f0np0, enp1s0f1np1, from /etc/netplan/50-bond.yaml) "
        "works and is not ours, but bond0 is in mode balance-rr, active-backup wanted; put what "
        "it is into the owner's file, or allow the change with policy.foreign_bond: replace"
    ]
    assert complaints(REPLACE, HEAD, there) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"{PORTS[0]} (primary_reselect always)", "None"),
        ("Interval (ms): 100", "Interval (ms): 1000"),
    ],
)
def test_a_working_bond_of_somebody_else_needs_no_primary_and_no_polling_of_ours(
    old: str, new: str
) -> None:
    """No setting of the owner's file could say either: an advice that nobody could follow."""
    text = bond_text(dict.fromkeys(PORTS, "up"))
    assert old in text
    bonds = {"bond0": text.replace(old, new)}
    there = converged(netplan=FOREIGN, bonds=bonds)
    assert why_not_converged(PAIR, HEAD, there) == complaints(PAIR, HEAD, there) == []
    (said,) = advice(PAIR, HEAD, there)
    assert said.startswith("spark1: bond0 ")
    assert "foreign_bond: replace" in said
    assert why_not_converged(REPLACE, HEAD, there) != []
    assert advice(REPLACE, HEAD, there) == advice(PAIR, HEAD, converged()) == []
    ours = converged(bonds=bonds)
    assert len(why_not_converged(PAIR, HEAD, ours)) == 1
    assert advice(PAIR, HEAD, ours) == []
    gone_at_boot = converged(netplan={}, bonds=bonds)
    assert "works and is not ours, but bond0" in complaints(PAIR, HEAD, gone_at_boot)[0]


def test_a_bond_of_somebody_else_that_sends_on_the_other_cable_is_refused() -> None:
    text = bond_text(dict.fromkeys(PORTS, "up"), primary="None", active=PORTS[1])
    (said,) = complaints(PAIR, HEAD, converged(netplan=FOREIGN, bonds={"bond0": text}))
    assert f"but bond0 sends on {PORTS[1]} though {PORTS[0]} is up; put" in said


def test_a_bond_by_another_name_over_the_same_interfaces_is_taken_apart_on_request() -> None:
    text = document(PAIR, HEAD).replace("bond0", "cx7")
    links = {name: vars(one) for name, one in converged().links.items()}
    links["cx7"] = links.pop("bond0")
    there = converged(
        interfaces=links,
        bonds={"cx7": bond_text(dict.fromkeys(PORTS, "up"))},
        netplan={"/etc/netplan/50-bond.yaml": file_of(text)},
    )
    assert "cx7 (active-backup" in complaints(PAIR, HEAD, there)[0]
    assert complaints(REPLACE, HEAD, there) == []
    plan = trial_plan(REPLACE, HEAD, there)
    assert (plan["delete_links"], plan["shadow"]) == (["cx7"], ["50-bond.yaml"])


def test_d13_a_bond_that_the_module_made_has_no_members_and_is_made_anew() -> None:
    auto = converged(
        netplan={},
        bonds={"bond0": bond_text({}, "load balancing (round-robin)")},
        interfaces={"bond0": link(kind="bond"), **{port: link() for port in PORTS}},
    )
    assert complaints(PAIR, HEAD, auto) == []
    assert trial_plan(PAIR, HEAD, auto)["delete_links"] == ["bond0"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Interval (ms): 100", "Interval (ms): 0", "looks at its links every 0 ms, 100 wanted"),
        ("Slave Interface: enp1s0f1np1", "Slave Interface: eth9", "has eth9 too"),
    ],
)
def test_a_bond_without_link_polling_or_with_more_members_is_made_anew(
    old: str, new: str, said: str
) -> None:
    text = bond_text(dict.fromkeys(PORTS, "up"))
    assert old in text
    wrong = converged(bonds={"bond0": text.replace(old, new)})
    assert f"bond0 {said}" in live_faults(PAIR, HEAD, wrong)
    assert trial_plan(PAIR, HEAD, wrong)["delete_links"] == ["bond0"]


# What a trial would do beside the fabric


def test_the_control_connection_must_not_come_in_over_the_fabric() -> None:
    (said,) = complaints(PAIR, HEAD, converged(control_address="192.168.100.1"))
    assert "the control connection comes in at 192.168.100.1 on the fabric (bond0)" in said
    assert complaints(PAIR, HEAD, converged(control_address="10.0.2.11")) == []


def beside(keys: str, **changes: Any) -> list[str]:
    """Complaints of a host that is not converged and has another file with these keys."""
    text = f"network: {{ethernets: {{enP7s7: {{{keys}}}}}}}"
    netplan = {"/etc/netplan/01-mgmt.yaml": file_of(text)}
    links = {"enP7s7": link(1500, "10.0.2.11/24"), **{port: link() for port in PORTS}}
    return complaints(PAIR, HEAD, converged(netplan=netplan, interfaces=links, bonds={}, **changes))


def test_a_wrong_address_of_the_management_link_in_a_file_is_refused_before_any_apply() -> None:
    (said,) = beside("addresses: [10.0.2.99/24]")
    assert said == (
        "spark1: /etc/netplan/01-mgmt.yaml: addresses of enP7s7 are 10.0.2.99/24, the link has "
        "10.0.2.11/24: netplan apply would change a link that is not the fabric's; mend the file, "
        "or apply it yourself"
    )
    assert beside("addresses: [10.0.2.11/24]") == beside("dhcp4: true") == []
    assert beside("addresses: [{10.0.2.11/24: {label: x}}, 'fd00::1/64']") == []


def test_an_address_that_only_the_kernel_has_counts_when_the_control_connection_uses_it() -> None:
    links = {"enP7s7": link(1500, "10.0.2.11/24", "10.0.2.12/24")}
    text = "network: {ethernets: {enP7s7: {addresses: [10.0.2.11/24]}}}"
    fabric = converged(
        netplan={"/etc/netplan/01-mgmt.yaml": file_of(text)},
        interfaces={**links, **{port: link() for port in PORTS}},
        bonds={},
        control_address="10.0.2.12",
    )
    assert len(complaints(PAIR, HEAD, fabric)) == 1


def test_d11_a_definition_by_another_name_of_a_port_is_the_ports() -> None:
    text = "network: {ethernets: {enp1s0f0: {dhcp4: true}}}"
    fabric = interfaces(**{PORTS[0]: link(9000, master="bond0", altnames=["enp1s0f0"])})
    there = replace(fabric, netplan=(NetplanFile("/etc/netplan/50-x.yaml", text, 0o600),))
    assert judge.case(PAIR, HEAD, there).replaced == ["50-x.yaml"]
    assert "enp1s0f0" not in trial_plan(PAIR, HEAD, fabric)["devices"]


@pytest.mark.parametrize(
    ("match", "taken"),
    [
        ('{name: "en*"}', "enp1s0f0np0, enp1s0f1np1"),
        ('{macaddress: "52:54:00:00:00:01"}', "enp1s0f0np0, enp1s0f1np1"),
        ('{macaddress: "52:54:00:00:00:07"}', None),
        ('{name: "wl*"}', None),
        ("{driver: mlx5_core}", None),
    ],
)
def test_a_match_that_takes_a_fabric_port_too_is_refused(match: str, taken: str | None) -> None:
    text = f"network: {{ethernets: {{all: {{match: {match}, dhcp4: true}}}}}}"
    fabric = converged(
        netplan={"/etc/netplan/01-all.yaml": file_of(text)},
        interfaces={port: link() for port in PORTS},
        bonds={},
    )
    said = complaints(PAIR, HEAD, fabric)
    assert [f"match of all takes {taken} too" in line for line in said] == [True] * bool(taken)


NM = "wifis: {NM-1f: {renderer: NetworkManager, match: {}, access-points: {home: {}}}}"
EN = 'match: {name: "en*"}'


@pytest.mark.parametrize(
    ("network", "count"),
    [
        (NM, 0),  # as NetworkManager itself writes a Wi-Fi
        ("ethernets: {NM-2a: {renderer: NetworkManager, match: {}}}", 0),
        (f"ethernets: {{renderer: NetworkManager, all: {{{EN}}}}}", 0),
        (f"renderer: NetworkManager, ethernets: {{all: {{{EN}}}}}", 0),
        (f"renderer: NetworkManager, ethernets: {{all: {{renderer: networkd, {EN}}}}}", 1),
        (f"ethernets: {{renderer: networkd, all: {{{EN}}}}}", 1),
        (f"bridges: {{all: {{{EN}}}}}", 0),
    ],
)
def test_only_what_networkd_configures_takes_a_port_by_its_match(network: str, count: int) -> None:
    fabric = converged(
        netplan={"/etc/netplan/90-x.yaml": file_of(f"network: {{version: 2, {network}}}")},
        interfaces={port: link() for port in PORTS},
        bonds={},
    )
    assert len(complaints(PAIR, HEAD, fabric)) == count


@pytest.mark.parametrize(
    ("network", "built"),
    [
        ("bridges: {br0: {interfaces: [enp1s0f0np0, enP7s7]}}", "br0 is built on enp1s0f0np0"),
        ("bridges: {br0: {interfaces: [bond0]}}", "br0 is built on bond0"),
        ("bonds: {bond7: {interfaces: [enp1s0f1np1]}}", "bond7 is built on enp1s0f1np1"),
        ("vlans: {v5: {id: 5, link: enp1s0f0np0}}", "v5 is built on enp1s0f0np0"),
        ("vlans: {v5: {id: 5, link: bond0}}", None),
        ("vlans: {v5: {id: 5, link: enP7s7}}", None),
        ("bridges: {br0: {interfaces: [enP7s7]}}", None),
    ],
)
def test_a_device_that_is_built_on_the_fabrics_is_refused(network: str, built: str | None) -> None:
    files = {"/etc/netplan/70-x.yaml": file_of(f"network: {{version: 2, {network}}}")}
    links = {port: link() for port in PORTS} | {"enP7s7": link(1500, "10.0.2.11/24")}
    said = complaints(PAIR, HEAD, converged(netplan=files, interfaces=links, bonds={}))
    assert [str(built) in line for line in said] == [True] * bool(built)


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("192.168.100.57/24", True),  # the LAN's own subnet
        ("192.168.100.1/24", True),
        ("192.168.100.130/25", True),
        ("192.168.100.9/32", True),
        ("192.168.0.57/16", False),  # the fabric's route is closer
        ("192.168.101.57/24", False),
    ],
)
def test_a_link_in_the_fabrics_subnet_is_refused_before_a_change(
    address: str, refused: bool
) -> None:
    links = {port: link() for port in PORTS} | {"wlP9s9": link(1500, address)}
    said = complaints(PAIR, HEAD, converged(netplan={}, interfaces=links, bonds={}))
    assert [f"wlP9s9 has {address}, in the subnet" in line for line in said] == [True] * refused
    converging = interfaces(wlP9s9=link(1500, address))
    assert (complaints(PAIR, HEAD, converging) == []) is (address != ADDRESS)


@pytest.mark.parametrize(
    ("networkd", "mend"),
    [
        ("masked", "sudo systemctl unmask systemd-networkd.service systemd-networkd.socket"),
        ("not installed", "install it"),
    ],
)
def test_a_fabric_without_networkd_is_refused_also_where_it_is_up_still(
    networkd: str, mend: str
) -> None:
    (said,) = complaints(PAIR, HEAD, converged(networkd=networkd))
    assert said.startswith(f"spark1: systemd-networkd is {networkd}, ")
    assert said.endswith(f"; {mend}")


def test_the_global_renderer_of_any_file_counts() -> None:
    files = {
        "/etc/netplan/01-nm.yaml": file_of("network: {version: 2, renderer: NetworkManager}"),
        "/etc/netplan/50-all.yaml": file_of(f"network: {{ethernets: {{all: {{{EN}}}}}}}"),
    }
    links = {port: link() for port in PORTS}
    assert complaints(PAIR, HEAD, converged(netplan=files, interfaces=links, bonds={})) == []


# Addresses that no file has


def test_d01_an_address_by_nmcli_alone_is_volatile() -> None:
    run, etc = (f"/{top}/NetworkManager/system-connections/cx7.nmconnection" for top in TOPS)
    links = {PORTS[1]: link(1500, "192.168.101.1/24", "169.254.7.7/16"), PORTS[0]: link()}
    address = "address1=192.168.101.1/24,192.168.101.254"
    by_hand = converged(interfaces=links, bonds={}, netplan={}, profiles={run: address})
    assert volatile(PAIR, by_hand) == [
        f"192.168.101.1/24 of enp1s0f1np1 is volatile (in {run}): a reboot ends it"
    ]
    kept = converged(interfaces=links, bonds={}, netplan={}, profiles={etc: address})
    assert volatile(PAIR, kept) == []
    links[PORTS[1]]["dynamic"] = ["192.168.101.1/24"]
    assert volatile(PAIR, converged(interfaces=links, bonds={}, netplan={})) == []
    assert volatile(PAIR, converged()) == []

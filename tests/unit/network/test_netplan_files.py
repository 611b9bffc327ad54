"""Netplan's files merged: ours in force for our devices, nothing changed for any other."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from facts.network.fabric import NetplanFile
from operations.network.judge import Case
from operations.network.netplan import PATH, document, in_force, places
from operations.network.obstacles import merge_faults
from operations.network.wanted import wanted
from tests.plan.made_pair import PORTS, cluster
from tests.unit.network.test_netplan import converged

PAIR = cluster()
WANTED = wanted(PAIR, PAIR.head)
# As netplan 1.1.2 writes it: some scalars in quotes, addresses in quotes.
OTHERS = """\
  ethernets:
    enP7s7:
      renderer: networkd
      addresses:
      - "10.0.2.11/24"
      dhcp4: false
      link-local: []
"""
BEFORE = f"network:\n  version: 2\n{OTHERS}"
OURS = """\
    enp1s0f0np0: &port
      renderer: networkd
      optional: true
      dhcp4: false
      dhcp6: false
      mtu: 9000
      link-local: []
    enp1s0f1np1: *port
  bonds:
    bond0:
      renderer: networkd
      optional: true
      addresses:
      - "192.168.100.1/24"
      dhcp4: false
      dhcp6: false
      mtu: 9000
      interfaces:
      - enp1s0f1np1
      - enp1s0f0np0
      parameters:
        mode: "active-backup"
        mii-monitor-interval: "100"
        primary: "enp1s0f0np0"
      link-local: []
"""
AFTER = BEFORE + OURS


def faults(after: str, before: str = BEFORE, files: tuple[NetplanFile, ...] = ()) -> list[str]:
    return merge_faults(Case(WANTED, replace(converged(), netplan=files)), before, after)


def test_our_document_as_netplan_writes_it_back_is_the_wanted_one() -> None:
    assert faults(AFTER) == []
    assert faults(BEFORE + document(WANTED).split("ethernets:\n", 1)[1]) == []


def test_a_default_that_netplan_leaves_out_is_no_difference() -> None:
    assert faults(AFTER.replace("      dhcp6: false\n", "")) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mtu: 9000\n      interfaces", "mtu: 1500\n      interfaces",
         "bond0: mtu would be 1500, 9000 wanted (set in /run/netplan/70-x.yaml)"),
        ('- "192.168.100.1/24"', '- "192.168.100.1/24"\n      - "1.2.3.4/24"',
         "bond0: addresses would be ['192.168.100.1/24', '1.2.3.4/24'], ['192.168.100.1/24'] "
         "wanted (set in no file but ours)"),
        ("      renderer: networkd\n      optional: true\n      addresses",
         "      renderer: NetworkManager\n      optional: true\n      addresses",
         "bond0: renderer would be NetworkManager, networkd wanted (set in no file but ours)"),
        ("    bond0:\n", "    bond0:\n      gateway4: 192.168.100.254\n",
         "bond0: gateway4 would be 192.168.100.254, nothing wanted (set in no file but ours)"),
        ("- \"10.0.2.11/24\"", "- \"10.0.2.99/24\"",
         "enP7s7: addresses would change from ['10.0.2.11/24'] to ['10.0.2.99/24'] (set in no "
         "file but ours)"),
    ],
)  # fmt: skip
def test_each_difference_names_device_key_and_file(old: str, new: str, said: str) -> None:
    assert AFTER.count(old) == 1
    other = NetplanFile("/run/netplan/70-x.yaml", "network: {bonds: {bond0: {mtu: 1500}}}", 0o600)
    assert faults(AFTER.replace(old, new), files=(other,)) == [said]


def test_a_device_of_others_that_would_go_or_come_is_named() -> None:
    gone = "network:\n  version: 2\n  ethernets:\n" + OURS
    assert any(line.startswith("enP7s7: addresses would change from") for line in faults(gone))
    more = AFTER + "  vlans:\n    v.1:\n      id: 1\n"
    assert [line.split(" would")[0] for line in faults(more)] == ["v.1: id"]


def test_a_device_that_shall_go_and_stays_is_named() -> None:
    single = cluster(fabric={"mode": "single", "interfaces": [PORTS[0]]})
    now = Case(wanted(single, single.head), converged())
    made = yaml.safe_load(document(now.wanted))
    made["network"]["bonds"] = {"bond0": {}}
    made["network"]["ethernets"][PORTS[1]] = {}
    assert merge_faults(now, "", yaml.safe_dump(made)) == [
        "bond0 would still be defined",
        f"{PORTS[1]} would still be defined",
    ]


@pytest.mark.parametrize("text", ["network: [", "- 1"])
def test_an_answer_that_is_no_netplan_is_said(text: str) -> None:
    assert faults(text) == ["netplan get gave nothing that can be read"]


def test_a_file_hides_those_of_its_name_in_the_folders_behind() -> None:
    files = [
        NetplanFile(f"/{folder}/netplan/{name}", "network: {ethernets: {a: {mtu: 1}}}", 0o600)
        for folder, name in (("etc", "b.yaml"), ("run", "b.yaml"), ("usr/lib", "a.yaml"))
    ]
    assert [file.path for file in in_force(files)] == [
        "/usr/lib/netplan/a.yaml",
        "/run/netplan/b.yaml",
    ]
    assert places(files, "a", "mtu") == "/usr/lib/netplan/a.yaml, /run/netplan/b.yaml"
    assert places([NetplanFile(PATH, files[0].text, 0o600)], "a") == "no file but ours"

"""The links between the ranks, as the kernel has them."""

from __future__ import annotations

import re
import shlex

import pytest
from testinfra.host import Host

from inventory.schema import BOND_DEVICE, Cluster, Node
from tests.acceptance.look import read

HEADERS_BYTES = 28  # IPv4 and ICMP headers are part of the MTU


def test_bond_is_up_on_every_wanted_member(host: Host, cluster: Cluster, node: Node) -> None:
    if cluster.fabric.mode != "bond":
        pytest.skip(f"fabric.mode is {cluster.fabric.mode}")
    text = read(
        host, f"cat /proc/net/bonding/{BOND_DEVICE} /sys/class/net/{BOND_DEVICE}/bonding/mode"
    )
    mode = text.splitlines()[-1].split()[0]
    members = dict(re.findall(r"Slave Interface: (\S+)\nMII Status: (.+)", text))
    assert members == dict.fromkeys(cluster.interfaces(node), "up")
    assert mode == cluster.fabric.bond_mode


def test_mtu_is_as_wanted_on_the_fabric_and_its_members(
    host: Host, cluster: Cluster, node: Node
) -> None:
    names = dict.fromkeys((cluster.device(node), *cluster.interfaces(node)))
    paths = [f"/sys/class/net/{name}/mtu" for name in names]
    text = read(host, f"grep -H . {shlex.join(paths)}")
    assert text.splitlines() == [f"{path}:{cluster.fabric.mtu}" for path in paths]


def test_fabric_address_is_on_its_device_and_on_no_other(
    host: Host, cluster: Cluster, node: Node
) -> None:
    text = read(host, "ip -o -4 addr show")
    rails = cluster.rails(node)
    where = [
        (fields[1], fields[3])
        for fields in map(str.split, text.splitlines())
        if fields[3].split("/")[0] in {address for _, address in rails}
    ]
    wanted = [(device, f"{address}/{cluster.fabric.prefix}") for device, address in rails]
    assert sorted(where) == sorted(wanted)


def test_netplan_files_of_the_fabric_are_readable_by_root_only(
    host: Host, cluster: Cluster, node: Node
) -> None:
    names = "|".join(re.escape(n) for n in (BOND_DEVICE, *cluster.interfaces(node)))
    found = f"grep -lE {shlex.quote(names)} /etc/netplan/*.yaml"
    files = read(host, f"{found} | xargs stat --format '%a %U %n'").splitlines()
    assert files
    assert [file for file in files if not file.startswith("600 root ")] == []


def test_full_frames_cross_the_fabric_unfragmented(
    host: Host, cluster: Cluster, node: Node
) -> None:
    size = cluster.fabric.mtu - HEADERS_BYTES
    for other in cluster.nodes:
        for _, address in cluster.rails(other) if other.rank != node.rank else ():
            read(host, f"ping -M do -s {size} -c 3 -i 0.3 -W 3 -q {address} 2>&1")

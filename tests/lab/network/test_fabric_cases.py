"""Field cases of the network on real hosts: dry run, run, run again, given back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.lab.fabric_pair import EVERYWHERE, FABRIC, full_frames, owner, restore_quiet
from tests.lab.given_back import SETTLE_S, links
from tests.running_lab import HOSTS, job, on, planned, ran, reading

pytestmark = pytest.mark.long

PORTS = ("enp1s0f0np0", "enp1s0f1np1")
HELD = "for d in enp1s0f0np0 enp1s0f1np1; do nmcli -g GENERAL.NM-MANAGED device show $d; done"


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, state_home: Path) -> None:
    restore_quiet(tmp_path / "quiet", state_home)


def look(host: str) -> tuple[list[str], str, str]:
    """Links, netplan's files, and which ports NetworkManager holds."""
    files = on(host, "stat -c '%n %a %U' /etc/netplan/*; sha256sum /etc/netplan/*")
    return links(host), files, on(host, HELD)


def waiting(state_home: Path, inventory: str) -> list[str]:
    """Where a dry run would change the fabric."""
    plan = planned("prepare", state_home, inventory=inventory)
    return [one for one in plan if one.startswith(FABRIC)]


def bonding(host: str, key: str) -> str:
    return on(host, f"cat /sys/class/net/bond0/bonding/{key}").split()[0]


def given_back(before: dict[str, tuple[list[str], str, str]], state_home: Path) -> None:
    ran("undo", state_home)
    deadline = time.monotonic() + SETTLE_S
    while {host: look(host) for host in HOSTS} != before and time.monotonic() < deadline:
        time.sleep(3)
    assert {host: look(host) for host in HOSTS} == before


def test_d01_d15_rails_from_nmcli_to_files_then_a_bond_then_one_cable_and_back(
    tmp_path: Path, state_home: Path
) -> None:
    for number, host in enumerate(HOSTS, start=1):
        on(
            host,
            "nmcli connection add save no type ethernet ifname enp1s0f1np1 con-name cx7 "
            f"ip4 192.168.101.{number}/24 && nmcli connection up cx7",
        )
    before = {host: look(host) for host in HOSTS}
    rails = owner(tmp_path / "rails", mode="dual-rail")
    assert waiting(state_home, rails) == EVERYWHERE
    run = ran("prepare", state_home, inventory=rails)
    assert "192.168.101.1/24 of enp1s0f1np1 is volatile (in /run/NetworkManager/" in run.text
    for host, number in zip(HOSTS, (1, 2), strict=True):
        assert f"192.168.101.{number}/24" in on(host, "cat /etc/netplan/60-spark-converge.yaml")
    full_frames("192.168.100.2")
    full_frames("192.168.101.2")
    assert ran("prepare", state_home, inventory=rails).changed == []

    bond = owner(tmp_path / "bond", mode="bond")
    ran("prepare", state_home, inventory=bond)
    assert {bonding(host, "mode") for host in HOSTS} == {"active-backup"}
    full_frames("192.168.100.2")

    single = owner(tmp_path / "single", mode="single", interfaces=[PORTS[0]])
    ran("prepare", state_home, inventory=single)
    for host in HOSTS:
        assert on(host, "ls -d /sys/class/net/bond0 /sys/class/net/*/master 2>/dev/null || :") == ""
    full_frames("192.168.100.2")
    assert ran("prepare", state_home, inventory=single).changed == []
    given_back(before, state_home)


def test_d13_a_bond_that_the_module_made_is_made_anew_and_given_back(
    tmp_path: Path, state_home: Path
) -> None:
    for host in HOSTS:
        on(host, "ip link add bond0 type bond mode balance-rr")
    before = {host: look(host) for host in HOSTS}
    bond = owner(tmp_path / "bond")
    assert waiting(state_home, bond) == EVERYWHERE
    ran("prepare", state_home, inventory=bond)
    assert {bonding(host, "mode") for host in HOSTS} == {"active-backup"}
    assert ran("prepare", state_home, inventory=bond).changed == []
    given_back(before, state_home)
    assert {bonding(host, "mode") for host in HOSTS} == {"balance-rr"}


def test_d13_a_bond_that_works_is_changed_on_request_only_and_given_back_with_its_members(
    tmp_path: Path, state_home: Path
) -> None:
    for number, host in enumerate(HOSTS, start=1):
        members = "; ".join(f"ip link set {p} down; ip link set {p} master bond0" for p in PORTS)
        on(
            host,
            "ip link add bond0 type bond mode balance-rr miimon 100; "
            f"for p in {' '.join(PORTS)}; do nmcli device set $p managed no; "
            f"ip address flush dev $p; done; {members}; "
            f"ip link set bond0 up; ip address add 192.168.100.{number}/24 dev bond0",
        )
    before = {host: look(host) for host in HOSTS}
    refused = job("prepare", state_home, inventory=owner(tmp_path / "bond"))
    assert refused.status == 1
    assert "bond0 (balance-rr of enp1s0f0np0, enp1s0f1np1, from no file but ours)" in refused.text
    assert "policy.foreign_bond: replace" in refused.text
    assert {host: look(host) for host in HOSTS} == before
    allowed = owner(tmp_path / "replace", policy={"foreign_bond": "replace"})
    ran("prepare", state_home, inventory=allowed)
    assert {bonding(host, "mode") for host in HOSTS} == {"active-backup"}
    assert ran("prepare", state_home, inventory=allowed).changed == []
    given_back(before, state_home)
    assert {bonding(host, "slaves") for host in HOSTS} & set(PORTS)


def test_d07_d11_a_renamed_port_is_refused_with_its_name_and_a_twin_is_told(
    tmp_path: Path, state_home: Path
) -> None:
    host = HOSTS[1]
    on(host, "rdma link add roceP2p1s0f0 type rxe netdev enP7s7")
    run = job("verify", state_home)
    assert run.folder is not None, run.text
    told = (run.folder / "verify.json").read_text()
    assert "roceP2p1s0f0 is up on the cable of rocep1s0f0 and not used" in told
    on(
        host,
        f"ip link set {PORTS[1]} down; ip link set {PORTS[1]} name enp1s0f1; "
        f"ip link property add dev enp1s0f1 altname {PORTS[1]}; ip link set enp1s0f1 up",
    )
    before = {one: reading(one) for one in HOSTS}
    run = job("prepare", state_home, inventory=owner(tmp_path / "bond"))
    assert run.status == 1
    assert (
        f"spark2: fabric interface {PORTS[1]} is absent; the host has enp1s0f1: put that name"
        in run.text
    )
    assert FABRIC not in " ".join(run.changed)
    assert {one: reading(one) for one in HOSTS} == before

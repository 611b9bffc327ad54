"""The owner's file that discover fills in: it always loads, and says what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from facts.look.discovered import Discovered
from facts.network.fabric import Fabric
from facts.state import state_of
from inventory.schema import Cluster, load
from operations.look import owner_file
from operations.look.owner_file import Seen, cages, mistakes, scalar, text, values
from stacks.definition import Stack, names
from stacks.definition import load as load_stack
from tests.plan.made_pair import (
    PORTS,
    Snapshot,
    bare,
    bond_text,
    cluster,
    container,
    dirty,
    link,
    locked,
)

SSH = {"user": "ci"}
PORT = {"driver": "virtio_net", "bus": "virtio2", "speed_mbps": None, "wireless": False}


def discovered(rank: int, **changes: Any) -> dict[str, Any]:
    """What spark-host finds on a host of the lab."""
    return {
        "hostname": f"spark{rank + 1}",
        "login": "ci",
        "ports": dict.fromkeys(("enP7s7", *PORTS), PORT),
        "hcas": {"rocep1s0f0": [PORTS[0]], "rocep1s0f1": [PORTS[1]]},
        "people": ["ci", "nvidia"],
        "models": {
            "found": [{"path": "/srv/models/lab", "files": 120, "bytes": 7876800}],
            "cut": False,
        },
    } | changes


@pytest.fixture
def known(tmp_path: Path) -> tuple[Stack, ...]:
    return tuple(load_stack(name) for name in names())


@pytest.fixture
def lab(tmp_path: Path) -> Stack:
    return locked("lab", tmp_path)


@pytest.fixture
def dsf(tmp_path: Path) -> Stack:
    return locked("dsf-lab", tmp_path)


def seen(snapshot: Snapshot, address: str) -> Seen:
    state = state_of(snapshot)
    assert isinstance(state.discovered, Discovered)
    assert isinstance(state.fabric, Fabric)
    return Seen(address, state, state.discovered, state.fabric)


def hosts(snapshots: Sequence[Snapshot]) -> list[Seen]:
    return [
        seen({"discovered": discovered(rank)} | snapshot, f"192.0.2.{11 + rank}")
        for rank, snapshot in enumerate(snapshots)
    ]


def filled(found: Sequence[Seen], known: Sequence[Stack]) -> Cluster:
    """The file, as the schema reads it."""
    made = text(values(found, known, SSH))
    assert mistakes(made) == []
    return Cluster.model_validate(yaml.safe_load(made))


def test_the_lab_as_found_dirty(known: tuple[Stack, ...], lab: Stack, dsf: Stack) -> None:
    found = hosts([dirty(cluster(), rank, lab, dsf) for rank in range(2)])
    made = filled(found, known)
    assert [(n.name, n.address, n.fabric_address) for n in made.nodes] == [
        ("spark1", "192.0.2.11", "192.168.100.1"),
        ("spark2", "192.0.2.12", "192.168.100.2"),
    ]
    assert (made.fabric.mode, made.fabric.interfaces, made.fabric.prefix) == ("bond", PORTS, 24)
    assert made.model_dir == "/srv/models"
    assert (made.stack, made.rollback_stack) == (owner_file.DEFAULT_STACK, "dsf-lab")
    assert "# runs dsf-lab-engine-1 (stack dsf-lab)" in text(values(found, known, SSH)).replace(
        "  #", "#"
    )


def test_the_lab_with_its_bond(known: tuple[Stack, ...], lab: Stack, dsf: Stack) -> None:
    found = hosts([bare(cluster(), rank, lab, dsf) for rank in range(2)])
    made = filled(found, known)
    assert (made.fabric.mode, made.fabric.interfaces) == ("bond", PORTS)
    assert [n.fabric_address for n in made.nodes] == ["192.168.100.1", "192.168.100.2"]
    assert "now:" not in text(values(found, known, SSH))


@pytest.mark.parametrize(
    ("policy", "told"),
    [("layer3+4 (1)", "layer3+4"), ("layer2 (0)", None), ("vlan+srcmac (5)", None)],
)
def test_a_bond_that_hashes_keeps_its_policy(
    known: tuple[Stack, ...], lab: Stack, dsf: Stack, policy: str, told: str | None
) -> None:
    snapshots = [bare(cluster(), rank, lab, dsf) for rank in range(2)]
    for snapshot in snapshots:
        members = dict.fromkeys(PORTS, "up")
        made = bond_text(members, "load balancing (xor)", "None", hash_policy=policy)
        snapshot["fabric"]["bonds"] = {"bond0": made}
    found = filled(hosts(snapshots), known).fabric
    assert (found.bond_mode, found.transmit_hash_policy) == ("balance-xor", told)


def spark(rank: int, plugged: Sequence[str], address: str | None) -> Snapshot:
    """A DGX Spark's ports: two QSFP cages, each with a twin in another PCI domain."""
    ports = ("enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1")
    fast = {"driver": "mlx5_core", "speed_mbps": 200000, "wireless": False}
    slow = {"driver": "r8127", "speed_mbps": 10000, "wireless": False, "bus": "0007:01:00.0"}
    wifi = {"driver": "mt7925e", "speed_mbps": None, "wireless": True, "bus": "0009:01:00.0"}
    links = {name: link(carrier=name in plugged) for name in ports}
    if address:
        links[plugged[0]]["addresses"] = [address]
    interfaces = {"enP7s7": link(1500, f"192.0.2.{11 + rank}/24"), "wlP9s9": link(1500), **links}
    return {
        "fabric": {
            "interfaces": interfaces,
            "bonds": {},
            "netplan": {},
            "rdma": {},
            "default_interfaces": ["enP7s7"],
        },
        "discovered": discovered(
            rank,
            ports={
                "enP7s7": slow,
                "wlP9s9": wifi,
                **{name: fast | {"bus": f"000{n}:01:00.0"} for n, name in enumerate(ports)},
            },
            hcas={name.replace("en", "roce"): [name] for name in ports},
        ),
    }


ONE_CABLE = ("enp1s0f0np0", "enP2p1s0f0np0")
TWO_CABLES = (*ONE_CABLE, "enp1s0f1np1", "enP2p1s0f1np1")


def test_twins_of_one_cage_are_one_cable(known: tuple[Stack, ...]) -> None:
    found = hosts([spark(rank, ONE_CABLE, f"10.0.0.{rank + 1}/24") for rank in range(2)])
    assert [(c.interfaces, c.carrier) for c in cages(found[0])] == [
        (("enp1s0f0np0", "enP2p1s0f0np0"), True),
        (("enp1s0f1np1", "enP2p1s0f1np1"), False),
    ]
    made = filled(found, known)
    assert (made.fabric.mode, made.fabric.interfaces) == ("single", ("enp1s0f0np0",))
    assert "# now: 1500" in text(values(found, known, SSH))


@pytest.mark.parametrize("second", ["enP2p1s0f0np0", "enp1s0f1np1"])
def test_two_ports_with_a_subnet_each_are_two_rails(known: tuple[Stack, ...], second: str) -> None:
    snapshots = [spark(rank, TWO_CABLES, f"10.0.0.{rank + 1}/24") for rank in range(2)]
    for rank, snapshot in enumerate(snapshots):
        snapshot["fabric"]["interfaces"][second]["addresses"] = [f"10.0.1.{rank + 1}/24"]
    made = filled(hosts(snapshots), known)
    assert (made.fabric.mode, made.fabric.interfaces) == ("dual-rail", ("enp1s0f0np0", second))
    assert [n.rail2_address for n in made.nodes] == ["10.0.1.1", "10.0.1.2"]
    snapshots[1]["fabric"]["interfaces"][second]["addresses"] = ["10.0.2.2/24"]
    # A second port whose ends have no subnet in common leads somewhere else; a twin shares a cable.
    other = "bond" if second.startswith("enP2") else "single"
    assert filled(hosts(snapshots), known).fabric.mode == other


def test_two_cables_are_a_bond_of_the_two_cages(known: tuple[Stack, ...]) -> None:
    found = hosts([spark(rank, TWO_CABLES, None) for rank in range(2)])
    made = filled(found, known)
    assert (made.fabric.mode, made.fabric.interfaces) == ("bond", PORTS)
    assert [n.fabric_address for n in made.nodes] == ["10.0.0.1", "10.0.0.2"]
    assert "proposal (found: none, none)" in text(values(found, known, SSH))


def test_a_radio_and_the_way_out_are_no_fabric(known: tuple[Stack, ...]) -> None:
    """Without RDMA devices or fast ports, what is left beside management and Wi-Fi counts."""
    snapshots = [spark(rank, ONE_CABLE, None) for rank in range(2)]
    for snapshot in snapshots:
        snapshot["discovered"]["hcas"] = {}
        for port in snapshot["discovered"]["ports"].values():
            port["speed_mbps"] = 1000
    assert filled(hosts(snapshots), known).fabric.interfaces == ("enp1s0f0np0",)


def test_no_cable_anywhere_names_the_ports_all_the_same(known: tuple[Stack, ...]) -> None:
    made = filled(hosts([spark(rank, (), None) for rank in range(2)]), known)
    assert made.fabric.interfaces == PORTS


def test_a_missing_address_is_filled_from_the_others_network(known: tuple[Stack, ...]) -> None:
    found = hosts([spark(0, ONE_CABLE, "10.9.0.7/28"), spark(1, ONE_CABLE, None)])
    made = filled(found, known)
    assert [n.fabric_address for n in made.nodes] == ["10.9.0.7", "10.9.0.1"]
    assert made.fabric.prefix == 28


def test_link_local_addresses_are_no_addresses(known: tuple[Stack, ...]) -> None:
    """NetworkManager gives the fabric ports 169.254.x.y by itself."""
    found = hosts([spark(rank, ONE_CABLE, f"169.254.8.{rank + 1}/16") for rank in range(2)])
    assert [n.fabric_address for n in filled(found, known).nodes] == ["10.0.0.1", "10.0.0.2"]


def test_a_proposal_keeps_clear_of_the_networks_in_use(known: tuple[Stack, ...]) -> None:
    snapshots = [spark(rank, ONE_CABLE, None) for rank in range(2)]
    for rank, snapshot in enumerate(snapshots):
        snapshot["fabric"]["interfaces"]["enP7s7"] = link(1500, f"10.0.0.{20 + rank}/8")
    found = [seen(s, f"10.0.0.{20 + rank}") for rank, s in enumerate(snapshots)]
    assert [n.fabric_address for n in filled(found, known).nodes] == [
        "192.168.200.1",
        "192.168.200.2",
    ]


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("spark1", "spark1"),
        ("@local", "local"),
        ("spark1.local", "192.0.2.11"),  # avahi, which answers for it, is switched off
        ("user@x", "192.0.2.11"),
    ],
)
def test_a_name_that_will_not_do_gives_way_to_the_address(
    known: tuple[Stack, ...], address: str, wanted: str
) -> None:
    snapshots = [spark(rank, ONE_CABLE, None) for rank in range(2)]
    made = filled([seen(snapshots[0], address), seen(snapshots[1], "spark2")], known)
    assert made.head.address == wanted


@pytest.mark.parametrize("hostname", ["Spark-A.lan", "no", "head", "spark_1", "-", "x" * 70, "2"])
def test_every_host_name_ends_as_a_name_that_loads(known: tuple[Stack, ...], hostname: str) -> None:
    snapshots = [spark(rank, ONE_CABLE, None) for rank in range(2)]
    for snapshot in snapshots:
        snapshot["discovered"]["hostname"] = hostname
    assert len({n.name for n in filled(hosts(snapshots), known).nodes}) == 2


def test_the_stack_that_this_tool_runs_is_named(known: tuple[Stack, ...], lab: Stack) -> None:
    snapshot = spark(0, ONE_CABLE, None)
    one = container("spark-lab-0", lab.image_reference, {"io.spark-converge.stack": "lab"})
    strange = container("ollama", "ollama/ollama:latest", {})
    snapshot["containers"] = {"installed": True, "containers": [one, strange]}
    found = hosts([snapshot, spark(1, ONE_CABLE, None)])
    assert (filled(found, known).stack, filled(found, known).rollback_stack) == ("lab", None)
    assert "running now: ollama" in text(values(found, known, SSH))


@pytest.mark.parametrize(
    ("folders", "root"),
    [
        ([("/srv/models/lab", 1)], "/srv/models"),
        ([("/data/big/GLM-5.3-Flash-NVFP4", 9)], "/data/big"),
        ([("/home/x/small", 1), ("/data/large", 9)], "/data"),
        ([("/home/x/a b/c d/m", 9), ("/data/small", 1)], "/data"),
        ([], "/srv/models"),
    ],
)
def test_the_model_folder_is_a_known_models_or_the_largests(
    known: tuple[Stack, ...], folders: list[tuple[str, int]], root: str
) -> None:
    snapshots = [spark(rank, ONE_CABLE, None) for rank in range(2)]
    snapshots[1]["discovered"]["models"] = {
        "found": [{"path": path, "files": 1, "bytes": size} for path, size in folders],
        "cut": True,
    }
    snapshots[0]["discovered"]["models"] = {"found": [], "cut": False}
    found = hosts(snapshots)
    made = text(values(found, known, SSH))
    assert filled(found, known).model_dir == root
    assert ("No folder with *.safetensors" in made) == (not folders)
    assert "cut short" in made


def test_d11_a_port_that_is_another_on_the_other_host_is_named_for_that_host(
    known: tuple[Stack, ...],
) -> None:
    """The suffix np0 on one host only: nothing is common, so each host has its own names."""
    snapshots = [spark(rank, ONE_CABLE, None) for rank in range(2)]
    fabric, ports = snapshots[1]["fabric"]["interfaces"], snapshots[1]["discovered"]["ports"]
    for name in ("enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1"):
        fabric[name[:-3]] = fabric.pop(name)
        ports[name[:-3]] = ports.pop(name)
    snapshots[1]["discovered"]["hcas"] = {}
    made = filled(hosts(snapshots), known)
    assert [made.interfaces(n) for n in made.nodes] == [("enp1s0f0np0",), ("enp1s0f0",)]
    for name in ("enp1s0f1", "enP2p1s0f1"):  # and a host with fewer ports has no counterpart
        del fabric[name], ports[name]
    fabric["enp1s0f0"]["carrier"] = fabric["enP2p1s0f0"]["carrier"] = False
    assert mistakes(text(values(hosts(snapshots), known, SSH)))


P0, P1 = PORTS
NO_ADDRESS = (True, None)


def wired(*found: dict[str, tuple[bool, str | None]]) -> list[Seen]:
    """Hosts by {port: (is there a cable, its address)}."""
    snapshots = []
    for rank, ports in enumerate(found):
        one = spark(rank, (), None)
        for name, (carrier, address) in ports.items():
            one["fabric"]["interfaces"][name] = link(
                9000, *filter(None, [address]), carrier=carrier
            )
        snapshots.append(one)
    return hosts(snapshots)


@pytest.mark.parametrize(
    ("first", "second", "mode", "ports"),
    [
        (
            {P0: (True, "10.1.1.11/24"), P1: (True, "10.1.2.11/24")},
            {P0: (True, "10.1.3.12/24"), P1: (True, "10.1.1.12/24")},
            "single",
            [(P0,), (P1,)],
        ),
        (
            {P0: (True, "10.1.1.11/24"), P1: (True, "10.1.2.11/24")},
            {P0: (True, "10.1.1.12/24"), P1: (True, "10.1.3.12/24")},
            "single",
            [(P0,), (P0,)],
        ),
        ({P0: NO_ADDRESS}, {P1: NO_ADDRESS}, "single", [(P0,), (P1,)]),
        (
            {P0: (True, "10.1.1.1/24"), P1: (True, "10.1.2.1/24")},
            {P0: (True, "10.1.2.2/24"), P1: (True, "10.1.1.2/24")},
            "dual-rail",
            [(P0, P1), (P1, P0)],
        ),
        (dict.fromkeys(PORTS, NO_ADDRESS), dict.fromkeys(PORTS, NO_ADDRESS), "bond", [PORTS] * 2),
    ],
    ids=["ring", "ring, straight", "one crossed cable", "two crossed cables", "two cables"],
)
def test_ports_are_joined_as_their_cables_run(
    known: tuple[Stack, ...], first: Any, second: Any, mode: str, ports: Any
) -> None:
    made = filled(wired(first, second), known)
    assert (made.fabric.mode, [made.interfaces(node) for node in made.nodes]) == (mode, ports)
    for node, found, mine in zip(made.nodes, (first, second), ports, strict=True):
        assert found[mine[0]][1] in (None, f"{node.fabric_address}/24")


def test_the_subnet_of_a_crossed_cable_is_named_beside_its_ports(known: tuple[Stack, ...]) -> None:
    found = wired({P0: (True, "10.1.1.11/24")}, {P1: (True, "10.1.1.12/24")})
    made = text(values(found, known, SSH))
    assert f"interfaces: [{P1}]  # joined with [{P0}] of spark1 (10.1.1.0/24)\n" in made
    assert "# joined" not in text(values(wired({P0: NO_ADDRESS}, {P0: NO_ADDRESS}), known, SSH))


@pytest.mark.parametrize(
    "name", ["enp1s0f0v0", "enP2p1s0f0v12", "enp1s0f0r0", "enp1s0f0npf0vf0", "ens3v1", "mine"]
)
def test_a_virtual_function_is_no_port(known: tuple[Stack, ...], name: str) -> None:
    """By its folder in sysfs, or by the names that udev gives functions and representors."""
    snapshots = [spark(rank, ONE_CABLE, f"10.0.0.{rank + 1}/24") for rank in range(2)]
    for rank, one in enumerate(snapshots):
        one["fabric"]["interfaces"][name] = link(9000, f"10.10.100.{rank + 1}/24")
        port = dict(one["discovered"]["ports"][ONE_CABLE[0]])
        one["discovered"]["ports"][name] = port | ({"virtual": True} if name == "mine" else {})
        one["discovered"]["hcas"]["rocev"] = [name]
    made = filled(hosts(snapshots), known)
    assert (made.fabric.mode, made.fabric.interfaces) == ("single", ("enp1s0f0np0",))


@pytest.mark.parametrize(
    ("found", "wanted", "prefix"),
    [
        (["10.9.0.1/30", None, None], ["10.0.0.1", "10.0.0.2", "10.0.0.3"], 24),
        (["10.9.0.1/30", None], ["10.9.0.1", "10.9.0.2"], 30),
        (["10.9.0.1/32", None], ["10.0.0.1", "10.0.0.2"], 24),
        (["10.9.0.0/31", "10.9.0.1/31"], ["10.0.0.1", "10.0.0.2"], 24),
        (["10.9.0.1/32", "10.9.0.2/32"], ["10.0.0.1", "10.0.0.2"], 24),
    ],
)
def test_a_subnet_without_room_for_all_hosts_gives_way_to_a_proposal(
    known: tuple[Stack, ...], found: list[str | None], wanted: list[str], prefix: int
) -> None:
    made = filled(hosts([spark(rank, ONE_CABLE, one) for rank, one in enumerate(found)]), known)
    assert ([n.fabric_address for n in made.nodes], made.fabric.prefix) == (wanted, prefix)


@pytest.mark.parametrize(
    ("own", "named"),
    [
        (["spark2", "Spark_A"], ["spark2", "spark1"]),
        (["Spark_A", "spark1"], ["spark2", "spark1"]),
        (["spark3", "a_b", "spark2", "spark1"], ["spark3", "spark4", "spark2", "spark1"]),
        (["same", "same"], ["same", "spark2"]),
    ],
)
def test_no_two_hosts_are_named_alike(
    known: tuple[Stack, ...], own: list[str], named: list[str]
) -> None:
    snapshots = [spark(rank, ONE_CABLE, None) for rank in range(len(own))]
    for snapshot, name in zip(snapshots, own, strict=True):
        snapshot["discovered"]["hostname"] = name
    assert [n.name for n in filled(hosts(snapshots), known).nodes] == named


@given(st.text(max_size=40))
def test_a_scalar_comes_back_as_it_was(value: str) -> None:
    line = scalar(value)
    assert "\n" not in line
    assert yaml.safe_load(f"key: {line}  # a comment") == {"key": value}


def test_the_printed_file_loads_from_disk(
    known: tuple[Stack, ...], tmp_path: Path, lab: Stack, dsf: Stack
) -> None:
    found = hosts([dirty(cluster(), rank, lab, dsf) for rank in range(2)])
    path = tmp_path / "sparks.yaml"
    path.write_text(text(values(found, known, SSH | {"port": 2222})))
    assert load(path).ssh.port == 2222

"""From what was found on the hosts to a filled owner's file. Pure; nothing here is a decision that
the owner could not take back by editing the text."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import jinja2
import yaml
from pydantic import TypeAdapter, ValidationError

from facts.look.discovered import Discovered, Port
from facts.network.fabric import Bond, Fabric
from facts.state import HostState
from inventory.schema import BOND_DEVICE, HASHING, Cluster, HashPolicy
from inventory.values import AbsolutePath, Label, ManagementAddress
from operations.engines.recognise import by_podman, containers_of, engines, foreign
from operations.network.judge import usable
from stacks.definition import Stack

TEMPLATE = Path(__file__).parents[2] / "files" / "templates" / "sparks.yaml.j2"
# What is offered where no fabric address was found, unless the hosts use it already.
FREE_NETWORKS = ("10.0.0.0/24", "192.168.200.0/24", "10.77.0.0/24")
FABRIC_MBPS = 25000  # a port of that speed or more is no management port
# enp1s0f0np0 and enP2p1s0f0np0 are two PCIe functions of one QSFP cage of a Spark.
NAME = re.compile(r"en(?P<domain>P\d+)?(?P<rest>p\d+s\d+.*)")
DEFAULT_STACK = "glm53-sglang-nvfp4"
MTU = 9000  # seed 000: the pair's fabric runs with 9000 bytes


@dataclass(frozen=True)
class Seen:
    """One host: address is how the control machine reached it; user, port, files from its side."""

    address: str
    state: HostState
    found: Discovered
    fabric: Fabric


@dataclass(frozen=True)
class Cage:
    """One cable's port with its interfaces (twins share it); the first is the one to name."""

    interfaces: tuple[str, ...]
    carrier: bool


def fabric_ports(seen: Seen) -> list[Port]:
    """Ports that may carry the fabric: RDMA devices' if there are any, else all but management."""
    busy = {*seen.fabric.default_interfaces}
    busy |= {
        link.name
        for link in seen.fabric.links.values()
        if any(address.split("/")[0] == seen.address for address in link.addresses)
    }
    free = [p for p in seen.found.ports if p.name not in busy and not p.wireless]
    masters = {p.name: getattr(seen.fabric.links.get(p.name), "master", None) for p in free}
    ours = {name for names in seen.found.hcas.values() for name in names}
    rdma = [p for p in free if p.name in ours or masters[p.name] in ours]
    fast = [p for p in free if (p.speed_mbps or 0) >= FABRIC_MBPS]
    return rdma or fast or free


def cages(seen: Seen) -> list[Cage]:
    """The fabric's ports by cable; twins of one cage are known by their names."""
    groups: dict[str, list[str]] = {}
    for port in fabric_ports(seen):
        match = NAME.fullmatch(port.name)
        groups.setdefault(match["rest"] if match else port.name, []).append(port.name)
    found = []
    for names in groups.values():
        ordered = sorted(names, key=lambda name: (len(name), name))
        links = [seen.fabric.links.get(name) for name in ordered]
        found.append(Cage(tuple(ordered), any(link.carrier for link in links if link)))
    return found


def bond_members(hosts: Sequence[Seen]) -> list[str]:
    """Members of a bond0 that every host has with the same ports, none otherwise."""
    members = [seen.fabric.bonds.get(BOND_DEVICE) for seen in hosts]
    named = {tuple(sorted(bond.members)) for bond in members if bond}
    return list(named.pop()) if len(named) == 1 and all(members) else []


def interfaces(hosts: Sequence[Seen]) -> list[str]:
    """The ports to name: a bond's, else those with a cable on every host, else all that all have.

    One file names them for all hosts, so only ports of the same name on all of them count.
    """
    bonded = bond_members(hosts)
    if bonded:
        return bonded
    plugged = [[c.interfaces[0] for c in cages(seen) if c.carrier] for seen in hosts]
    there = [[c.interfaces[0] for c in cages(seen)] for seen in hosts]
    return common(plugged) or common(there)


def rails(hosts: Sequence[Seen]) -> dict[str, list[ipaddress.IPv4Interface]]:
    """{port: address by host} of two ports that have a subnet each, the same one on every host;
    none when there are not just two of them. The twins of one cable may be the two rails."""
    found: dict[str, list[ipaddress.IPv4Interface]] = {}
    for name in common([[i for c in cages(seen) for i in c.interfaces] for seen in hosts]):
        links = [seen.fabric.links.get(name) for seen in hosts]
        texts = [next(filter(usable, link.addresses), None) if link else None for link in links]
        held = [ipaddress.IPv4Interface(text) for text in texts if text]
        if len(held) == len(hosts) and len({one.network for one in held}) == 1:
            found[name] = held
    networks = {held[0].network for held in found.values()}
    whole = len(found) == len(networks) == 2 and len({n.prefixlen for n in networks}) == 1
    return found if whole and not bond_members(hosts) else {}


def common(lists: Sequence[Sequence[str]]) -> list[str]:
    return [name for name in lists[0] if all(name in other for other in lists)]


def fabric_address(seen: Seen, names: Iterable[str]) -> ipaddress.IPv4Interface | None:
    """The address on the fabric, link-local ones not counted."""
    twins = [i for cage in cages(seen) for i in cage.interfaces]
    for name in (BOND_DEVICE, *names, *twins):
        link = seen.fabric.links.get(name)
        for text in link.addresses if link else ():
            address = ipaddress.IPv4Interface(text)
            if not address.is_link_local:
                return address
    return None


def used(hosts: Sequence[Seen]) -> list[ipaddress.IPv4Network]:
    texts = [a for seen in hosts for link in seen.fabric.links.values() for a in link.addresses]
    return [ipaddress.IPv4Interface(text).network for text in texts]


def addressing(hosts: Sequence[Seen], names: Sequence[str]) -> tuple[list[str], int, str | None]:
    """(fabric address by host, prefix, why they are only a proposal)."""
    found = [fabric_address(seen, names) for seen in hosts]
    there = [address for address in found if address]
    told = f"found: {', '.join(str(a) if a else 'none' for a in found)}"
    if len({a.network for a in there}) == 1 and len({a.ip for a in there}) == len(there):
        network = there[0].network
        free = (str(ip) for ip in network.hosts() if ip not in {a.ip for a in there})
        filled = [str(a.ip) if a else next(free) for a in found]
        return filled, network.prefixlen, None if len(there) == len(hosts) else told
    taken = used(hosts)
    offers = [ipaddress.IPv4Network(text) for text in FREE_NETWORKS]
    offer = next((n for n in offers if not any(n.overlaps(t) for t in taken)), offers[0])
    return [str(offer[n]) for n in range(1, len(hosts) + 1)], offer.prefixlen, told


def valid(kind: Any, value: str) -> bool:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


def node_names(hosts: Sequence[Seen]) -> list[str]:
    """Host names as labels, each once; spark1, spark2 ... where a name cannot be one."""
    names: list[str] = []
    for number, seen in enumerate(hosts, start=1):
        name = seen.found.hostname.split(".")[0].lower()
        reserved = ("all", "head", "workers", "local")
        good = valid(Label, name) and name not in reserved and name not in names
        names.append(name if good else f"spark{number}")
    return names


def management(seen: Seen) -> str:
    """How to reach a host: as it was reached, or by its address where that name would not do."""
    address = "local" if seen.address == "@local" else seen.address
    if valid(ManagementAddress, address):
        return address
    links = [seen.fabric.links.get(name) for name in seen.fabric.default_interfaces]
    own = [text.split("/")[0] for link in links if link for text in link.addresses]
    return own[0] if own else address


def running(hosts: Sequence[Seen], known: Sequence[Stack]) -> list[str]:
    """Known stacks that run on any of the hosts."""
    names = [
        e.stack
        for rank, seen in enumerate(hosts)
        for e in engines(rank, seen.state, known)
        if e.container.running
    ]
    return list(dict.fromkeys(names))


def stacks(hosts: Sequence[Seen], known: Sequence[Stack]) -> tuple[str, str | None]:
    """(stack, rollback stack): what this tool would launch, and a compose stack that runs now."""
    now = running(hosts, known)
    launcher = {stack.name: stack.launcher for stack in known}
    wanted = next((name for name in now if launcher[name] == "run"), DEFAULT_STACK)
    return wanted, next((name for name in now if launcher[name] == "compose"), None)


def model_root(hosts: Sequence[Seen], known: Sequence[Stack]) -> tuple[str, bool]:
    """(model_dir, whether it was found): a stack's folder tells it, else the largest model's."""
    folders = [folder for seen in hosts for folder in seen.found.models]
    for stack in known:
        tail = f"/{stack.model_path}"
        for folder in folders:
            root = folder.path.removesuffix(tail)
            if folder.path.endswith(tail) and valid(AbsolutePath, root):
                return root, True
    largest = sorted(folders, key=lambda folder: -folder.size_bytes)
    roots = [folder.path.rsplit("/", 1)[0] for folder in largest]
    usable = [root for root in roots if valid(AbsolutePath, root)]
    return (usable[0], True) if usable else ("/srv/models", False)


def rdma_of(seen: Seen, names: Iterable[str]) -> str:
    hcas = [hca for hca, interfaces in seen.found.hcas.items() if {*interfaces} & {*names}]
    return f", RDMA {' '.join(hcas)}" if hcas else ""


def remarks(seen: Seen, known: Sequence[Stack]) -> list[str]:
    """What stands beside a host in comments: ports, people, models, what runs."""
    said = []
    for cage in cages(seen):
        state = "cable" if cage.carrier else "no carrier"
        speeds = [p.speed_mbps for p in seen.found.ports if p.name in cage.interfaces]
        speed = next((f", {s} Mb/s" for s in speeds if s), "")
        rdma = rdma_of(seen, cage.interfaces)
        twins = " and its twin " + " ".join(cage.interfaces[1:]) if cage.interfaces[1:] else ""
        said.append(f"port {cage.interfaces[0]}{twins}: {state}{speed}{rdma}")
    for bond in seen.fabric.bonds.values():
        up = f"{len(bond.members_up)} of {len(bond.members)} members up"
        said.append(
            f"{bond.name}: {bond.mode}, {' '.join(bond.members)}, {up}" + rdma_of(seen, [bond.name])
        )
    said.append(f"logged in as {seen.found.login}; people: {' '.join(seen.found.people) or 'none'}")
    for folder in seen.found.models:
        size = f"{folder.size_bytes / 2**20:,.0f} MiB"
        said.append(f"model {folder.path}: {folder.files} files, {size}")
    if seen.found.models_cut:
        said.append("there may be more models: the search was cut short")
    owned = {e.container.name: e.stack for e in engines(0, seen.state, known)}
    for one in containers_of(seen.state):
        if one.running:
            what = f"stack {owned[one.name]}" if one.name in owned else "no known stack"
            said.append(f"runs {one.name} ({what}), image {one.reference}")
    for other, stack in by_podman(seen.state, known):
        what = f"stack {stack}" if stack else "no known stack"
        said.append(f"runs {other.title} ({what}), image {other.reference or 'unknown'}")
    return [" ".join(line.split()) for line in said]


def values(hosts: Sequence[Seen], known: Sequence[Stack], ssh: dict[str, Any]) -> dict[str, Any]:
    """What the template takes. ssh: user, and port, key, config_file where they were given."""
    two = rails(hosts)
    names = list(two) or interfaces(hosts)
    addresses, prefix, why = addressing(hosts, names)
    titles = node_names(hosts)
    bonded = bond_members(hosts)
    mode = "dual-rail" if two else "single" if len(names) == 1 else "bond"
    bond = hosts[0].fabric.bonds.get(BOND_DEVICE) if bonded else None
    links = [seen.fabric.links.get(BOND_DEVICE if bonded else n) for seen in hosts for n in names]
    stack, rollback = stacks(hosts, known)
    root, found = model_root(hosts, known)
    return {
        "ssh": ssh,
        "nodes": [
            {
                "name": titles[rank],
                "address": management(seen),
                "fabric_address": addresses[rank],
                "rail2_address": str(two[names[1]][rank].ip) if two else None,
                "remarks": remarks(seen, known),
            }
            for rank, seen in enumerate(hosts)
        ],
        "proposal": why,
        "mode": mode,
        "bond_mode": bond.mode if bond else "active-backup",
        "hash_policy": hash_policy(bond) if bond else None,
        "interfaces": names,
        "mtu": MTU,
        "mtu_found": sorted({link.mtu for link in links if link}),
        "prefix": prefix,
        "stack": stack,
        "rollback_stack": rollback,
        "model_dir": root,
        "model_found": found,
        "strangers": sorted({c.name for seen in hosts for c in foreign(seen.state, known)}),
    }


def hash_policy(bond: Bond) -> str | None:
    """That of a bond, where the owner's file can have one and the kernel would not choose it."""
    told = bond.mode in HASHING and bond.hash_policy in get_args(HashPolicy)
    return bond.hash_policy if told and bond.hash_policy != "layer2" else None


def scalar(value: object) -> str:
    """A value as YAML writes it on one line: `no` stays a name, 10 stays a number."""
    style = '"' if isinstance(value, str) and "\n" in value else None
    text: str = yaml.safe_dump(value, default_flow_style=True, default_style=style, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def text(found: dict[str, Any]) -> str:
    """The owner's file."""
    environment = jinja2.Environment(  # noqa: S701 - YAML, and every value goes through scalar
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["scalar"] = scalar
    return environment.from_string(TEMPLATE.read_text()).render(found) + "\n"


def mistakes(made: str) -> list[str]:
    """Why the schema would refuse the file, empty when it loads."""
    try:
        Cluster.model_validate(yaml.safe_load(made))
    except ValidationError as error:
        return [
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
            for one in error.errors(include_url=False)
        ]
    return []

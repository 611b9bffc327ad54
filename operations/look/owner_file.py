"""From what was found on the hosts to a filled owner's file. Pure; nothing here is a decision that
the owner could not take back by editing the text."""

from __future__ import annotations

import ipaddress
import itertools
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
from inventory.schema import BOND_DEVICE, HASHING, RESERVED_NAMES, Cluster, HashPolicy
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
PREFIXES = range(8, 31)  # as inventory/schema.py has it
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
    ports = [p for p in seen.found.ports if not p.wireless and not p.virtual]
    free = [p for p in ports if p.name not in busy]
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


def held(seen: Seen) -> dict[str, ipaddress.IPv4Interface]:
    """{port of the fabric: its address}, link-local ones not counted."""
    found = {}
    for name in (name for cage in cages(seen) for name in cage.interfaces):
        link = seen.fabric.links.get(name)
        text = next(filter(usable, link.addresses), None) if link else None
        if text:
            found[name] = ipaddress.IPv4Interface(text)
    return found


def joined(hosts: Sequence[Seen]) -> list[tuple[str, ...]]:
    """Ports in one subnet, one of each host, which a cable joins then."""
    found = []
    for address in held(hosts[0]).values():
        there = [[n for n, a in held(s).items() if a.network == address.network] for s in hosts]
        if all(len(names) == 1 for names in there):
            found.append(tuple(names[0] for names in there))
    return [ends for ends in found if [one[0] for one in found].count(ends[0]) == 1]


def astray(hosts: Sequence[Seen], place: str) -> bool:
    """Do the ports of one name on all hosts have addresses, and no subnet in common?"""
    nets = []
    for seen in hosts:
        mine = {n for cage in cages(seen) if cage.interfaces[0] == place for n in cage.interfaces}
        nets.append({a.network for name, a in held(seen).items() if name in mine})
    return all(nets) and not set.intersection(*nets)


def interfaces(hosts: Sequence[Seen]) -> list[tuple[str, ...]]:
    """The ports to name, by host and in the order of the cables: a bond's, else those with a cable
    on every host, else all that all have.

    Ports of the same name are taken to be joined, unless a subnet or the only cable of each host
    says otherwise; ports that lead to different hosts are no bond.
    """
    bonded = bond_members(hosts)
    if bonded:
        return [tuple(bonded)] * len(hosts)
    crossed = [ends for ends in joined(hosts) if len(set(ends)) > 1]
    if crossed:
        return [(name,) for name in crossed[0]]
    plugged = [[c.interfaces[0] for c in cages(seen) if c.carrier] for seen in hosts]
    there = [[c.interfaces[0] for c in cages(seen)] for seen in hosts]
    if not common(plugged) and {len(names) for names in plugged} == {1}:
        return [tuple(names) for names in plugged]
    names = common(plugged) or common(there)
    straight = [name for name in names if not astray(hosts, name)] or names[:1]
    if names:
        return [tuple(straight)] * len(hosts)
    # None of one name: by their place, where every host has as many.
    whole = len({len(mine) for mine in there}) == 1
    return [tuple(mine) if whole else () for mine in there]


def rails(hosts: Sequence[Seen]) -> list[tuple[str, ...]]:
    """Two ports that have a subnet each, by host; none when there are not just two of them. The
    twins of one cable may be the two rails."""
    found = joined(hosts)
    networks = {held(hosts[0])[ends[0]].network for ends in found}
    whole = len(found) == len(networks) == 2 and len({n.prefixlen for n in networks}) == 1
    return list(zip(*found, strict=True)) if whole and not bond_members(hosts) else []


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


def addressing(
    hosts: Sequence[Seen], names: Sequence[Sequence[str]]
) -> tuple[list[str], int, str | None]:
    """(fabric address by host, prefix, why they are only a proposal); names: ports by host."""
    found = [fabric_address(seen, mine) for seen, mine in zip(hosts, names, strict=True)]
    there = [address for address in found if address]
    told = f"found: {', '.join(str(a) if a else 'none' for a in found)}"
    if len({a.network for a in there}) == 1 and len({a.ip for a in there}) == len(there):
        network = there[0].network
        spare = (ip for ip in network.hosts() if ip not in {a.ip for a in there})
        free = list(itertools.islice(spare, len(hosts) - len(there)))
        # A subnet that has no room for all hosts, or that the schema would not take, is none.
        if len(there) + len(free) == len(hosts) and network.prefixlen in PREFIXES:
            filled = [str(a.ip if a else free.pop(0)) for a in found]
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
    own = [seen.found.hostname.split(".")[0].lower() for seen in hosts]
    names: list[str] = []
    for number, name in enumerate(own, start=1):
        if not valid(Label, name) or name in RESERVED_NAMES or name in names:
            spare = (f"spark{n}" for n in itertools.chain([number], itertools.count(1)))
            names.append(next(one for one in spare if one not in (*names, *own)))
        else:
            names.append(name)
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
    named = two or interfaces(hosts)
    names = named[0]
    addresses, prefix, why = addressing(hosts, named)
    titles = node_names(hosts)
    bonded = bond_members(hosts)
    mode = "dual-rail" if two else "single" if len(names) == 1 else "bond"
    bond = hosts[0].fabric.bonds.get(BOND_DEVICE) if bonded else None
    devices = zip(hosts, [(BOND_DEVICE,)] * len(hosts) if bonded else named, strict=True)
    links = [seen.fabric.links.get(name) for seen, mine in devices for name in mine]
    stack, rollback = stacks(hosts, known)
    root, found = model_root(hosts, known)
    return {
        "ssh": ssh,
        "nodes": [
            {
                "name": titles[rank],
                "address": management(seen),
                "fabric_address": addresses[rank],
                "rail2_address": str(held(seen)[two[rank][1]].ip) if two else None,
                "interfaces": list(named[rank]) if named[rank] != names else None,
                "subnets": [str(held(seen)[n].network) for n in named[rank] if n in held(seen)],
                "remarks": remarks(seen, known),
            }
            for rank, seen in enumerate(hosts)
        ],
        "proposal": why,
        "mode": mode,
        "bond_mode": bond.mode if bond else "active-backup",
        "hash_policy": hash_policy(bond) if bond else None,
        "interfaces": list(names),
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

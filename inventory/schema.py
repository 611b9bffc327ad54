"""The owner's file: what a cluster is, and every mistake in its description at once.

`load` is the way in. It opens no connection; all that it reads is the file itself, the names of
the shipped stacks and whether the SSH files it names are there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from inventory import document, mistakes, stack_files
from inventory.document import Loc, Mistake
from inventory.mistakes import Record
from inventory.values import (
    ControlFile,
    ControlFolder,
    FabricAddress,
    HoldTag,
    Interface,
    Label,
    ManagementAddress,
    ModelFolder,
    User,
    Whole,
    host_of,
)

BOND_DEVICE = "bond0"
# Modes in which a hash picks the member for each packet: netplan(5).
HASHING = ("802.3ad", "balance-xor", "balance-tlb")
HashPolicy = Literal["layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4"]
_INTERFACE_NAMES = "Linux interface names (at most 15 characters, no slash, no space)"
# pyinfra takes these for groups of hosts.
RESERVED_NAMES = frozenset({"all", "head", "workers", "local"})


class InventoryError(Exception):
    """The owner's file cannot be used; `lines` holds one sentence for each mistake."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class Ssh(Record):
    """How the control machine logs in on every host that is not itself."""

    user: User = Field(description="a Linux user name")
    port: Whole = Field(default=22, ge=1, le=65535, description="a TCP port, 1 to 65535,")
    key: ControlFile | None = Field(
        default=None, description="the path of a private key on this machine"
    )
    config_file: ControlFile | None = Field(
        default=None, description="the path of an ssh_config on this machine"
    )


class Node(Record):
    """One host. `address` is for management, `fabric_address` is its end of the fast link.

    `rail2_address` is its end of the second link in mode dual-rail, None in the other modes;
    `interfaces` are its own names, cable by cable, where they are not those of the fabric.
    """

    name: Label = Field(description="a host name of a-z, 0-9 and - (no dots)")
    address: ManagementAddress = Field(
        description="an IP address, a DNS or ssh_config name, or local"
    )
    fabric_address: FabricAddress = Field(description="an IPv4 address")
    rail2_address: FabricAddress | None = Field(default=None, description="an IPv4 address")
    interfaces: tuple[Interface, ...] | None = Field(
        default=None, min_length=1, max_length=8, description=_INTERFACE_NAMES
    )
    _rank: int = PrivateAttr(default=0)

    @property
    def rank(self) -> int:
        """0 for the head, 1 for the first worker and so on; set by the cluster."""
        return self._rank

    @property
    def is_local(self) -> bool:
        """True when the control machine is this host."""
        return self.address == "local"


class Fabric(Record):
    """The fast link between the hosts, as it is wanted (not as it is)."""

    mode: Literal["bond", "dual-rail", "single"] = Field(
        default="bond", description="bond, dual-rail or single"
    )
    interfaces: tuple[Interface, ...] = Field(
        min_length=1,
        max_length=8,
        description=_INTERFACE_NAMES,
    )
    # 9216 is the largest frame ConnectX-7 offers; below 1280 IPv6 stops working.
    mtu: Whole = Field(default=9000, ge=1280, le=9216, description="1280 to 9216 (bytes)")
    prefix: Whole = Field(default=24, ge=8, le=30, description="a prefix length, 8 to 30,")
    bond_mode: Literal[
        "active-backup", "802.3ad", "balance-rr", "balance-xor", "balance-tlb", "balance-alb"
    ] = Field(
        default="active-backup",
        description="active-backup, 802.3ad, balance-rr, balance-xor, balance-tlb or balance-alb",
    )
    transmit_hash_policy: HashPolicy | None = Field(
        default=None, description="layer2, layer2+3, layer3+4, encap2+3 or encap3+4"
    )


# No CPU or GPU of such a machine runs below or above these.
Mhz = Annotated[int, Field(ge=100, le=6000, strict=True)]


class Clocks(Record):
    """Limits in MHz; what is not given is left as it is on the hosts."""

    cpu_max_mhz: Mhz | None = Field(default=None, description="whole MHz, 100 to 6000,")
    gpu_mhz: tuple[Mhz, Mhz] | None = Field(
        default=None, description="the lowest and the highest clock in whole MHz, 100 to 6000,"
    )


class Policy(Record):
    """What may be done to things that this tool does not know."""

    foreign_containers: Literal["refuse", "stop"] = Field(
        default="refuse", description="refuse or stop"
    )
    foreign_bond: Literal["refuse", "replace"] = Field(
        default="refuse", description="refuse or replace"
    )


class Tags(Record):
    """Words this tool writes beside the owner's own lines."""

    hold: HoldTag = Field(
        default="SPARK-HELD", description="a word of A-Z, 0-9 and - (at most 32 characters)"
    )


class Cluster(Record):
    """Two to eight hosts that serve one model together."""

    name: Label = Field(default="sparks", description="a name of a-z, 0-9 and -")
    ssh: Ssh = Field(description="a mapping with user (and port, key, config_file)")
    head: Node = Field(description="a mapping with name, address and fabric_address")
    workers: tuple[Node, ...] = Field(
        min_length=1, max_length=7, description="a list of 1 to 7 hosts in rank order"
    )
    fabric: Fabric = Field(description="a mapping with interfaces (and mode, mtu, prefix)")
    stack: str = Field(description="the name of a stack in files/stacks")
    rollback_stack: str | None = Field(
        default=None, description="the name of a stack in files/stacks"
    )
    model_dir: ModelFolder = Field(
        description="an absolute path on the hosts (letters, digits, . _ @ % + = - only)"
    )
    lock_dir: ControlFolder | None = Field(
        default=None, description="the path of a folder on this machine"
    )
    policy: Policy = Field(
        default=Policy(), description="a mapping with foreign_containers and foreign_bond"
    )
    clocks: Clocks = Field(default=Clocks(), description="a mapping with cpu_max_mhz and gpu_mhz")
    tags: Tags = Field(default=Tags(), description="a mapping with hold")

    @property
    def nodes(self) -> list[Node]:
        """All hosts in rank order."""
        return [self.head, *self.workers]

    @property
    def fabric_network(self) -> ipaddress.IPv4Network:
        """The subnet that all fabric addresses are in (in mode dual-rail: those of rail 1)."""
        return _network(self.head.fabric_address, self.fabric.prefix)

    def interfaces(self, node: Node) -> tuple[str, ...]:
        """The fabric's physical interfaces on one host, in the order of the cables."""
        return node.interfaces or self.fabric.interfaces

    def device(self, node: Node) -> str:
        """The interface that carries `fabric_address`: the bond, or the first one named."""
        return BOND_DEVICE if self.fabric.mode == "bond" else self.interfaces(node)[0]

    def rails(self, node: Node) -> list[tuple[str, str]]:
        """[(device, IPv4 address)] of a host on the fabric: one, in mode dual-rail two."""
        found = [(self.device(node), node.fabric_address)]
        if self.fabric.mode == "dual-rail" and node.rail2_address:
            found.append((self.interfaces(node)[1], node.rail2_address))
        return found

    @property
    def fabric_range(self) -> ipaddress.IPv4Network:
        """The smallest range that holds the subnets of all rails."""
        found = self.fabric_network
        for _, address in self.rails(self.head):
            other = _network(address, self.fabric.prefix)
            while not other.subnet_of(found):
                found = found.supernet()
        return found

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for rank, node in enumerate(self.nodes):
            node._rank = rank
        found = list(cross_mistakes(self.model_dump(mode="json")))
        if found:
            text = "; ".join(f"{document.dotted(each.loc)}: {each.text}" for each in found)
            raise PydanticCustomError("cross", "{text}", {"text": text})
        return self


def load(path: Path, overrides: Mapping[str, str] | None = None) -> Cluster:
    """The cluster that `path` describes; `overrides` maps dotted keys to YAML scalars.

    Raises InventoryError with one line for each mistake of the whole file.
    """
    read = document.read(path)
    if read.broken:
        raise InventoryError([read.broken])
    for key, text in (overrides or {}).items():
        read.override(key, text)
    found = mistakes.of(Cluster, read)
    # Comparisons between values go on with whatever is right by itself.
    sound = document.without(read.data, [mistake.loc for mistake in found])
    told = {mistake.loc for mistake in found}
    across = cross_mistakes(sound) if isinstance(sound, dict) else ()
    found += [mistake for mistake in across if mistake.loc not in told]
    if found:
        raise InventoryError(read.sentences(found))
    return Cluster.model_validate(read.data)


def cross_mistakes(data: Mapping[str, Any]) -> Iterator[Mistake]:
    """What is wrong between values of plain `data`; values that are absent are passed over."""
    nodes = list(_nodes(data))
    fabric = _mapping(data.get("fabric"))
    yield from _names(nodes)
    for keys in (("name",), ("fabric_address", "rail2_address")):
        yield from _repeated([((*loc, key), node.get(key)) for key in keys for loc, node in nodes])
    yield from _repeated([((*loc, "address"), node.get("address")) for loc, node in nodes], host_of)
    for key in ("fabric_address", "rail2_address"):
        yield from _subnet(nodes, key, fabric.get("prefix", 24))
    yield from _rails(nodes, fabric)
    yield from _interfaces(nodes, fabric)
    yield from _hash_policy(fabric)
    yield from _clocks(data)
    yield from _stacks(data)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _nodes(data: Mapping[str, Any]) -> Iterator[tuple[Loc, Mapping[str, Any]]]:
    yield ("head",), _mapping(data.get("head"))
    workers = data.get("workers")
    for index, worker in enumerate(workers if isinstance(workers, list | tuple) else []):
        yield ("workers", index), _mapping(worker)


def _names(nodes: list[tuple[Loc, Mapping[str, Any]]]) -> Iterator[Mistake]:
    for loc, node in nodes:
        if node.get("name") in RESERVED_NAMES:
            text = f"{node['name']!r} found; {', '.join(sorted(RESERVED_NAMES))} are names that "
            yield Mistake((*loc, "name"), text + "pyinfra uses itself, another one expected")


def _repeated(places: list[tuple[Loc, Any]], same: Callable[[str], str] = str) -> Iterator[Mistake]:
    """same: one spelling for all values that mean the same thing."""
    first: dict[str, Loc] = {}
    for loc, value in places:
        if not isinstance(value, str):
            continue
        if same(value) in first:
            other = document.dotted(first[same(value)])
            text = f"{document.shown(value)} found; {other} has it too, "
            yield Mistake(loc, text + "a different one expected")
        first.setdefault(same(value), loc)


def _network(address: str, prefix: int) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(f"{address}/{prefix}", strict=False)


def _rails(
    nodes: list[tuple[Loc, Mapping[str, Any]]], fabric: Mapping[str, Any]
) -> Iterator[Mistake]:
    """A second rail in mode dual-rail and in no other, with a subnet of its own."""
    mode, prefix = fabric.get("mode", "bond"), fabric.get("prefix", 24)
    for loc, node in nodes:
        here, second = (*loc, "rail2_address"), node.get("rail2_address")
        if mode == "dual-rail" and second is None:
            yield Mistake(here, "nothing found; the address on interfaces[1] expected")
        if mode != "dual-rail" and second is not None:
            yield Mistake(here, f"{second!r} found; only mode dual-rail has a second address")
        first = node.get("fabric_address")
        if second and first and isinstance(prefix, int):
            network = _network(first, prefix)
            if mode == "dual-rail" and second != first and _inside(second, network):
                told = f"{second!r} found; it is inside {network}, the subnet of the first rail, "
                yield Mistake(here, told + "another subnet expected")


def _subnet(nodes: list[tuple[Loc, Mapping[str, Any]]], key: str, prefix: Any) -> Iterator[Mistake]:
    """All addresses of one rail are hosts of one subnet, and no management address is in it."""
    placed = [(loc, node[key]) for loc, node in nodes if node.get(key)]
    if not placed or not isinstance(prefix, int):
        return
    network = _network(placed[0][1], prefix)
    for loc, text in placed:
        address = ipaddress.IPv4Address(text)
        here = (*loc, key)
        if address not in network:
            told = f"{text!r} found; an address in {network}, the subnet of "
            yield Mistake(here, told + f"{document.dotted(placed[0][0])}, expected")
        elif address in {network.network_address, network.broadcast_address}:
            yield Mistake(here, f"{text!r} found; a host address of {network} expected")
    for loc, node in nodes:
        if _inside(node.get("address"), network):
            told = f"{node['address']!r} found; it is inside the fabric {network}, and the control "
            yield Mistake(
                (*loc, "address"),
                told + "connection must not ride on the fabric that this tool changes; "
                "give the management address",
            )


def _inside(address: Any, network: ipaddress.IPv4Network) -> bool:
    try:
        return ipaddress.ip_address(address) in network
    except ValueError:
        return False


def _interfaces(
    nodes: list[tuple[Loc, Mapping[str, Any]]], fabric: Mapping[str, Any]
) -> Iterator[Mistake]:
    """The names of the fabric's ports, for all hosts and those of single ones."""
    common = fabric.get("interfaces")
    for loc, names in ((("fabric",), common), *((loc, n.get("interfaces")) for loc, n in nodes)):
        if not isinstance(names, list | tuple):
            continue
        here = (*loc, "interfaces")
        yield from _repeated([((*here, i), name) for i, name in enumerate(names)])
        for index, name in enumerate(names):
            if name in {"lo", BOND_DEVICE}:
                text = f"{name!r} found; the physical interfaces of the fabric expected"
                yield Mistake((*here, index), text)
        if names is not common and isinstance(common, list | tuple) and len(names) != len(common):
            text = f"{len(names)} found; as many as fabric.interfaces has, {len(common)}, expected"
            yield Mistake(here, text)
    if not isinstance(common, list | tuple):
        return
    mode, here = fabric.get("mode", "bond"), ("fabric", "interfaces")
    if mode == "bond" and len(common) < 2:
        yield Mistake(here, f"{len(common)} found; mode {mode} needs 2 or more (or mode: single)")
    if mode == "dual-rail" and len(common) != 2:
        yield Mistake(here, f"{len(common)} found; mode dual-rail needs exactly 2 (rail 1, rail 2)")
    if mode == "single" and len(common) != 1:
        yield Mistake(here, f"{len(common)} found; mode single needs exactly 1")


def _hash_policy(fabric: Mapping[str, Any]) -> Iterator[Mistake]:
    found = fabric.get("transmit_hash_policy")
    mode = fabric.get("mode", "bond")
    kind = fabric.get("bond_mode", "active-backup") if mode == "bond" else f"mode {mode}"
    if found is not None and kind not in HASHING:
        told = f"{found!r} found; only bond_mode {', '.join(HASHING)} have one, here it is {kind}"
        yield Mistake(("fabric", "transmit_hash_policy"), told)


def _clocks(data: Mapping[str, Any]) -> Iterator[Mistake]:
    span = _mapping(data.get("clocks")).get("gpu_mhz")
    if not isinstance(span, list | tuple) or [type(one) for one in span] != [int, int]:
        return
    if span[0] > span[1]:
        text = f"{list(span)} found; the lowest clock first, then the highest, expected"
        yield Mistake(("clocks", "gpu_mhz"), text)


def _stacks(data: Mapping[str, Any]) -> Iterator[Mistake]:
    known = stack_files.names()
    for key in ("stack", "rollback_stack"):
        name = data.get(key)
        if isinstance(name, str) and name not in known:
            yield Mistake((key,), f"{document.shown(name)} found; {', '.join(known)} allowed")
    stack = data.get("stack")
    if isinstance(stack, str) and stack == data.get("rollback_stack"):
        text = f"{stack!r} found; stack has it too, a different one expected"
        yield Mistake(("rollback_stack",), text)

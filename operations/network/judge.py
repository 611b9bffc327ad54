"""How the fabric that was found on a host differs from the one that it shall have. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import cached_property

from facts.network.fabric import Bond, Fabric, NetplanFile
from inventory.schema import BOND_DEVICE, Cluster, Node
from operations.network import netplan
from operations.network.netplan import PATH, devices_in
from operations.network.wanted import WantedFabric, wanted

KERNELS_HASH = "layer2"  # of a bond that nobody gave a policy: the kernel's bonding.rst


@dataclass(frozen=True)
class Case:
    """The fabric of one host: as it shall be and as it was found."""

    wanted: WantedFabric
    found: Fabric

    @cached_property
    def own(self) -> NetplanFile | None:
        """Our own file, None when it is not there."""
        return next((file for file in self.found.netplan if file.path == PATH), None)

    @cached_property
    def defined(self) -> set[str]:
        """The devices that our own file defines now."""
        return (devices_in(self.own.text) or set()) if self.own else set()

    @cached_property
    def bonds(self) -> list[Bond]:
        """The bonds that hold fabric interfaces now, whoever made them."""
        return [b for b in self.found.bonds.values() if {*self.wanted.ports} & {*b.members}]

    @cached_property
    def devices(self) -> set[str]:
        """The names that only our file may define: interfaces under all their names, and bonds over
        them with their other members. networkd takes a definition under another name of a link
        too."""
        names = {link.name for link in self.wanted.links}
        for bond in self.bonds:
            names |= {bond.name, *bond.members}
        links = [self.found.links[name] for name in names if name in self.found.links]
        return names | {alt for link in links for alt in link.altnames}

    @cached_property
    def ours(self) -> Bond | None:
        """bond0 as it is now; only where one is wanted."""
        return self.found.bonds.get(BOND_DEVICE) if self.wanted.bond else None

    @cached_property
    def foreign(self) -> Bond | None:
        """A bond over fabric interfaces that works and that somebody else made."""
        for bond in self.bonds:
            link = self.found.links.get(bond.name)
            if bond.name not in self.defined and bond.members_up and link and link.addresses:
                return bond
        return None

    @cached_property
    def left_to_its_maker(self) -> bool:
        """Is there a bond of somebody else that works, lasts and stays?"""
        bond = self.foreign
        return bond is not None and self.wanted.spares_others and _lasts(self.found, bond.name)

    @cached_property
    def replaced(self) -> list[str]:
        """Names of the owner's files that define only fabric devices: ours replaces them."""
        return [
            file.path.rsplit("/", 1)[1]
            for file in filter(netplan.in_etc, self.found.netplan)
            if (devices := devices_in(file.text)) and devices <= self.devices
        ]


def case(cluster: Cluster, node: Node, fabric: Fabric) -> Case:
    return Case(wanted(cluster, node), fabric)


def _lasts(fabric: Fabric, bond: str) -> bool:
    """Does any file that a reboot leaves make this bond?"""
    files = [f for f in fabric.netplan if f.path != PATH and not f.path.startswith("/run/")]
    profiles = [p for p in fabric.profiles if not p.path.startswith("/run/")]
    return any(bond in (devices_in(file.text) or ()) for file in files) or any(
        f"interface-name={bond}" in profile.text.splitlines() for profile in profiles
    )


def other_hash(now: Case) -> str | None:
    """The hash policy that bond0 should have, None where it has it or nobody asks.

    One of ours that the owner's file says no more is asked to be the kernel's own again.
    """
    policy = now.wanted.bond.hash_policy if now.wanted.bond else None
    if policy is None and BOND_DEVICE in now.defined:
        policy = KERNELS_HASH
    return None if now.ours is None or now.ours.hash_policy in (None, policy) else policy


def bond_faults(now: Case) -> list[str]:
    """How /proc/net/bonding/bond0 differs from the bond that is wanted, if one is."""
    want, bond = now.wanted.bond, now.ours
    if want is None:
        return []
    if bond is None:
        return [f"{BOND_DEVICE} does not exist"]
    said = []
    if bond.mode != want.mode:
        said.append(f"{BOND_DEVICE} is in mode {bond.mode}, {want.mode} wanted")
    elif policy := other_hash(now):
        said.append(f"{BOND_DEVICE} hashes by {bond.hash_policy}, {policy} wanted")
    if want.primary in bond.members_up and bond.active != want.primary:
        sends = bond.active or "no member"
        said.append(f"{BOND_DEVICE} sends on {sends} though {want.primary} is up")
    missing = sorted({*want.members} - {*bond.members})
    if missing:
        said.append(f"{BOND_DEVICE} lacks {', '.join(missing)}")
    more = sorted({*bond.members} - {*want.members})
    if more:
        said.append(f"{BOND_DEVICE} has {', '.join(more)} too")
    return said


def care_faults(now: Case) -> list[str]:
    """In what bond0 would be kept otherwise by us: how it comes back from a fault, not whether it
    carries anything now. Nothing without a bond."""
    want, bond = now.wanted.bond, now.ours
    if want is None or bond is None:
        return []
    said = []
    if want.primary and bond.primary != want.primary:
        said.append(f"{BOND_DEVICE} has primary {bond.primary or 'none'}, {want.primary} wanted")
    if bond.mii_ms != want.mii_ms:
        told = f"{BOND_DEVICE} looks at its links every {bond.mii_ms} ms, {want.mii_ms} wanted"
        said.append(told)
    return said


def live_faults(now: Case) -> list[str]:
    """What the kernel's state lacks; file contents do not count here."""
    want, links = now.wanted, now.found.links
    said = bond_faults(now) + care_faults(now)
    if want.bond and now.ours is None:
        return said
    if not want.bond and BOND_DEVICE in {*now.found.bonds} & now.defined:
        said.append(f"{BOND_DEVICE} still exists")
    for one in want.links:
        link = links.get(one.name)
        if link is None:
            said.append(f"{one.name} does not exist")
        elif link.mtu != one.mtu:
            said.append(f"{one.name} has MTU {link.mtu}, {one.mtu} wanted")
        if link is not None and link.master and not want.bond:
            said.append(f"{one.name} is a member of {link.master}")
    for one in want.links:
        for address in one.addresses:
            if one.name in links and address not in links[one.name].addresses:
                said.append(f"{one.name} lacks {address}")
            others = (o.name for o in links.values() if o.name != one.name)
            said += [f"{o} still has {address}" for o in others if address in links[o].addresses]
    return said


def standing_faults(now: Case) -> list[str]:
    """What the kernel's state lacks; primary and link polling of a bond that stays its maker's do
    not count: no setting of the owner's file could say them."""
    passed = care_faults(now) if now.left_to_its_maker else []
    return [why for why in live_faults(now) if why not in passed]


def advice(now: Case) -> list[str]:
    """What is worth knowing of a bond that is left to its maker."""
    return [
        f"{now.wanted.host}: {why}, and it is not ours: after a fault the hosts may send on "
        "different cables, or late on the other; policy.foreign_bond: replace would change that"
        for why in (care_faults(now) if now.left_to_its_maker else ())
    ]


def usable(address: str) -> bool:
    return not ipaddress.IPv4Interface(address).is_link_local


def volatile(now: Case) -> list[str]:
    """Addresses of the fabric that no file of the host names: they end with its next boot."""
    profiles = {profile.path: profile.text for profile in now.found.profiles}
    files = profiles | {file.path: file.text for file in now.found.netplan}
    said = []
    for name in sorted(now.devices):
        link = now.found.links.get(name)
        fixed = sorted({*link.addresses} - {*link.dynamic}) if link else []
        for address in filter(usable, fixed):
            bare = re.compile(rf"(?<![0-9.]){re.escape(address)}(?![0-9])")
            by = [path for path, text in files.items() if bare.search(text)]
            if not any(not path.startswith("/run/") for path in by):
                where = next((path for path in by if path in profiles), "no file at all")
                said.append(f"{address} of {name} is volatile (in {where}): a reboot ends it")
    return said


def file_faults(now: Case) -> list[str]:
    """What the files on the host would do otherwise at its next boot, or show to others."""
    said = []
    if now.own is None or now.own.text != netplan.document(now.wanted):
        said.append(f"{PATH} is {'absent' if now.own is None else 'not as wanted'}")
    elif now.own.mode != 0o600:
        said.append(f"{PATH} has mode {now.own.mode:o}, 600 wanted")
    return said + [f"/etc/netplan/{name} defines fabric devices too" for name in now.replaced]


def why_not_converged(now: Case) -> list[str]:
    """Everything in which the host's fabric differs from the owner's file; empty when converged."""
    said = standing_faults(now)
    if now.wanted.bond and now.left_to_its_maker and not said:
        return []  # somebody else's, and as wanted
    return said + file_faults(now)


def cosmetic(now: Case) -> bool:
    """Is nothing wrong but mode and spelling of our own file?"""
    own, text = now.own, netplan.document(now.wanted)
    same = own is not None and netplan.means_the_same(own.text, text)
    return same and not now.replaced and not standing_faults(now) and bool(why_not_converged(now))


def unfit(now: Case) -> list[str]:
    """Why engines cannot run over the fabric as it is: all but what is only cosmetic."""
    return [] if cosmetic(now) else why_not_converged(now)

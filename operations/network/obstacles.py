"""What stands in the way of a host's fabric: names, routes, and files of others that a change of it
would meet. Pure."""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from facts.network.fabric import Link
from operations.network.judge import Case, standing_faults, unfit, usable
from operations.network.netplan import (
    by_networkd,
    definitions,
    definitions_in,
    devices_in,
    differing,
    in_etc,
    lines_to_move,
    of_others,
    places,
)


def complaints(now: Case) -> list[str]:
    """Why the fabric of this host cannot be converged, all reasons, with what to do."""
    said = [*absent(now), *mixed_files(now), *routes(now)]
    if unfit(now):
        said += [*risks(now), *claims(now), *overlaps(now), *left_alone(now)]
    return [f"{now.wanted.host}: {one}" for one in said]


def absent(now: Case) -> Iterator[str]:
    links = now.found.links
    for name in (name for name in now.wanted.ports if name not in links):
        other = [link.name for link in links.values() if name in link.altnames]
        near = other or [n for n in links if n.startswith(name) or name.startswith(n + "n")]
        hint = f"; the host has {', '.join(near)}: put that name" if near else "; see `ip link`"
        yield f"fabric interface {name} is absent{hint} in fabric.interfaces"


def mixed_files(now: Case) -> Iterator[str]:
    for file in filter(in_etc, now.found.netplan):
        devices = devices_in(file.text)
        if devices is None:
            yield f"{file.path} is no readable netplan file: mend it first"
        elif devices & now.devices and devices - now.devices:
            mixed = "\n        ".join(lines_to_move(file.text, devices & now.devices))
            yield (
                f"{file.path} defines {', '.join(sorted(devices & now.devices))} beside "
                f"{', '.join(sorted(devices - now.devices))}; move these lines into a file of "
                f"their own:\n        {mixed}"
            )


def routes(now: Case) -> Iterator[str]:
    """What would cut this host off, or keep its fabric from ever coming up."""
    found = now.found
    riding = now.devices & {*found.default_interfaces}
    if riding:
        yield (
            f"the default route goes over the fabric ({', '.join(sorted(riding))}); "
            "give the host a management link of its own first"
        )
    held = [n for n in sorted(now.devices) if _holds(found.links.get(n), found.control_address)]
    if held:
        yield (
            f"the control connection comes in at {found.control_address} on the fabric "
            f"({', '.join(held)}); connect to the management address (address in the owner's file)"
        )
    elif found.control_device in now.devices:
        yield (
            f"answers on the control connection leave over the fabric ({found.control_device}); "
            "route to this machine over the management link"
        )
    if found.networkd and not now.left_to_its_maker:
        unmask = "sudo systemctl unmask systemd-networkd.service systemd-networkd.socket"
        yield (
            f"systemd-networkd is {found.networkd}, and it alone configures the fabric, now or at "
            f"the next boot; {unmask if found.networkd == 'masked' else 'install it'}"
        )


def _holds(link: Link | None, address: str | None) -> bool:
    return link is not None and any(a.split("/")[0] == address for a in link.addresses)


def overlaps(now: Case) -> list[str]:
    """Addresses of links beside the fabric by which packets to the other ranks would leave: in its
    subnet, or in a part of it. A larger one that holds it does no harm: the closer route wins."""
    nets = [ipaddress.IPv4Interface(a).network for one in now.wanted.links for a in one.addresses]
    return [
        f"{link.name} has {address}, in the subnet {net} of the fabric: packets to the other ranks "
        "may leave by it; take it away there, or give the fabric another subnet"
        for link in now.found.links.values()
        if link.name not in now.devices | now.defined
        for address in link.addresses
        for net in nets
        if ipaddress.IPv4Interface(address).network.subnet_of(net)
    ]


def left_alone(now: Case) -> Iterator[str]:
    """A bond that somebody made and that works is changed only on request."""
    bond, want = now.foreign, now.wanted
    faults = standing_faults(now)
    if bond and want.spares_others and (faults or not want.bond):
        why = "; ".join(faults) or f"mode {want.mode} is wanted"
        yield (
            f"{bond.name} ({bond.mode} of {', '.join(bond.members)}, from "
            f"{places(now.found.netplan, bond.name)}) works and is not ours, but {why}; put "
            "what it is into the owner's file, or allow the change with policy.foreign_bond: "
            "replace"
        )


def static_addresses(keys: Mapping[str, Any]) -> list[str]:
    """The IPv4 addresses of a definition; one with a label is a mapping with one key."""
    given = keys.get("addresses") or []
    texts = [str(next(iter(one), "")) if isinstance(one, dict) else str(one) for one in given]
    return [text for text in texts if ":" not in text]


def _risk(path: str, name: str, keys: Mapping[str, Any], link: Link, control: str) -> str | None:
    """What `netplan apply` would do to the addresses of a link in use, None when nothing."""
    wanted = static_addresses(keys)
    held = [a for a in link.addresses if usable(a)]
    new = [a for a in wanted if a not in held]
    lost = [a for a in held if a.split("/")[0] == control and a not in wanted]
    if not wanted or not held or not (new or (lost and not keys.get("dhcp4"))):
        return None
    return (
        f"{path}: addresses of {name} are {', '.join(wanted)}, the link has {', '.join(held)}: "
        "netplan apply would change a link that is not the fabric's; mend the file, or apply it "
        "yourself"
    )


def risks(now: Case) -> Iterator[str]:
    """Why `netplan apply` would do more than the fabric, for every file that is in force."""
    links = now.found.links
    matching = by_networkd(now.found.netplan)
    for path, name, keys in of_others(now.found.netplan):
        if name in now.devices:
            continue
        link = links.get(str(keys.get("set-name", name)))
        said = _risk(path, name, keys, link, now.found.control_address or "") if link else None
        yield from [said] if said else []
        taken = [n for n in sorted(now.devices) if _matches(keys.get("match"), links.get(n))]
        if taken and name in matching:
            yield (
                f"{path}: match of {name} takes {', '.join(taken)} too, and networkd "
                "follows the first definition that fits; name its own devices there"
            )


def claims(now: Case) -> Iterator[str]:
    """Devices of other files that are built on the fabric's; a port of our bond carries nothing but
    that bond."""
    members = {*now.wanted.bond.members} if now.wanted.bond else set()
    for path, name, keys in of_others(now.found.netplan):
        inside = keys.get("interfaces")
        taken = now.devices & {*map(str, inside if isinstance(inside, list) else ())}
        taken |= members & {str(keys.get("link"))}
        if taken and name not in now.devices:
            yield (
                f"{path}: {name} is built on {', '.join(sorted(taken))} of the fabric, "
                "which can be only one thing at a time; take it out there"
            )


def _matches(match: object, link: Link | None) -> bool:
    """Does a `match` of netplan take a physical link? All of its keys have to fit."""
    if not isinstance(match, Mapping) or link is None or link.kind:
        return False
    names = match.get("name", "*")
    globs = names if isinstance(names, list) else [names]
    mac = str(match.get("macaddress", link.mac)).lower()
    driver = match.get("driver")  # not known here: only a match by driver alone is passed over
    if driver and not {"name", "macaddress"} & set(match):
        return False
    titles = (link.name, *link.altnames)
    return mac == link.mac and any(fnmatch.fnmatchcase(t, str(g)) for g in globs for t in titles)


def merge_faults(now: Case, before: str, after: str) -> list[str]:
    """Why the merged configuration is not ours for our devices and as before for all others.

    before, after: `netplan get` without and with our change
    """
    files, ours = now.found.netplan, definitions(now.wanted)
    leaving = (now.devices | now.defined) - set(ours)
    old, new = definitions_in(before), definitions_in(after)
    if old is None or new is None:
        return ["netplan get gave nothing that can be read"]
    said = []
    for name in (*ours, *sorted({*old, *new} - {*ours, *leaving})):
        keys, made = ours.get(name, old.get(name, {})), new.get(name, {})
        for key in differing(keys, made):
            then, there = keys.get(key, "nothing"), made.get(key, "nothing")
            told = (
                f"would be {there}, {then} wanted"
                if name in ours
                else (f"would change from {then} to {there}")
            )
            said.append(f"{name}: {key} {told} (set in {places(files, name, key)})")
    return said + [f"{name} would still be defined" for name in sorted(leaving & set(new))]

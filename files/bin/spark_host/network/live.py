"""The live state of the fabric's links: read before the first change, given back by undo.

Restoring the netplan files does not do it: a bond whose lines are gone stays with its members, and
an MTU that no file names any more stays as it was set.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Iterable
from typing import Any

from run.command import Failed, run

from network import manager

SETTLE_S = 10  # how long networkd may take for an address before it is set by hand
LIMIT_S = 40


def kept_address(one: dict[str, Any]) -> bool:
    """Only what was configured: not what a router, DHCP or the kernel handed out."""
    if one.get("scope") != "global" or one.get("dynamic") or "local" not in one:
        return False
    return not ipaddress.ip_address(one["local"]).is_link_local


def live(names: Iterable[str]) -> dict[str, dict[str, Any] | None]:
    """{name: {kind, mode, miimon, mtu, up, master, addresses}, null when there is no such link}."""
    code, out, err = run(["ip", "-d", "-j", "address"])
    if code:
        raise Failed(err.strip() or "ip address failed")
    links = {link["ifname"]: link for link in json.loads(out) if "ifname" in link}
    return {name: describe(links[name]) if name in links else None for name in names}


def describe(link: dict[str, Any]) -> dict[str, Any]:
    info = link.get("linkinfo", {})
    return {
        "kind": info.get("info_kind"),
        "mode": info.get("info_data", {}).get("mode"),
        "miimon": info.get("info_data", {}).get("miimon"),
        "mtu": link["mtu"],
        "up": "UP" in link.get("flags", []),
        "master": link.get("master"),
        "addresses": sorted(
            f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", []) if kept_address(a)
        ),
    }


def differences(
    was: dict[str, dict[str, Any] | None], now: dict[str, dict[str, Any] | None]
) -> list[str]:
    """One sentence for each difference; a card that was pulled out is none."""
    said = []
    for name, then in was.items():
        here = now[name]
        one = then or here
        if then is None or here is None:
            if one and one["kind"]:
                said.append(f"{name} {'exists' if here else 'does not exist'}")
            continue
        said += [
            f"{name}: {key} {here[key]}, was {then[key]}" for key in then if here[key] != then[key]
        ]
    return said


def delete_new_links(was: dict[str, dict[str, Any] | None]) -> None:
    """Virtual links that were not there, or that exist in another form than they had."""
    now = live(was)
    for name, then in was.items():
        here = now[name]
        made_over = then and here and (then["kind"], then["mode"]) != (here["kind"], here["mode"])
        if here and here["kind"] and (then is None or made_over):
            # One that went with the link below it is none to fail for: what is left is said later.
            run(["ip", "link", "delete", name])


def last_line(text: str) -> str:
    """Where a program that failed says why: netplan puts a traceback before it."""
    return (text.strip().splitlines() or [""])[-1].strip()


def ip(*words: str) -> None:
    code, _out, err = run(["ip", *words])
    if code:
        raise Failed(f"ip {' '.join(words)}: {err.strip()}")


def adjust(was: dict[str, dict[str, Any] | None], addresses_too: bool) -> None:
    """What netplan's files do not say: MTU, membership, up or down, and at last the addresses."""
    now = live(was)
    for name, then in was.items():
        here = now[name]
        if then is None or here is None:
            continue
        if here["master"] != then["master"]:
            join = ["master", then["master"]] if then["master"] else ["nomaster"]
            if then["master"]:
                ip("link", "set", name, "down")  # a bond takes no member that is up
            ip("link", "set", name, *join)
        if here["mtu"] != then["mtu"]:
            ip("link", "set", name, "mtu", str(then["mtu"]))
        if here["up"] != then["up"]:
            ip("link", "set", name, "up" if then["up"] else "down")
        if addresses_too:
            for address in set(here["addresses"]) - set(then["addresses"]):
                ip("address", "delete", address, "dev", name)
            for address in set(then["addresses"]) - set(here["addresses"]):
                ip("address", "add", address, "dev", name)


def make_lost_bonds(was: dict[str, dict[str, Any] | None]) -> None:
    """Bonds that were there without a line in any file: nobody else makes them again."""
    now = live(was)
    for name, then in was.items():
        if then and then["kind"] == "bond" and now[name] is None:
            how = ["miimon", str(then["miimon"])] if then.get("miimon") else []
            ip("link", "add", name, "type", "bond", "mode", then["mode"], *how)


def restore(was: dict[str, dict[str, Any] | None], managed: Iterable[str] = ()) -> None:
    """Bring the live links back after the netplan files; raises Failed with what still differs.

    managed: devices that NetworkManager shall have again. Whatever fails, the rest is tried: a host
    that is half way back may be out of reach.
    """
    delete_new_links(was)
    code, out, err = run(["netplan", "apply"], timeout_s=300)
    manager.hands(managed, "yes")
    failed = []
    if code not in (0, 127):  # 127: no netplan on this host, so none of its files either
        failed.append(f"netplan apply: {last_line(err or out) or code}")
    began = time.monotonic()
    while True:
        waited_s, said = time.monotonic() - began, []
        try:
            make_lost_bonds(was)
            adjust(was, addresses_too=waited_s > SETTLE_S)
        except Failed as error:  # a link or an address moves under us: the next look tells
            said = [str(error)]
        left = differences(was, live(was))
        if not left:
            break
        if waited_s > LIMIT_S:
            failed += [*left, *said]
            break
        time.sleep(1)
    if failed:
        raise Failed("; ".join(failed))

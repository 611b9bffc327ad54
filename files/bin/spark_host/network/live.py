"""The live state of the fabric's links: read before the first change, given back by undo.

Restoring the netplan files does not do it: a bond whose lines are gone stays with its members, an
MTU that no file names any more stays as it was set, and of a bond that is there networkd changes no
option (systemd issue 36406).
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
# What a bond is told besides its mode: as `ip -d -j address` names it, and as `ip link set` does.
# In this order: each of the two ways to watch the members ends the other one.
OPTIONS = {
    "miimon": "miimon",
    "arp_ip_target": "arp_ip_target",
    "arp_interval": "arp_interval",
    "xmit_hash_policy": "xmit_hash_policy",
    "primary": "primary",
    "ad_lacp_rate": "lacp_rate",
}
LACP = "802.3ad"  # the one mode that has a rate
PRIMARY = "/sys/class/net/{}/bonding/primary"

Links = dict[str, "dict[str, Any] | None"]


def kept_address(one: dict[str, Any]) -> bool:
    """Only what was configured: not what a router, DHCP or the kernel handed out."""
    if one.get("scope") != "global" or one.get("dynamic") or "local" not in one:
        return False
    return not ipaddress.ip_address(one["local"]).is_link_local


def live(names: Iterable[str]) -> Links:
    """{name: {kind, mode, OPTIONS, mtu, up, master, addresses}, null without such a link}."""
    code, out, err = run(["ip", "-d", "-j", "address"])
    if code:
        raise Failed(err.strip() or "ip address failed")
    links = {link["ifname"]: link for link in json.loads(out) if "ifname" in link}
    return {name: describe(links[name]) if name in links else None for name in names}


def describe(link: dict[str, Any]) -> dict[str, Any]:
    info = link.get("linkinfo", {})
    mode = info.get("info_data", {}).get("mode")
    data = info.get("info_data", {}) if info.get("info_kind") == "bond" else {}
    if not data.get("arp_interval"):  # targets that nobody asks
        data = {**data, "arp_ip_target": None}
    return {
        "kind": info.get("info_kind"),
        "mode": mode,
        **{key: data.get(key) for key in OPTIONS if key != "ad_lacp_rate" or mode == LACP},
        "mtu": link["mtu"],
        "up": "UP" in link.get("flags", []),
        "master": link.get("master"),
        "addresses": sorted(
            f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", []) if kept_address(a)
        ),
    }


def differences(was: Links, now: Links) -> list[str]:
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
            f"{name}: {key} {here.get(key)}, was {then[key]}"
            for key in then
            if here.get(key) != then[key]
        ]
    return said


def delete_new_links(was: Links) -> None:
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


def set_option(bond: str, key: str, value: Any) -> None:
    if key == "primary" and not value:  # `ip` has no word for none
        with open(PRIMARY.format(bond), "w") as file:
            file.write("\n")
        return
    if key == "ad_lacp_rate":
        ip("link", "set", bond, "down")  # it comes up with the next look
    words = ",".join(value) if isinstance(value, list) else str(value)
    ip("link", "set", bond, "type", "bond", OPTIONS[key], words)


def adjust(was: Links, addresses_too: bool) -> None:
    """What netplan's files do not say: MTU, membership, up or down, the addresses; and last the
    options of bonds, where one that cannot be set keeps nothing else from coming back."""
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
    for name, then in was.items():
        here = now[name]
        for key in OPTIONS if then and here and then["kind"] == "bond" else ():
            if key in then and here.get(key) != then[key]:
                set_option(name, key, then[key])


def make_lost_bonds(was: Links) -> None:
    """Bonds that were there without a line in any file: nobody else makes them again."""
    now = live(was)
    for name, then in was.items():
        if then and then["kind"] == "bond" and now[name] is None:
            ip("link", "add", name, "type", "bond", "mode", then["mode"])


def restore(was: Links, managed: Iterable[str] = ()) -> None:
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
        except (Failed, OSError) as error:  # links move under us: the next look tells
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

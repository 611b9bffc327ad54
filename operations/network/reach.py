"""Nobody is locked out: what the control connection lives on must survive what a job does.

Pure but for reading an ssh_config, resolving a name and looking at this machine's own processes.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paramiko import SSHConfig
from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

from facts.network.fabric import Fabric
from facts.network.reach import Reach
from facts.state import HostState
from facts.systemd.services import Services
from inventory.schema import Cluster, Node
from operations.run.findings import Finding, Look, aside

DISPLAY_MANAGERS = {
    *("display-manager.service", "gdm.service", "gdm3.service"),
    *("lightdm.service", "sddm.service"),
}
# As /proc/PID/comm has them, at most 15 characters.
SESSIONS = {
    *("gdm-session-wor", "gdm-wayland-ses", "gdm-x-session", "gnome-session-b", "gnome-shell"),
    *("Xorg", "Xwayland", "plasmashell", "sddm-helper", "lightdm"),
}
GRAPHICAL = ("x11", "wayland", "mir")


@dataclass(frozen=True)
class Resolved:
    """What the control machine's resolver makes of a name."""

    canonical: str
    addresses: tuple[str, ...]


Resolve = Callable[[str], Resolved | None]


def resolve(name: str) -> Resolved | None:
    """None when nobody answers for the name."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    except OSError:
        return None
    canonical = next((entry[3] for entry in found if entry[3]), name)
    return Resolved(canonical, tuple(dict.fromkeys(str(entry[4][0]) for entry in found)))


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_mdns(name: str) -> bool:
    return name.lower().rstrip(".").endswith(".local")


def ssh_config(cluster: Cluster) -> tuple[str, SSHConfig]:
    """(its path, what is in it) as pyinfra reads it; empty when there is none to be read."""
    path = Path(cluster.ssh.config_file or "~/.ssh/config").expanduser()
    try:
        return str(path), SSHConfig.from_path(str(path))
    except (OSError, ConfigParseError):  # pyinfra has said so when it connected
        return str(path), SSHConfig()


def looked_up(config: SSHConfig, host: str) -> dict[str, str]:
    """What the ssh_config says of a host; nothing where it cannot be worked out."""
    try:
        return {key: str(value) for key, value in config.lookup(host).items()}
    except (CouldNotCanonicalize, KeyError):
        return {}


def names_on_the_way(cluster: Cluster, node: Node) -> Iterator[tuple[str, str]]:
    """(name or address, where it stands) of a host and of the hosts that it is reached through."""
    path, config = ssh_config(cluster)
    found = looked_up(config, node.address)
    name = found.get("hostname", node.address)
    told = "address in the owner's file" if name == node.address else f"HostName in {path}"
    yield name, told
    for jump in found.get("proxyjump", "").split(","):
        host = jump.rsplit("@", 1)[-1].split(":")[0].strip()
        if host and host.lower() != "none":
            yield looked_up(config, host).get("hostname", host), f"ProxyJump in {path}"


def name_complaints(cluster: Cluster, node: Node, ask: Resolve = resolve) -> Iterator[str]:
    """Names that avahi answers for, and ways in that lead over the fabric."""
    if node.is_local:
        return
    for name, where in names_on_the_way(cluster, node):
        found = Resolved(name, (name,)) if is_address(name) else ask(name)
        addresses = found.addresses if found else ()
        if is_mdns(name) or (found and is_mdns(found.canonical)):
            real = "" if is_mdns(name) or not found else f", which is {found.canonical},"
            usable = [
                a for a in addresses if not ipaddress.ip_address(a.split("%")[0]).is_link_local
            ]
            yield (
                f"{node.name}: {name}{real} found ({where}); avahi answers for names in .local, "
                "and this job switches it off (NVIDIA Sync's discovery of the host ends with it): "
                f"write its address instead{f', {usable[0]}' if usable else ''}"
            )
        inside = [a for a in addresses if in_fabric(cluster, a)]
        if inside and name != node.address:  # the owner's file itself is checked when it is read
            yield (
                f"{node.name}: {name} found ({where}), which is {inside[0]} in the fabric "
                f"{cluster.fabric_network}; the control connection must not ride on what this job "
                "changes: connect to the management address"
            )


def in_fabric(cluster: Cluster, address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in cluster.fabric_network
    except ValueError:
        return False


def wifi_complaints(node: Node, state: HostState) -> Iterator[str]:
    """Management links that end with the desktop's session."""
    if not isinstance(state.reach, Reach) or not isinstance(state.fabric, Fabric):
        return
    fabric = state.fabric
    for one in state.reach.wifi:
        link = fabric.links.get(one.device)
        control = link and any(a.split("/")[0] == fabric.control_address for a in link.addresses)
        if one.of_a_session and (control or one.device in fabric.default_interfaces):
            mend = ["sudo", "nmcli", "--ask", "connection", "modify", one.name]
            yield (
                f"{node.name}: its management link {one.device} ({one.name}) has its Wi-Fi secret "
                "in a user's session, which ends with the desktop; keep it with the system first: "
                f"{shlex.join(mend)} connection.permissions '' "
                "802-11-wireless-security.psk-flags 0 802-11-wireless-security.psk SECRET"
            )


def graphical_session(pid: int, proc: Path = Path("/proc")) -> str | None:
    """The desktop session that a process of this machine descends from, in words."""
    while pid > 1:
        folder = proc / str(pid)
        try:
            name = (folder / "comm").read_text().strip()
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            return None
        if name in SESSIONS:
            return f"{name}, process {pid}"
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # of another user: its name alone tells
            words = []
        kinds = [w.split(b"=", 1)[1].decode() for w in words if w.startswith(b"XDG_SESSION_TYPE=")]
        if any(kind in GRAPHICAL for kind in kinds):
            return f"a {kinds[0]} session, by process {pid}"
        pid = parent
    return None


def session_complaints(node: Node, state: HostState, pid: int | None = None) -> Iterator[str]:
    """A run on the host itself, from the desktop that it would end."""
    if not node.is_local or not isinstance(state.services, Services):
        return
    stopped = [u for u in state.services.units.values() if {*u.names} & DISPLAY_MANAGERS]
    session = graphical_session(pid or os.getpid())
    if session and any(not unit.asleep for unit in stopped):
        yield (
            f"{node.name}: this run was started from its desktop ({session}), which it would end "
            "and itself with it; run it from a text console, over SSH, or from another machine"
        )


def assess(look: Look) -> Iterator[Finding]:
    """Why the owner would lose this host on the way."""
    if look.settles:
        yield aside("refuse", name_complaints(look.cluster, look.node))
        yield aside("refuse", wifi_complaints(look.node, look.state))
        yield aside("refuse", session_complaints(look.node, look.state))

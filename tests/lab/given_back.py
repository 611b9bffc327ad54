"""All that an undo has to give back, read with plain commands before and after."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.running_lab import HOSTS, on

# Written by the services themselves when they start or stop.
OF_SERVICES = ("/etc/cups/subscriptions.conf", "/etc/cups/subscriptions.conf.O", "/etc/resolv.conf")
SETTLE_S = 60

FILES = r"""
find /etc /var/spool/cron -xdev -type f -printf 'mode %m %U:%G %p\n'
find /etc /var/spool/cron -xdev -type f -print0 | xargs -0 sha256sum | sed 's/^/sha256 /'
find /etc /var/spool/cron -xdev -type l -printf 'link %U:%G %p -> %l\n'
find /etc /var/spool/cron -xdev -type d -printf 'folder %m %U:%G %p\n'
"""
UNITS = r"""
systemctl list-unit-files --no-legend --no-pager | grep -v transient |
    awk '{print "unit file", $1, $2, $3}'
systemctl get-default | sed 's/^/default /'
for unit in gdm cups cups-browsed bluetooth avahi-daemon ModemManager gnome-remote-desktop \
    unattended-upgrades power-profiles-daemon; do
    echo "active $unit $(systemctl is-active $unit.service)"
done
systemctl list-units --state=active --type=socket,path,timer --no-legend --no-pager --plain |
    awk '$1 !~ /^systemd-/ {print "active", $1}'
for device in enP7s7 enp1s0f0np0 enp1s0f1np1; do
    echo "managed $device $(nmcli -g GENERAL.NM-MANAGED device show $device)"
done
# The kernel works the reserves out at each boot, from the memory that is free then.
sysctl -a -r '^(vm|net\.core)\.' | grep -v '_reserve_kbytes'
grep -H . /sys/devices/system/cpu/cpufreq/policy*/scaling_governor
"""


def links(host: str) -> list[str]:
    """Every link with its MTU, its master, whether it is up, and its IPv4 addresses."""
    found: list[dict[str, Any]] = json.loads(on(host, "ip -j address"))
    return [
        f"ip {one['ifname']} mtu {one['mtu']} master {one.get('master')} "
        f"up {'UP' in one['flags']} "
        + " ".join(a["local"] for a in one["addr_info"] if a["family"] == "inet")
        for one in found
        # The bridges and virtual links of docker come and go with containers.
        if not one["ifname"].startswith(("veth", "br-", "docker"))
    ]


def look(host: str) -> set[str]:
    """All that an undo has to give back, a line for each thing."""
    lines = on(host, FILES + UNITS).splitlines()
    kept = [line for line in lines if not any(line.endswith(" " + f) for f in OF_SERVICES)]
    return {*kept, *links(host)}


def assert_as_before(before: dict[str, set[str]]) -> None:
    """networkd and the services settle within a minute, or the difference stays."""
    for host in HOSTS:
        deadline = time.monotonic() + SETTLE_S
        while (now := look(host)) != before[host] and time.monotonic() < deadline:
            time.sleep(3)
        new, lost = sorted(now - before[host]), sorted(before[host] - now)
        assert (new, lost) == ([], []), f"{host}: new {new}, lost {lost}"

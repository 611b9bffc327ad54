"""The lab's own verbs on the running pair, and what its snapshot `fresh` holds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from lab.common.paths import lab_home
from lab.guests.ssh import wait_units
from tests.running_lab import (
    HOSTS,
    REPOSITORY,
    completion,
    containers,
    lab,
    on,
    snapshots,
    ssh_config,
)

pytestmark = pytest.mark.long

LINK_S = 5  # a changed carrier shows in the guest within a second, unless the machine is busy

# As the packages of trixie install them; gdm has no [Install] section, only an alias link.
DESKTOP = {
    "gdm.service": ("active", "static"),
    "gnome-remote-desktop.service": ("active", "enabled"),
    "cups.service": ("active", "enabled"),
    "cups-browsed.service": ("active", "enabled"),
    "avahi-daemon.service": ("active", "enabled"),
    "ModemManager.service": ("active", "enabled"),
    "bluetooth.service": ("inactive", "enabled"),
    "colord.service": ("inactive", "static"),
    "power-profiles-daemon.service": ("inactive", "disabled"),
}

BOND = """
network:
  version: 2
  ethernets:
    enp1s0f0np0: {renderer: networkd, optional: true, mtu: 9000}
    enp1s0f1np1: {renderer: networkd, optional: true, mtu: 9000}
  bonds:
    bond0:
      renderer: networkd
      interfaces: [enp1s0f0np0, enp1s0f1np1]
      mtu: 9000
      optional: true
      addresses: [ADDRESS/24]
      parameters: {mode: active-backup, mii-monitor-interval: 100}
"""
ADDRESS = {"spark1": "192.168.100.1", "spark2": "192.168.100.2"}


@pytest.fixture
def fresh() -> Iterator[None]:
    """The pair at `fresh`, and again afterwards."""
    lab("restore", "fresh")
    yield
    lab("restore", "fresh")


def refused(*words: str) -> str:
    """What a verb says that must fail with one sentence."""
    line = [sys.executable, "-m", "lab", *words]
    done = subprocess.run(line, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def carriers(host: str) -> str:
    """Carrier of both fabric ports, as in "1 1"."""
    return on(host, "echo $(cat /sys/class/net/enp1s0f?np?/carrier)").strip()


def becomes_carriers(host: str, wanted: str) -> bool:
    deadline = time.monotonic() + LINK_S
    while (seen := carriers(host)) != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return seen == wanted


def test_up_again_has_nothing_to_do() -> None:
    began = time.monotonic()
    lab("up")
    assert time.monotonic() - began < 5
    shown = json.loads(lab("status", "--json"))
    assert all(shown["hosts"][host]["running"] for host in HOSTS)
    assert "fresh" in shown["snapshots"]
    assert shown["registry"]


@pytest.mark.parametrize("host", HOSTS)
def test_fresh_is_dirty(fresh: None, host: str) -> None:
    assert on(host, "systemctl get-default").strip() == "graphical.target"
    for unit, (active, file_state) in DESKTOP.items():
        shown = on(host, f"systemctl show -p ActiveState -p UnitFileState --value {unit}").split()
        assert shown == [active, file_state], unit
    assert on(host, "systemctl is-enabled gdm3.service || true").strip() == "alias"
    governors = on(host, "cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor").split()
    assert governors == ["performance", "performance"]
    netplan = on(host, "stat -c %a /etc/netplan/40-cx7.yaml; cat /etc/netplan/40-cx7.yaml")
    assert netplan.startswith("600\n")
    assert f"{ADDRESS[host]}/24" in netplan
    assert "bond" not in netplan
    assert containers(host) == ["dsf-lab-engine-1"]
    leftovers = on(host, "ls /dev/shm").split()
    for kind in ("psm_", "sem.", "torch_", "mp-", "vllm"):
        assert any(name.startswith(kind) for name in leftovers), kind
    cached_kib = int(on(host, "awk '/^Cached:/ {print $2}' /proc/meminfo"))
    assert cached_kib > 300 * 1024


def test_fresh_serves_the_old_stack_under_a_watchdog(fresh: None) -> None:
    assert "391" in completion("dsf-lab")
    held = on("spark1", "crontab -l")
    assert "\n* * * * * /usr/local/bin/spark1-inference-ready.sh >>" in held


def test_stores_of_docker_differ() -> None:
    drivers = [on(host, "docker info --format '{{.Driver}}'").strip() for host in HOSTS]
    assert drivers == ["overlay2", "overlayfs"]  # overlayfs: containerd's image store


def test_restore_takes_both_hosts_back_with_right_clocks(fresh: None) -> None:
    for host in HOSTS:
        on(host, "echo before > /root/mark")
    lab("snapshot", "verbs")
    assert "verbs" in snapshots()
    for host in HOSTS:
        on(host, "echo after > /root/mark")
    lab("restore", "verbs")
    for host in HOSTS:
        assert on(host, "cat /root/mark").strip() == "before"
        assert abs(float(on(host, "date +%s.%N")) - time.time()) < 3


def test_cable_pulled_at_both_ends_and_at_one(fresh: None) -> None:
    lab("cable", "1", "pull")
    assert [becomes_carriers(host, "0 1") for host in HOSTS] == [True, True]
    lab("cable", "1", "plug")
    lab("cable", "2", "pull", "--end", "spark2")
    assert becomes_carriers("spark1", "1 1")
    assert becomes_carriers("spark2", "1 0")
    lab("restore", "fresh")
    assert [carriers(host) for host in HOSTS] == ["1 1", "1 1"]


def test_roce_device_follows_the_bond_and_survives_a_reset(fresh: None) -> None:
    parent = "cat /sys/class/infiniband/rocep1s0f0/parent"
    assert on("spark2", parent).strip() == "enp1s0f0np0"
    for host in HOSTS:
        on(
            host,
            f"cat > /etc/netplan/40-cx7.yaml <<'END'\n{BOND.replace('ADDRESS', ADDRESS[host])}END\n"
            "netplan apply\nnetworkctl reload\n"
            "while [ ! -d /sys/class/infiniband/rocep1s0f0 ] ||"
            f" [ $({parent}) != bond0 ]; do sleep 0.2; done\n",
        )
    on("spark1", "ping -M do -s 8972 -c 3 -i 0.2 192.168.100.2")
    boot = on("spark2", "cat /proc/sys/kernel/random/boot_id")
    lab("power", "spark2", "reset")
    assert on("spark2", "cat /proc/sys/kernel/random/boot_id") != boot
    assert wait_units(lab_home(), "spark2") == "running"
    assert on("spark2", parent).strip() == "bond0"
    gids = on("spark2", "cat /sys/class/infiniband/rocep1s0f0/ports/1/gids/*")
    assert "0000:0000:0000:0000:0000:ffff:c0a8:6402" in gids
    on("spark2", "ping -M do -s 8972 -c 3 -i 0.2 192.168.100.1")


def test_power_off_and_on(fresh: None) -> None:
    lab("power", "spark2", "off")
    assert json.loads(lab("status", "--json"))["hosts"]["spark2"]["running"] is False
    assert "spark2 is off" in refused("snapshot", "half")
    lab("power", "spark2", "on")
    assert on("spark2", "cat /proc/uptime")
    assert on("spark2", "docker ps --all --format '{{.Names}}'").split() == ["dsf-lab-engine-1"]


def test_restore_starts_a_host_that_is_off(fresh: None) -> None:
    lab("power", "spark1", "off")
    lab("restore", "fresh")
    assert containers("spark1") == ["dsf-lab-engine-1"]


@pytest.mark.parametrize("host", HOSTS)
def test_guest_reaches_the_registry_and_nothing_else(host: str) -> None:
    assert on(host, "curl -sS -m 10 http://10.0.2.100:5000/v2/").strip() == "{}"
    for address in ("10.0.2.2:5000", "10.0.2.2:22", "192.0.2.1:80"):
        on(host, f"! curl -sS -m 5 http://{address}/ >/dev/null 2>&1")


def test_administrator_is_asked_for_a_password() -> None:
    line = ["ssh", "-F", ssh_config(), "-l", "nvidia", "spark1"]
    asked = subprocess.run([*line, "sudo -n true"], capture_output=True, text=True, check=False)
    assert asked.returncode != 0
    assert "password" in asked.stderr
    given = [*line, "sudo -S -p '' id -u"]
    done = subprocess.run(given, input="nvidia\n", capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0", done.stderr


def test_mistakes_are_one_sentence() -> None:
    assert "no snapshot 'nonesuch'; there are:" in refused("restore", "nonesuch")
    assert "fresh is the snapshot that `up` takes" in refused("snapshot", "fresh")
    assert "snapshot name '9 lives'" in refused("snapshot", "9 lives")

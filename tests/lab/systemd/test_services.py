"""Field cases B01 to B11 at once on two real hosts: found, taken down for good, given back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.given_back import assert_as_before, look
from tests.running_lab import HOSTS, Run, lab, on, planned, ran, reboot, remove_ranks

pytestmark = pytest.mark.long

SYSTEM = "/etc/systemd/system"
# B01: the file that cups' path unit watches. B03: half of what `disable bluetooth` removes is gone,
# the bus alias is left. B11: a hand-made link starts the display manager without the desktop's
# target, and the default target is a link to nothing. The watchdog is not wanted here.
SPARK1 = f"""
set -e
crontab -r
touch /var/cache/cups/org.cups.cupsd
rm {SYSTEM}/bluetooth.target.wants/bluetooth.service
ln -s /usr/lib/systemd/system/gdm.service {SYSTEM}/multi-user.target.wants/gdm.service
ln -sfn /usr/lib/systemd/system/gone.target {SYSTEM}/default.target
systemctl daemon-reload
"""
# B05: gdm is masked but runs on, and only its real name says so. B07: the owner's own mask. B09:
# two of the units are not installed here. B11: a plain file where the link should be.
SPARK2 = f"""
set -e
systemctl stop cups.socket cups.path cups.service
systemctl mask --quiet cups.service
systemctl mask --quiet gdm.service
systemctl disable --quiet --now ModemManager.service gnome-remote-desktop.service
rm -r {SYSTEM}/gnome-remote-desktop.service.d
rm /usr/lib/systemd/system/ModemManager.service
rm /usr/lib/systemd/system/gnome-remote-desktop.service
rm {SYSTEM}/default.target
printf '[Unit]\\nRequires=graphical.target\\nAllowIsolate=yes\\n' > {SYSTEM}/default.target
chmod 640 {SYSTEM}/default.target
systemctl daemon-reload
"""
DESKTOP = (
    *("gdm", "gnome-remote-desktop", "cups", "cups-browsed", "bluetooth", "avahi-daemon"),
    *("ModemManager", "colord"),
)
STATES = "\n".join(
    f"echo {name} $(systemctl is-active {name}.service)" for name in DESKTOP
) + "".join(
    f"\necho {name} $(systemctl is-active {name})"
    for name in ("cups.socket", "cups.path", "avahi-daemon.socket")
)
# Each way in that a client has: the socket, the watched file, the bus, the alias.
CLIENTS = """
lpstat -r > /dev/null 2>&1
touch /var/cache/cups/org.cups.cupsd
for name in org.freedesktop.ColorManager org.freedesktop.ModemManager1 org.bluez \
        org.freedesktop.Avahi; do
    timeout 10 busctl call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus \
        StartServiceByName su $name 0 > /dev/null 2>&1
done
systemctl start gdm3.service display-manager.service > /dev/null 2>&1
sleep 2
"""


@dataclass(frozen=True)
class Prepared:
    """before: of each host with its faults; plan: of the dry run; again: the second run."""

    before: dict[str, set[str]]
    plan: list[str]
    unchanged: dict[str, set[str]]
    first: Run
    again: Run


def running(host: str, script: str = "") -> set[str]:
    """Desktop units that are active, after a script that would start them."""
    lines = on(host, f"{script}\n{STATES}").splitlines()
    return {line.split()[0] for line in lines if line.split()[1] not in ("inactive", "failed")}


@pytest.fixture(scope="module")
def once(state_home: Path) -> Prepared:
    lab("restore", "fresh")
    on("spark1", SPARK1)
    on("spark2", SPARK2)
    before = {host: look(host) for host in HOSTS}
    plan = planned("prepare", state_home)
    unchanged = {host: look(host) for host in HOSTS}
    first = ran("prepare", state_home)
    again = ran("prepare", state_home)
    remove_ranks()  # an undo is refused while an engine runs
    lab("snapshot", "services")
    return Prepared(before, plan, unchanged, first, again)


def test_a_dry_run_names_the_changes_and_makes_none(once: Prepared) -> None:
    for name in ("Boots without a desktop", "Desktop services down for good"):
        assert {f"Host | {name} on {host}" for host in HOSTS} <= {*once.plan}
    for host in HOSTS:
        assert once.unchanged[host] == once.before[host]


def test_one_run_is_enough_and_the_second_changes_nothing(once: Prepared) -> None:
    assert "Desktop services down for good" in " ".join(once.first.changed)
    assert once.again.changed == []


def test_no_client_starts_any_of_them_and_nothing_is_masked_that_is_absent(once: Prepared) -> None:
    lab("restore", "services")
    for host in HOSTS:
        assert running(host, CLIENTS) == set()
        assert on(host, f"readlink -e {SYSTEM}/default.target") == (
            "/usr/lib/systemd/system/multi-user.target\n"
        )
    assert not on("spark1", f"ls {SYSTEM} | grep bluez || true")
    assert on(
        "spark2", f"ls {SYSTEM} | grep -c -e ModemManager.service -e remote-desktop || true"
    ) == ("0\n")


def test_an_undo_gives_the_faults_back_too(once: Prepared, state_home: Path) -> None:
    lab("restore", "services")
    run = ran("undo", state_home)
    # What the owner had masked while it ran cannot be started again without taking that mask away.
    assert "it ran although it was masked; it cannot be started so" in run.text
    wanted = once.before["spark2"] - {"active gdm active"} | {"active gdm inactive"}
    assert_as_before({**once.before, "spark2": wanted})


def test_a_reboot_brings_none_of_them_back(once: Prepared) -> None:
    lab("restore", "services")
    reboot()
    for host in HOSTS:
        assert running(host) == set()
        assert on(host, "systemctl is-active graphical.target || true") == "inactive\n"
        assert on(host, "systemctl is-active multi-user.target") == "active\n"

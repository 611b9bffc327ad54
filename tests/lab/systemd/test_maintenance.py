"""Updates held on two real hosts, a run in progress awaited, let go on request, given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.given_back import assert_as_before, look
from tests.running_lab import HOSTS, lab, on, ran, remove_ranks

pytestmark = pytest.mark.long

HOLD = "Host | Updates of the host held"
BUSY_S = 40
TABLE = "/var/spool/cron/crontabs/root"  # moved: crontab -l leaves out the comments at the top
# An upgrade that takes its time, and an operator's apt-get; both leave a mark at their own end.
UPGRADE = f"""
set -e
mv {TABLE} /root/table
mkdir -p /run/systemd/system/apt-daily-upgrade.service.d
cat > /run/systemd/system/apt-daily-upgrade.service.d/lab.conf <<'END'
[Service]
ExecStartPre=
ExecStart=
ExecStart=/bin/sh -c 'sleep {BUSY_S}; touch /run/upgrade-ended'
END
systemctl daemon-reload
systemctl start --no-block apt-daily-upgrade.service
"""
LOCK = f"""
cat > /run/hold.py <<'END'
import fcntl, pathlib, time
lock = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
time.sleep({BUSY_S})
pathlib.Path("/run/lock-ended").touch()
END
nohup python3 /run/hold.py > /dev/null 2>&1 &
sleep 1
"""
TIMERS = ("apt-daily.timer", "apt-daily-upgrade.timer", "fwupd-refresh.timer")
UNITS = (*TIMERS, "unattended-upgrades.service", "fwupd.service")


def states(host: str) -> dict[str, str]:
    """unit -> active state and file state"""
    words = on(host, f"systemctl show -P ActiveState -P UnitFileState {' '.join(UNITS)}").split()
    return {name: f"{words[2 * n]} {words[2 * n + 1]}" for n, name in enumerate(UNITS)}


def test_updates_are_held_after_their_run_let_go_held_again_and_given_back(
    state_home: Path,
) -> None:
    lab("restore", "fresh")
    before = {host: look(host) for host in HOSTS}
    as_found = {host: states(host) for host in HOSTS}
    on("spark1", UPGRADE)
    on("spark2", LOCK)
    run = ran("prepare", state_home)
    assert "apt-daily-upgrade.service is activating" in run.text
    assert "/var/lib/dpkg/lock-frontend" in run.text
    on("spark1", "test -e /run/upgrade-ended")
    on("spark2", "test -e /run/lock-ended")
    for host in HOSTS:
        held = states(host)
        assert held == {
            **dict.fromkeys(UNITS, "inactive disabled"),
            "fwupd.service": "inactive masked",
        }
        ask = 'our %nrconf; do "/etc/needrestart/needrestart.conf"; print $nrconf{restart};'
        assert on(host, f"perl -e '{ask}'") == "l"
    gone = ran("rearm_maintenance", state_home)
    assert {line.split(" on ")[0] for line in gone.changed} == {"Held updates given back"}
    for host in HOSTS:
        assert states(host) == as_found[host]
        assert on(host, "systemctl is-active gdm.service || true") == "inactive\n"
    assert ran("rearm_maintenance", state_home).changed == []
    held_again = ran("prepare", state_home)
    assert {line.split(" on ")[0] for line in held_again.changed} == {HOLD}
    remove_ranks()
    ran("undo", state_home)
    on("spark1", f"mv /root/table {TABLE}")
    assert_as_before(before)

"""Clocks on real hosts: other owners of the governor, offline CPUs, caps, a GPU that answers [N/A].

The lab's CPUs have three steps, so a cap of 3300 MHz comes to 1976. nvidia-smi is a stub on spark1
that writes down what it is called with; spark2 has none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.given_back import assert_as_before, look
from tests.running_lab import HOSTS, REPOSITORY, job, lab, on, planned, ran, reboot, remove_ranks

pytestmark = pytest.mark.long

CLOCKS = str(REPOSITORY / "tests" / "lab" / "clocks" / "limited.py")
CPUFREQ = "/sys/devices/system/cpu/cpufreq"
SPOIL = f"for p in {CPUFREQ}/policy*/scaling_governor; do echo performance > $p; done"
OWNERS = "Host | Nothing else sets the CPU governor"
GOVERNOR = "Host | CPU governor on every policy"
CAP = "Host | CPU clock cap on every policy"
GPU = "Host | GPU clocks locked"

# C01 and C07: one that writes a minute after the start, and a desktop's profile daemon.
SPARK1 = rf"""
cat > /usr/local/bin/nvidia-smi <<'END'
#!/bin/sh
echo "$*" >> /var/log/nvidia-smi.calls
case "$1" in
--query-gpu=*) echo 'NVIDIA GB10, 580.95.05, [N/A], 51, [N/A], [N/A], [N/A], [N/A]' ;;
--lock-gpu-clocks=*) echo 'GPU clocks set to "(gpuClkMin 300, gpuClkMax 2450)" for GPU 0' ;;
esac
END
chmod 755 /usr/local/bin/nvidia-smi
cat > /etc/systemd/system/vendor-clocks.service <<'END'
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'sleep 60; {SPOIL}'
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --quiet vendor-clocks.service
systemctl enable --quiet --now power-profiles-daemon.service
powerprofilesctl set power-saver
"""
# C01: an init script, and a unit of the owner's own that a timer starts through a script.
SPARK2 = rf"""
cat > /etc/init.d/cpufrequtils <<'END'
#!/bin/sh
### BEGIN INIT INFO
# Provides: cpufrequtils
# Required-Start: $remote_fs
# Required-Stop:
# Default-Start: 2 3 4 5
# Default-Stop:
### END INIT INFO
{SPOIL}
END
cat > /usr/local/sbin/full-clocks <<'END'
#!/bin/sh
{SPOIL}
END
cd /etc/systemd/system
printf '[Service]\nExecStart=/usr/local/sbin/full-clocks\n' > full-clocks.service
printf '[Timer]\nOnBootSec=60\nOnUnitActiveSec=30\n[Install]\nWantedBy=timers.target\n' \
    > full-clocks.timer
chmod 755 /etc/init.d/cpufrequtils /usr/local/sbin/full-clocks
systemctl daemon-reload
update-rc.d cpufrequtils defaults
systemctl start cpufrequtils.service
systemctl enable --quiet --now full-clocks.timer
"""
READ = rf"""
grep -H . {CPUFREQ}/policy*/scaling_max_freq
for unit in vendor-clocks full-clocks cpufrequtils power-profiles-daemon; do
    systemctl show --property=Id,LoadState,ActiveState,UnitFileState $unit.service
done
systemctl show --property=ActiveState,UnitFileState full-clocks.timer
systemctl is-active --quiet power-profiles-daemon && powerprofilesctl get || true
"""


def governors(host: str) -> list[str]:
    """Governor and cap in MHz of every policy whose CPUs are online."""
    return on(
        host,
        f'for p in {CPUFREQ}/policy*; do [ -n "$(cat $p/affected_cpus)" ] || continue; '
        "echo $(cat $p/scaling_governor) $(($(cat $p/scaling_max_freq) / 1000)); done",
    ).splitlines()


def owned() -> None:
    """`fresh` with other owners of the governor on both hosts."""
    lab("restore", "fresh")
    on("spark1", "crontab -r")  # its watchdog would start the old engine again before the undo
    on("spark1", f"set -e{SPARK1}")
    on("spark2", f"set -e{SPARK2}")


def calls() -> list[str]:
    """What nvidia-smi was called with, questions left out."""
    lines = on("spark1", "cat /var/log/nvidia-smi.calls 2> /dev/null || true").splitlines()
    return [line for line in lines if not line.startswith("--query-gpu=")]


def test_c03_a_governor_that_is_not_offered_leaves_both_hosts_alone(state_home: Path) -> None:
    lab("restore", "fresh")
    before = {host: look(host) for host in HOSTS}
    offered = f"{CPUFREQ}/policy0/scaling_available_governors"
    on("spark2", f"echo performance powersave > /run/offered; mount --bind /run/offered {offered}")
    run = job("prepare", state_home)
    assert run.status == 1
    assert run.changed == []
    assert "spark2: policy0 offers performance powersave, not schedutil" in run.text
    assert "spark1: policy0" not in run.text
    on("spark2", f"umount {offered}; rm /run/offered")
    assert {host: look(host) for host in HOSTS} == before


def test_owners_and_limits_are_settled_and_given_back(state_home: Path) -> None:
    owned()
    before = {host: look(host) for host in HOSTS}
    read = {host: on(host, READ) for host in HOSTS}
    both = [f"{name} on {host}" for name in (OWNERS, GOVERNOR, CAP) for host in HOSTS]

    plan = planned("prepare", state_home, CLOCKS)
    assert {*both, f"{GPU} on spark1"} <= {*plan}
    assert f"{GPU} on spark2" not in plan
    assert ({host: look(host) for host in HOSTS}, calls()) == (before, [])

    on("spark2", "echo 0 > /sys/devices/system/cpu/cpu1/online")
    run = ran("prepare", state_home, CLOCKS)
    assert {*both, f"{GPU} on spark1"} <= {*run.changed}
    for said in (
        "sets the CPU governor, too: vendor-clocks.service is inactive/enabled",
        "sets the CPU governor, too: power-profiles-daemon.service is active/enabled",
        "power profile in force: power-saver",
        "sets the CPU governor, too: full-clocks.timer is active/enabled",
        "sets the CPU governor, too: cpufrequtils.service is active/generated",
        "skipped, all CPUs offline: policy1",
        "unsupported: no nvidia-smi here",
    ):
        assert said in run.text
    assert set(governors("spark1")) == {"schedutil 1976"}
    assert "schedutil 1976" in governors("spark2")
    assert calls()[-1] == "--lock-gpu-clocks=300,2450"
    asleep = on("spark1", "systemctl is-active power-profiles-daemon vendor-clocks || true").split()
    assert asleep == ["inactive", "inactive"]
    # Whoever asks for it over D-Bus does not get it.
    on("spark1", "! powerprofilesctl get")
    assert ran("prepare", state_home, CLOCKS).changed == []

    # C05: a CPU that comes back does so as it was.
    on("spark2", "echo 1 > /sys/devices/system/cpu/cpu1/online")
    assert any(line.startswith("performance") for line in governors("spark2"))
    back = ran("prepare", state_home, CLOCKS).changed
    assert f"{GOVERNOR} on spark2" in back
    assert {line.rpartition(" on ")[2] for line in back} == {"spark2"}
    assert set(governors("spark2")) == {"schedutil 1976"}
    assert ran("prepare", state_home, CLOCKS).changed == []

    remove_ranks()
    ran("undo", state_home, CLOCKS)
    assert_as_before(before)
    assert {host: on(host, READ) for host in HOSTS} == read
    assert calls()[-1] == "--reset-gpu-clocks"


def test_settled_clocks_outlive_a_start(state_home: Path) -> None:
    """Looked at when the owners that wait for a minute would have written."""
    owned()
    ran("prepare", state_home, CLOCKS)
    on("spark1", "rm /var/log/nvidia-smi.calls")
    reboot()
    for host in HOSTS:
        on(host, "until [ $(cut -d. -f1 /proc/uptime) -gt 100 ]; do sleep 2; done")
        assert set(governors(host)) == {"schedutil 1976"}
        assert on(host, "systemctl is-failed spark-converge-governor || true") == "active\n"
    assert calls() == ["--reset-gpu-clocks", "--lock-gpu-clocks=300,2450"], "as it goes and comes"
    assert ran("prepare", state_home, CLOCKS).changed == []

"""The control connection survives a fabric change, and so does a power cut in the middle of one.

Pulled cables are in test_verify.py.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.lab.fabric_pair import SPARK_HOST, owner, restore_quiet
from tests.running_lab import HOSTS, job, lab, on, reading, ssh_config

pytestmark = pytest.mark.long

HOST = HOSTS[1]
TRIAL_S = 30
BACK_S = 150  # `netplan apply` twice under emulation, and what the links need to settle
MANAGEMENT = """\
network:
  version: 2
  ethernets:
    enP7s7: {renderer: networkd, dhcp4: no, link-local: [], addresses: [10.99.0.1/24]}
"""


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, state_home: Path) -> None:
    restore_quiet(tmp_path / "quiet", state_home)


def trial(files: dict[str, str], seconds: int) -> None:
    plan = {
        **{"files": files, "shadow": [], "delete_links": [], "created_links": ["bond0"]},
        **{"devices": ["bond0", "enp1s0f0np0", "enp1s0f1np1", "enP7s7"]},
    }
    text = json.dumps(plan)
    on(HOST, f"{SPARK_HOST} fabric try {seconds} <<'END'\n{text}\nEND\n")


def answers() -> bool:
    line = ["ssh", "-F", ssh_config(), "-o", "ControlPath=none", "-o", "ConnectTimeout=5", HOST]
    try:
        done = subprocess.run([*line, "true"], capture_output=True, timeout=15, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def test_a_wrong_address_of_the_management_link_is_refused_before_any_apply(
    tmp_path: Path, state_home: Path
) -> None:
    on(HOST, "sed -i s/10.0.2.12/10.0.2.99/ /etc/netplan/01-mgmt.yaml")
    before = {host: reading(host) for host in HOSTS}
    run = job("prepare", state_home, inventory=owner(tmp_path / "bond"))
    assert run.status == 1
    assert (
        "spark2: /etc/netplan/01-mgmt.yaml: addresses of enP7s7 are 10.0.2.99/24, the link has "
        "10.0.2.12/24" in run.text
    )
    assert {host: reading(host) for host in HOSTS} == before


def test_a_change_that_cuts_the_control_connection_reverts_by_itself() -> None:
    before = reading(HOST)
    trial({"01-mgmt.yaml": MANAGEMENT}, TRIAL_S)
    began = time.monotonic()
    while answers() and time.monotonic() < began + TRIAL_S:
        time.sleep(1)
    assert not answers(), "the change did not cut the connection"
    while not answers():
        assert time.monotonic() < began + TRIAL_S + BACK_S, "the host stays cut off"
    while (said := on(HOST, f"{SPARK_HOST} fabric status")).startswith('{"phase": "applied"'):
        assert time.monotonic() < began + TRIAL_S + BACK_S, said
        time.sleep(1)
    deadline = time.monotonic() + BACK_S
    while '"reverted"' not in said and time.monotonic() < deadline:
        time.sleep(2)
        said = on(HOST, f"{SPARK_HOST} fabric status")
    assert '"reverted"' in said
    assert on(HOST, "ls /run/netplan") == ""
    assert networks(reading(HOST)) == networks(before)


def networks(text: str) -> list[str]:
    """The lines of a reading that are about addresses, MTUs and netplan."""
    return [line for line in text.splitlines() if "netplan" in line or "192.168" in line]


def test_a_power_cut_between_trial_and_confirmation_boots_the_old_network() -> None:
    before = networks(reading(HOST))
    bond = "network: {version: 2, bonds: {bond0: {renderer: networkd, addresses: [10.9.9.9/24]}}}"
    trial({"60-spark-converge.yaml": bond + "\n"}, 600)
    deadline = time.monotonic() + BACK_S
    while '"applied"' not in on(HOST, f"{SPARK_HOST} fabric status"):
        assert time.monotonic() < deadline
        time.sleep(1)
    on(HOST, "test -e /sys/class/net/bond0")
    lab("power", HOST, "reset")
    assert on(HOST, "ls -d /sys/class/net/bond0 /run/netplan 2>/dev/null || :") == ""
    deadline = time.monotonic() + 60
    while networks(reading(HOST)) != before and time.monotonic() < deadline:
        time.sleep(2)
    assert networks(reading(HOST)) == before

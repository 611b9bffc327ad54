"""Two runs at once, a run that was killed, and a port that somebody else has (field case H05)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.running_lab import HOSTS, REPOSITORY, job, lab, on

pytestmark = pytest.mark.long


def begun(name: str, state_home: Path) -> subprocess.Popen[bytes]:
    """A job in the background that has the lease of both hosts."""
    line = [sys.executable, "-m", "pyinfra", "inventory/lab.py", f"deploys/{name}.py", "-y"]
    process = subprocess.Popen(
        line,
        cwd=REPOSITORY,
        env=os.environ | {"XDG_STATE_HOME": str(state_home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for host in HOSTS:
        on(
            host,
            "timeout 120 sh -c 'until [ -s /run/spark-converge/lease.json ]; do sleep 1; done'",
        )
    return process


def test_a_second_run_is_refused_and_one_after_a_kill_goes_on_at_once(state_home: Path) -> None:
    lab("restore", "fresh")
    first = begun("prepare", state_home)
    second = job("prepare", state_home)
    assert second.status == 1
    assert second.changed == []
    assert f"(pid {first.pid}), is running; last heard of" in second.text
    assert first.poll() is None, "the first one was still at it"
    first.send_signal(signal.SIGKILL)
    first.wait()
    again = job("prepare", state_home)
    assert again.status == 0, again.text
    assert on("spark1", "ls /run/spark-converge/").split().count("lease.json") == 0, "given back"


def test_a_run_of_a_machine_that_was_lost_keeps_others_away_for_a_minute(state_home: Path) -> None:
    lab("restore", "fresh")
    lost = '{"run": "x", "job": "serve", "who": "milo@lost (pid 7)", "origin": "lost-boot/1 7 1"}'
    program = "python3 -I /usr/local/lib/spark-converge/spark_host"
    assert job("stop", state_home).status == 0  # it installs the program
    on("spark2", f"{program} lease renew '{lost}'")
    began = time.monotonic()
    refused = job("rearm_maintenance", state_home)
    assert refused.status == 1
    assert "serve of milo@lost (pid 7) is at work" in refused.text
    while (run := job("rearm_maintenance", state_home)).status and time.monotonic() - began < 120:
        time.sleep(5)
    assert run.status == 0, run.text


def test_h05_a_leftover_on_the_rendezvous_port_is_named(state_home: Path) -> None:
    lab("restore", "fresh")
    script = "import socket,time; s=socket.create_server(('0.0.0.0', 25000)); time.sleep(900)"
    on("spark1", f'systemd-run --quiet --unit=leftover python3 -c "{script}"')
    on("spark1", "timeout 60 sh -c 'until ss -Hltn | grep -q :25000; do sleep 1; done'")
    pid = on("spark1", "systemctl show --property=MainPID --value leftover").strip()
    run = job("serve", state_home)
    assert run.status == 1
    assert run.changed == []
    assert f"port 25000 (rendezvous of lab) is held by python3 (pid {pid})" in run.text
    assert on("spark1", "systemctl is-active leftover").strip() == "active", "not ours to end"

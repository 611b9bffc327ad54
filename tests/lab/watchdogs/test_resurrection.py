"""Field case A14 on real hosts: one watchdog in many places, found, held, and given back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running_lab import Run, job, lab, on

pytestmark = pytest.mark.long

HOST = "spark1"
MARK = "/run/watchdog-ran"
# Harmless in its deed, a starter by its words.
SCRIPT = f"#!/bin/sh\ndate >> {MARK}\n: docker compose up --detach\n"
PROGRAM = "python3 -I /usr/local/lib/spark-converge/spark_host"
UNITS = "/etc/systemd/system/spark-ready"
USER_UNITS = "/home/nvidia/.config/systemd/user/lane"
SERVICE = "[Service]\\nType=oneshot\\nExecStart=/usr/local/bin/again.sh\\n"
TIMER = "[Timer]\\nOnCalendar=*:*:00\\nAccuracySec=1s\\n[Install]\\nWantedBy=timers.target\\n"
AS_USER = "runuser -u nvidia -- env XDG_RUNTIME_DIR=/run/user/$(id -u nvidia) systemctl --user"

INSTALL = f"""
set -eu
cat > /usr/local/bin/again.sh <<'END'
{SCRIPT}END
chmod 755 /usr/local/bin/again.sh
printf '{SERVICE}' > {UNITS}.service
printf '{TIMER}' > {UNITS}.timer
loginctl enable-linger nvidia
runuser -u nvidia -- mkdir -p /home/nvidia/.config/systemd/user
printf '{SERVICE}' > {USER_UNITS}.service
printf '{TIMER}' > {USER_UNITS}.timer
printf '*/7 * * * * root /usr/local/bin/again.sh\\n' > /etc/cron.d/again
printf '*/7 * * * * root /usr/local/bin/again.sh\\n' > /etc/cron.d/again.bak
install -m 750 /usr/local/bin/again.sh /etc/cron.hourly/again
cp {UNITS}.service {UNITS}@.service
cp {UNITS}.timer {UNITS}@.timer
systemctl daemon-reload
systemctl enable --now --quiet spark-ready.timer spark-ready@1.timer
systemctl start spark-ready@2.timer
systemd-run --quiet --unit=lost --on-calendar=daily /usr/local/bin/again.sh
for n in $(seq 30); do [ -e /run/user/$(id -u nvidia)/systemd/private ] && break; sleep 1; done
{AS_USER} daemon-reload
{AS_USER} enable --now --quiet lane.timer
"""
# All files that the watchdogs live in, with their modes and owners, and what has a timer armed.
STATE = f"""
find /etc/systemd/system /home/nvidia/.config /etc/cron* /usr/local/bin -type f -o -type l |
    sort | while read -r f; do echo "$f $(stat -c '%a %U %G' "$f") $(sha256sum < "$f")"; done
systemctl list-timers --no-legend --plain 'spark-ready*' lost.timer |
    awk '{{print $(NF-1), $NF}}' | sort
{AS_USER} list-timers --no-legend --plain lane.timer | awk '{{print $(NF-1), $NF}}'
systemctl is-enabled spark-ready.timer spark-ready@1.timer
systemctl is-active lost.timer
"""
KINDS = {"cron lines", "cron folders", "system units", "user units"}
QUIET = ("--data", "quiet=5")


def drifted(run: Run) -> set[str]:
    """Kinds of things on the host that could start an engine, where verify says drift."""
    assert run.folder is not None, run.text
    found: dict[str, Any] = json.loads((run.folder / "verify.json").read_text())
    items = found["hosts"][HOST]["items"]
    kinds = {*KINDS, "at jobs", "restart policies"}
    return {i["name"] for i in items if i["verdict"] == "drift" and i["name"] in kinds}


@pytest.fixture(scope="module")
def stopped(state_home: Path) -> None:
    """`fresh` without its engines, and without the watchdog of its own that guards them."""
    lab("restore", "fresh")
    run = job("stop", state_home, *QUIET)
    assert run.status == 0, run.text


def test_an_at_job_is_refused_before_anything_is_changed(stopped: None, state_home: Path) -> None:
    on(HOST, "echo 'docker compose up -d' | at now + 1 day 2> /dev/null")
    number = on(HOST, "atq | awk '{print $1}'").strip()
    refused = job("serve", state_home)
    assert refused.status == 1
    assert f"atrm {number}" in refused.text
    assert refused.changed == []
    assert drifted(job("verify", state_home)) == {"at jobs"}
    on(HOST, f"atrm {number}")


@pytest.fixture
def watchdogs(stopped: None) -> Iterator[str]:
    """The same script behind a cron.d line, a cron folder, timers of the system and of a user."""
    on(HOST, INSTALL)
    yield on(HOST, STATE)
    on(HOST, f"loginctl disable-linger nvidia; rm -f {MARK}")


def test_every_place_is_found_held_and_given_back(watchdogs: str, state_home: Path) -> None:
    """Last here: the re-arm gives the old lane its own watchdog back too."""
    assert drifted(job("verify", state_home)) == KINDS
    held = job("stop", state_home, *QUIET)
    assert held.status == 0, held.text
    assert [line.split(" | ")[-1] for line in held.changed] == [
        f"Cron watchdogs held behind a dated tag on {HOST}",
        f"Units and timers that start engines held on {HOST}",
    ]
    assert drifted(job("verify", state_home)) == set()
    # `nothing on a timer` is what the timers themselves say, and no activator can start it.
    timers = "'spark-ready*' | grep -c . || true"
    assert on(HOST, f"systemctl list-timers --no-legend {timers}") == "0\n"
    assert on(HOST, f"{AS_USER} list-timers --no-legend lane.timer | grep -c . || true") == "0\n"
    on(HOST, f"rm -f {MARK}; systemctl start spark-ready.service spark-ready@7.service")
    on(HOST, f"{AS_USER} start lane.service; run-parts /etc/cron.hourly; ! [ -e {MARK} ]")
    assert job("stop", state_home, *QUIET).changed == []
    # Rollback gives all back; here by the program's own commands, which take seconds.
    on(HOST, f"{PROGRAM} holds rearm; {PROGRAM} crontab rearm")
    assert on(HOST, STATE) == watchdogs

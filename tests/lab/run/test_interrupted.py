"""prepare cut off at ten points: by a kill of the control process, or by a host's plug pulled."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.common.paths import lab_home
from lab.guests.ssh import wait_units
from lab.pair.verbs import power
from tests.lab.given_back import assert_as_before, look
from tests.running_lab import HOSTS, job, lab, on, ran, remove_ranks, started

pytestmark = pytest.mark.long

HOST = "spark2"
JOURNAL = "/var/lib/spark-converge/journal"
PHASE = "/run/spark-converge/fabric/phase"
REACH_S = 60  # for what a point waits for on the host
END_S = 300  # until a run has noticed that a host is gone


@dataclass(frozen=True)
class Point:
    """operation: words in the name of the one that has just started; until: a shell condition
    that HOST is watched for after that."""

    operation: str
    until: str = "true"


BEFORE_FABRIC = (
    Point("Nothing forbids this job"),
    Point("On-host program installed"),
    Point("Updates of the host held", f"[ -e {JOURNAL}/pending.json ]"),
    # At once, while the host may still do what the killed run had asked for.
    Point("Boots without a desktop"),
    Point("Desktop services down for good", f"[ -e {JOURNAL}/pending.json ]"),
    Point("Desktop services down for good"),
    Point("CPU governor on every policy", f"ls {JOURNAL}/settings | grep -q governor"),
    Point("Model files of lab by SHA-256"),
)
TRYING = Point("Fabric as the owner's file says", f"grep -q trying {PHASE}")
APPLIED = Point("Fabric as the owner's file says", f"grep -q applied {PHASE}")
TEN = (*BEFORE_FABRIC, TRYING, APPLIED)


def cut_off(point: Point, state_home: Path, cut: Callable[[int], None]) -> str:
    """Run prepare and cut it off at a point; what it said.

    + cut: takes the process id of the control process
    """
    watch = f"n=0; until {point.until}; do n=$((n + 1)); [ $n -lt {REACH_S * 10} ]; sleep 0.1; done"
    said, reached = [], False
    with started("prepare", state_home) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if not reached and "Starting operation" in line and point.operation in line:
                reached = True
                on(HOST, f"set -e; {watch}")
                cut(process.pid)
        status = process.wait(timeout=END_S)
    text = "".join(said)
    assert reached, f"never came to {point}:\n{text}"
    assert status != 0, f"not cut off at {point}:\n{text}"
    return text


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def pull_plug(_pid: int) -> None:
    power(lab_home(), HOST, "off")


@pytest.fixture(scope="module")
def before() -> dict[str, set[str]]:
    """Each host on `before-cuts`: dirty, but no engine runs, so that prepare takes the fabric."""
    lab("restore", "fresh")
    on(HOSTS[0], "crontab -r")  # its watchdog would start the old engine within a minute
    remove_ranks()
    found = {host: look(host) for host in HOSTS}
    lab("snapshot", "before-cuts")
    return found


@pytest.fixture(scope="module")
def killed(before: dict[str, set[str]], state_home: Path) -> dict[str, set[str]]:
    """A pair on which eight runs were killed, one after another, none of them at the fabric."""
    lab("restore", "before-cuts")
    for point in BEFORE_FABRIC:
        cut_off(point, state_home, kill)
    lab("snapshot", "killed")
    return before


def assert_completed_and_undone(before: dict[str, set[str]], state_home: Path) -> None:
    """prepare succeeds, the next one has nothing left to do, and undo gives all back.

    A trial of the fabric that nobody confirmed goes back by itself; until then a run says when to
    come again.
    """
    run = job("prepare", state_home)
    if later := re.search(r"still open or being reverted; run this again in (\d+) s", run.text):
        time.sleep(int(later[1]))
        run = job("prepare", state_home)
    assert run.status == 0, run.text
    assert ran("prepare", state_home).changed == []
    ran("undo", state_home)
    assert_as_before(before)


@pytest.mark.parametrize("point", [None, TRYING, APPLIED], ids=["no more", "trying", "applied"])
def test_killed_runs_are_completed_by_the_next_and_can_be_undone(
    point: Point | None, killed: dict[str, set[str]], state_home: Path
) -> None:
    lab("restore", "killed")
    if point:
        cut_off(point, state_home, kill)
    assert_completed_and_undone(killed, state_home)


def test_a_host_whose_plug_was_pulled_ten_times_is_completed_by_the_next_run_and_can_be_undone(
    before: dict[str, set[str]], state_home: Path
) -> None:
    """One after another, so that each boot finds what all the cuts before it have left."""
    lab("restore", "before-cuts")
    for point in TEN:
        text = cut_off(point, state_home, pull_plug)
        assert "Traceback" not in text, f"{point}:\n{text}"
        assert HOST in text, f"{point}:\n{text}"
        lab("power", HOST, "on")
        wait_units(lab_home(), HOST)
    assert_completed_and_undone(before, state_home)

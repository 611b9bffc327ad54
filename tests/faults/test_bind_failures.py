"""A launch that goes wrong ends with both ranks down, both logs here and one sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.running_lab import (
    HOSTS,
    Run,
    completion,
    containers,
    job,
    lab,
    reading,
    remove_ranks,
    set_fault,
)

STALL_S, CANARY_S = 30, 60  # deadlines of files/stacks/lab.yaml
LOAD_S = 150  # a bind of the lab takes 40 to 90 s, the more the busier this machine is


@dataclass(frozen=True)
class Fault:
    """host: where it is switched on; limit_s: by when the bind must have ended."""

    host: str
    text: str
    reason: str
    limit_s: float


FAULTS = {
    "head ends in the load": Fault(
        "spark1", "exit-at-shard=10", r"rank 0 on spark1 ended with exit status 1\b", LOAD_S
    ),
    "worker chatters without progress": Fault(
        "spark2",
        "chatter-at-shard=60",
        rf"no progress for \d+ s \(stall limit {STALL_S} s\)",
        LOAD_S + STALL_S,
    ),
    "completions hang, health says 200": Fault(
        "spark1",
        "completions-hang",
        r"no progress .* asked for a completion",
        LOAD_S + 60 + STALL_S,
    ),
}


def assert_clean_failure(run: Run, reason: str) -> None:
    """Both ranks down, both logs collected, one sentence, exit status 1, no traceback."""
    assert run.status == 1, run.text
    assert "Traceback" not in run.text
    assert re.search(reason, run.receipt["reason"]), run.receipt["reason"]
    assert "all ranks are down" in run.receipt["reason"]
    assert [containers(host) for host in HOSTS] == [[], []]
    assert run.folder is not None
    for rank, host in enumerate(HOSTS):
        log = (run.folder / f"rank{rank}-{host}.log").read_text()
        assert "loading shard" in log, log


def test_worker_killed_in_the_load_and_a_plain_rerun(served: None, state_home: Path) -> None:
    """The failure leaves nothing that stands in the way of the next run."""
    remove_ranks()
    set_fault("spark2", "die-at-shard=60")
    killed = job("serve", state_home)
    assert_clean_failure(killed, r"rank 1 on spark2 ended with exit status 137")
    assert killed.stage_s("Bind") < LOAD_S
    set_fault("spark2", "")
    again = job("serve", state_home)
    assert again.status == 0, again.text
    assert "391" in completion("lab-model")


LONG = {"head ends in the load", "completions hang, health says 200"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n in LONG else n for n in FAULTS]
)
def test_failed_bind_ends_clean_and_in_time(served: None, state_home: Path, name: str) -> None:
    fault = FAULTS[name]
    remove_ranks()
    set_fault(fault.host, fault.text)
    run = job("serve", state_home)
    assert_clean_failure(run, fault.reason)
    assert run.stage_s("Bind") < fault.limit_s


def test_serve_changes_nothing_when_a_host_is_off(fresh: None, state_home: Path) -> None:
    lab("power", "spark2", "off")
    before = reading("spark1")
    run = job("serve", state_home)
    assert run.status == 1, run.text
    assert "Traceback" not in run.text
    assert re.search(r"spark2: cannot be reached", run.text), run.text
    assert reading("spark1") == before

"""Rule 1: on a pair that serves as wanted, no operation of serve has anything to do.

@fake has no SSH link for the canary, so its answer is put into the run here; the rest is decided
from the snapshots, by the operations themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.operation import add_op

from operations.clocks import cpufreq, governor_owners
from operations.launch import bind, ping, teardown
from operations.memory import ritual
from operations.model import images, shards
from operations.network import fabric
from operations.network.netplan import PATH, document
from operations.network.wanted import wanted
from operations.pair.identity import unlike
from operations.run import program
from operations.run.job import Here, Job
from operations.systemd import boot, maintenance, services, userunits
from operations.watchdogs import crontab, resurrection
from stacks.definition import Stack, load, names
from tests.plan.made_job import made_job
from tests.plan.made_pair import CRONTAB, Snapshot, cluster, file_of, locked, running, table_of

PAIR = cluster()

Step = tuple[Callable[..., Any], dict[str, Any]]


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stack, Stack]:
    folder: Path = tmp_path_factory.mktemp("locks")
    return locked("lab", folder), locked("dsf-lab", folder)


def steps() -> Iterator[Step]:
    """Every operation of serve on one host that could change something."""
    yield program.installed, {}
    yield maintenance.held, {}
    yield boot.default_target, {}
    yield services.down_for_good, {}
    yield userunits.down_for_good, {}
    yield governor_owners.sole_owner, {}
    yield cpufreq.governor, {}
    yield images.present, {}
    yield shards.verified, {}
    yield crontab.held, {"for_good": True}
    yield resurrection.held, {"for_good": True}
    yield teardown.ended, {}
    yield teardown.foreign_stopped, {"engines_only": False}
    yield ritual.shm_clean, {}
    yield ping.crossed, {}


def wide_steps() -> Iterator[Step]:
    """Those that look at all hosts."""
    yield fabric.converged, {"after_teardown": True}
    yield teardown.stay_down, {"seconds": 10}
    yield ritual.caches_dropped, {}
    yield bind.bound, {}


def changes(job: Job) -> list[str]:
    """Names of the operations that would change something, as module.operation, each once."""
    found = []
    for rank, host in enumerate(job.hosts):
        for call, words in (*steps(), *wide_steps()):
            inner = call._inner  # type: ignore[attr-defined]
            metas = add_op(job.state, call, here=Here(job, rank), host=host, **words)
            if metas[host].will_change:
                found.append(f"{inner.__module__.rsplit('.', 1)[1]}.{inner.__name__}")
    return list(dict.fromkeys(found))


def run(stacks: tuple[Stack, Stack], snapshots: list[Snapshot], answers: list[str]) -> list[str]:
    lab, dsf = stacks
    # as deploys.steps.begin does: all that are shipped, the two of the lab with their locks
    known = tuple({lab.name: lab, dsf.name: dsf}.get(name) or load(name) for name in names())
    job = made_job(PAIR, snapshots, lab, known)
    job.answers[False] = answers
    return changes(job)


def test_a_pair_that_serves_as_wanted_is_left_alone(stacks: tuple[Stack, Stack]) -> None:
    assert run(stacks, running(PAIR, *stacks), []) == []


@pytest.mark.parametrize("note", ["", "# a note of the owner's\n"])
def test_mode_and_comments_of_our_netplan_file_are_set_right_in_place(
    stacks: tuple[Stack, Stack], note: str
) -> None:
    found = running(PAIR, *stacks)
    text = document(wanted(PAIR, PAIR.head)) + note
    found[0]["fabric"]["netplan"][PATH] = file_of(text, 0o600 if note else 0o644)
    assert run(stacks, found, []) == ["fabric.converged"]
    # run asks no host; what really decides whether the ranks are as wanted:
    job = made_job(PAIR, found, stacks[0], stacks)
    job.settles = True
    assert unlike(job.looks()[0]) == []


def test_one_that_does_not_answer_is_taken_down_and_launched(stacks: tuple[Stack, Stack]) -> None:
    assert run(stacks, running(PAIR, *stacks), ["no completion"]) == [
        "teardown.ended",
        "ping.crossed",
        "teardown.stay_down",
        "ritual.caches_dropped",
        "bind.bound",
    ]


def test_a_watchdog_that_was_armed_again_is_held_beside_a_serving_pair(
    stacks: tuple[Stack, Stack],
) -> None:
    pair = running(PAIR, *stacks)
    pair[0]["crontab"]["users"]["root"] = table_of(CRONTAB)
    assert run(stacks, pair, []) == ["crontab.held"]


def test_dead_segments_go_without_a_launch(stacks: tuple[Stack, Stack]) -> None:
    pair = running(PAIR, *stacks)
    pair[1]["memory"]["shm"] = [{"name": "psm_1", "bytes": 8, "verdict": "leftover"}]
    assert run(stacks, pair, []) == ["ritual.shm_clean"]


def test_live_and_foreign_segments_are_no_change(stacks: tuple[Stack, Stack]) -> None:
    pair = running(PAIR, *stacks)
    pair[1]["memory"]["shm"] = [
        {"name": "psm_1", "bytes": 8, "verdict": "live"},
        {"name": "pulse-1", "bytes": 8, "verdict": "foreign"},
        {"name": "psm_2", "bytes": 8, "verdict": "special"},
    ]
    assert run(stacks, pair, []) == []

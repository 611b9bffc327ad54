"""What each fault of the faults file does to a pair."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.engine.conftest import Ranks


def test_stall_stops_the_lines_until_it_is_lifted(ranks: Ranks) -> None:
    ranks.fault(1, "stall-at-shard=4\n")
    worker, head = ranks.start(1), ranks.start(0)
    ranks.wait_for_line(worker, "shard 3/12")
    ranks.wait_for_line(head, "waiting for the other ranks")
    lines = ranks.lines(worker)
    ranks.wait_in_silence()
    assert ranks.lines(worker) == lines
    ranks.fault(1, "")
    ranks.wait_ready(head)


def test_chatter_repeats_a_line_that_differs_in_numbers_only(ranks: Ranks) -> None:
    ranks.fault(0, "chatter-at-shard=4\n")
    head = ranks.start(0)
    ranks.start(1)
    ranks.wait_for_line(head, "still reading", times=2)
    chatter = [line for line in ranks.lines(head) if "still reading" in line]
    assert len(set(chatter)) == len(chatter)
    assert len({"".join(c for c in line if not c.isdigit()) for line in chatter}) == 1
    assert "shard 4/12 model" not in ranks.log(head)


def test_die_is_a_kill(ranks: Ranks) -> None:
    ranks.fault(1, "die-at-shard=4\n")
    worker, head = ranks.start(1), ranks.start(0)
    assert ranks.status(worker) == -signal.SIGKILL
    assert "shard 3/12" in ranks.log(worker)
    assert "shard 4/12" not in ranks.log(worker)
    ranks.wait_for_line(head, "waiting for the other ranks")
    ranks.assert_hangs()
    assert len(ranks.segments()) == 6


def test_exit_is_an_error_line_and_status_1(ranks: Ranks) -> None:
    ranks.fault(0, "exit-at-shard=4\n")
    head = ranks.start(0)
    ranks.start(1)
    assert ranks.status(head) == 1
    assert "ERROR: RuntimeError: shard 4/12" in ranks.lines(head)[-1]


def test_slow_load_takes_that_long(ranks: Ranks) -> None:
    ranks.fault(1, "slow-load=1.2\n")
    started = time.monotonic()
    ranks.start_pair()
    assert time.monotonic() - started > 1.2


@pytest.mark.parametrize("rank", [0, 1])
def test_refused_rendezvous_ends_the_worker(ranks: Ranks, rank: int) -> None:
    ranks.fault(rank, "refuse-rendezvous\n")
    head, worker = ranks.start(0), ranks.start(1)
    assert ranks.status(worker) == 1
    assert "ERROR: rank " in ranks.lines(worker)[-1]
    assert head.poll() is None


def test_faults_of_answers(ranks: Ranks) -> None:
    ranks.start_pair()
    ranks.fault(0, "answer-empty\n")
    assert ranks.content("hello") == ""
    ranks.fault(0, "answer-wrong-model\n")
    assert ranks.ask("hello").json()["model"] == "another-model"
    ranks.fault(0, "completions-hang\n")
    ranks.assert_hangs()
    ranks.fault(0, "")
    assert ranks.content("2+3") == "5"

"""What deploys/lock.py would do, and when it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plan.conftest import Pair

READS = [
    ("Files of lab/tiny asked of the Hub", ("spark1",)),
    ("On-host program installed", ("spark1", "spark2")),
    ("Model files of lab read in full", ("spark1", "spark2")),
    ("Lock of lab written", ("spark1",)),
]


def test_the_hub_is_asked_before_anything_is_read(pair: Callable[..., Pair]) -> None:
    assert pair().plan("lock").changes == READS


def test_a_host_whose_state_is_not_as_wanted_can_be_read_all_the_same(
    pair: Callable[..., Pair],
) -> None:
    """The job changes nothing there: no governor, no docker is needed for a hash."""
    made = pair()
    for snapshot in made.snapshots:
        snapshot["containers"] = {"installed": False, "containers": []}
        for one in snapshot["cpufreq"]["policies"].values():
            one["offered"] = ["performance", "powersave"]
    assert made.plan("lock").changes == READS


def test_a_host_that_is_gone_is_said_and_nothing_is_read(pair: Callable[..., Pair]) -> None:
    run = pair().plan("lock", gone="spark2")
    assert run.status != 0
    assert "spark2: cannot be reached" in run.out + run.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stack=none",), "'none' found"),
        (("model=lab/other",), "lab has no revision of lab/other: --data model=ORG/NAME"),
    ],
)
def test_what_cannot_be_locked_is_refused_in_one_sentence(
    pair: Callable[..., Pair], words: tuple[str, ...], said: str
) -> None:
    run = pair().plan("lock", *(part for word in words for part in ("--data", word)))
    assert run.status != 0
    assert said in run.out + run.err
    assert "Traceback" not in run.err

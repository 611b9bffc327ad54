"""What deploys/fetch.py would do, and when it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plan.conftest import Pair
from tests.plan.made_pair import bare


def test_models_that_are_not_known_to_be_right_are_fetched_from_the_head(
    pair: Callable[..., Pair],
) -> None:
    made = pair()
    assert made.plan("fetch").changes == [
        ("On-host program installed", ("spark1", "spark2")),
        ("Model files of lab right on every host", ("spark1",)),
    ]


def test_models_that_are_right_on_every_host_are_left_alone(pair: Callable[..., Pair]) -> None:
    made = pair()
    made.snapshots[:] = [bare(made.cluster, rank, made.lab, made.dsf) for rank in range(2)]
    assert made.plan("fetch").changes == []
    full = made.plan("fetch", "--data", "verify=full")
    assert full.changes == [("Model files of lab right on every host", ("spark1",))]


def test_full_reads_again_what_prepare_would_pass_over(pair: Callable[..., Pair]) -> None:
    made = pair()
    made.snapshots[:] = [bare(made.cluster, rank, made.lab, made.dsf) for rank in range(2)]
    assert made.plan("prepare").changes == []
    full = made.plan("prepare", "--data", "verify=full")
    assert full.changes == [("Model files of lab by SHA-256", ("spark1", "spark2"))]


def test_a_model_directory_that_is_not_there_is_what_fetch_is_for(
    pair: Callable[..., Pair],
) -> None:
    made = pair()
    made.snapshots[1]["shards"]["/srv/models/lab"] = "absent"
    run = made.plan("fetch")
    assert run.status == 0
    assert run.changes[-1] == ("Model files of lab right on every host", ("spark1",))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stack=glm53-sglang-nvfp4",), "120 of 127 files have no SHA-256"),
        (("source=worker",), "source=worker found; hub allowed"),
        (("verify=fast",), "verify=fast found; full allowed"),
    ],
)
def test_what_cannot_be_fetched_is_refused(
    pair: Callable[..., Pair], words: tuple[str, ...], said: str
) -> None:
    run = pair().plan("fetch", *(part for word in words for part in ("--data", word)))
    assert run.status != 0
    assert said in run.out + run.err
    assert "Traceback" not in run.err


def test_a_host_that_is_gone_is_said_and_nothing_is_fetched(pair: Callable[..., Pair]) -> None:
    run = pair().plan("fetch", gone="spark2")
    assert run.status != 0
    assert "spark2: cannot be reached" in run.out + run.err

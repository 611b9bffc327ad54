"""The pinned image: pulled by digest when it is not there; one sentence when it cannot be had."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from operations.images import present
from operations.job import Job
from stacks.definition import Stack
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import Snapshot, cluster, dirty, locked


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stack, Stack]:
    folder: Path = tmp_path_factory.mktemp("locks")
    return locked("lab", folder), locked("dsf-lab", folder)


def pulled(stacks: tuple[Stack, Stack], first: Snapshot, answer: Any) -> Job:
    """Run the operation on the head; `answer` is what docker pull does there."""
    lab, dsf = stacks
    second = dirty(cluster(), 1, lab, dsf)
    responses = {0: {"docker pull": answer}}
    job = made_job(cluster(), [first, second], lab, stacks, responses=responses)
    words = {"job": job, "rank": 0, "reference": lab.image_reference}
    add_op(job.state, present, host=job.hosts[0], **words)
    job.state.is_executing = True
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    return job


def pulls(job: Job) -> list[str]:
    return [c for c in commands(job.hosts[0]) if "docker pull" in c]


def test_an_image_that_is_there_is_not_pulled(stacks: tuple[Stack, Stack]) -> None:
    first = dirty(cluster(), 0, *stacks)
    first["images"][stacks[0].image_reference] = {"id": "i", "digests": [], "platform": "p"}
    job = pulled(stacks, first, "")
    assert pulls(job) == []
    assert job.problem is None


def test_a_refused_pull_is_one_sentence_with_host_reference_and_reason(
    stacks: tuple[Stack, Stack],
) -> None:
    refused = {"success": False, "stderr": "Error response from daemon: manifest unknown"}
    job = pulled(stacks, dirty(cluster(), 0, *stacks), refused)
    assert job.problem == (
        f"image {stacks[0].image_reference} cannot be had on @fake/spark1: "
        "Error response from daemon: manifest unknown"
    )
    (pull,) = pulls(job)
    assert pull.startswith("timeout --kill-after=5 7200 ")
    assert "@sha256:" in pull


def test_a_pull_that_leaves_nothing_is_no_success(stacks: tuple[Stack, Stack]) -> None:
    job = pulled(stacks, dirty(cluster(), 0, *stacks), "sha256:1")
    assert job.problem == (f"@fake/spark1: {stacks[0].image_reference} is not there after the pull")


def test_a_daemon_that_is_down_is_not_an_absent_image(stacks: tuple[Stack, Stack]) -> None:
    first = dirty(cluster(), 0, *stacks)
    first["images"] = {"unknown": "Cannot connect to the Docker daemon"}
    job = pulled(stacks, first, "")
    assert pulls(job) == []
    assert job.problem is not None
    assert "is the docker daemon up?" in job.problem


def test_after_a_pull_no_host_is_taken_for_what_it_was_before(stacks: tuple[Stack, Stack]) -> None:
    """A pull takes hours: what the other hosts said before it decides nothing after it."""
    snapshots = [dirty(cluster(), rank, *stacks) for rank in range(2)]
    job = made_job(cluster(), snapshots, stacks[0], stacks)
    words = {"job": job, "rank": 0, "reference": stacks[0].image_reference}
    add_op(job.state, present, host=job.hosts[0], **words)
    job.state.is_executing = True
    other = job.hosts[1]
    job.read(other)
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    job.read(other)
    assert len([c for c in commands(other) if " snapshot " in c]) == 2

"""The pinned image: pulled by digest when it is not there; one sentence when it cannot be had."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from facts.run.program import END
from facts.state import state_of
from operations.look.parity import image_line
from operations.model.images import complaints, present, request
from operations.run.job import Here, Job
from stacks.definition import Stack
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import Snapshot, cluster, dirty, image, locked


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stack, Stack]:
    folder: Path = tmp_path_factory.mktemp("locks")
    return locked("lab", folder), locked("dsf-lab", folder)


def pulled(stacks: tuple[Stack, Stack], first: Snapshot, answer: Any) -> Job:
    """Run the operation on the head; `answer` is what spark-host says of the pull there."""
    lab, dsf = stacks
    second = dirty(cluster(), 1, lab, dsf)
    responses = {0: {" images run ": [json.dumps(answer), END]}}
    job = made_job(cluster(), [first, second], lab, stacks, responses=responses)
    words = {"here": Here(job, 0)}
    add_op(job.state, present, host=job.hosts[0], **words)
    job.state.is_executing = True
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    return job


def ended(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What `spark_host images run` says of a pull that is over."""
    return {"active": False, "subject": "the pull", "progress": None, "answer": dict(answer)}


GOOD = ended({"ok": True, "bytes": 8 << 20, "seconds": 2.0})


def pulls(job: Job) -> list[str]:
    return [c for c in commands(job.hosts[0]) if " images run " in c]


def with_image(stacks: tuple[Stack, Stack], **changes: Any) -> Snapshot:
    """A host that has the image, with changes to what the daemon says of it."""
    made = dirty(cluster(), 0, *stacks)
    made["images"][stacks[0].image_reference] = image(stacks[0].image_reference) | changes
    return made


def test_an_image_that_is_there_asks_no_network(stacks: tuple[Stack, Stack]) -> None:
    job = pulled(stacks, with_image(stacks), "")
    assert pulls(job) == []
    assert job.problem is None


def test_a_refused_pull_is_one_sentence_with_host_reference_and_reason(
    stacks: tuple[Stack, Stack],
) -> None:
    refused = ended({"ok": False, "message": "manifest unknown"})
    job = pulled(stacks, dirty(cluster(), 0, *stacks), refused)
    assert job.problem == (
        f"image {stacks[0].image_reference} cannot be had on @fake/spark1: manifest unknown"
    )
    assert len(pulls(job)) == 1


def test_a_pull_that_leaves_nothing_is_no_success(stacks: tuple[Stack, Stack]) -> None:
    job = pulled(stacks, dirty(cluster(), 0, *stacks), GOOD)
    assert job.problem == (
        f"@fake/spark1: after the pull: {stacks[0].image_reference} is not there"
    )


def of_two_platforms(stack: Stack) -> Stack:
    """The same stack with a lock that names both platforms."""
    assert stack.lock is not None
    platforms = {"linux/amd64": f"sha256:{'a' * 64}", "linux/arm64": f"sha256:{'b' * 64}"}
    found = stack.lock.image.model_copy(update={"platforms": platforms})
    return stack.model_copy(update={"lock": stack.lock.model_copy(update={"image": found})})


def test_e01_the_same_digest_in_both_stores_is_the_same_image(stacks: tuple[Stack, Stack]) -> None:
    """overlay2 names the image by its config, containerd by the index: ids never agree."""
    lab = of_two_platforms(stacks[0])
    overlay = state_of(with_image(stacks, id=f"sha256:{'1' * 64}"))
    index = lab.image_reference.partition("@")[2]
    containerd = state_of(with_image(stacks, id=index, manifest=f"sha256:{'a' * 64}"))
    assert list(complaints(overlay, lab)) == list(complaints(containerd, lab)) == []
    line = image_line(lab, [overlay, containerd])
    assert (line.verdict, line.found) == ("ok", (f"{index[:19]} linux/amd64",) * 2)


def test_another_platforms_image_behind_the_digest_is_refused_with_both(
    stacks: tuple[Stack, Stack],
) -> None:
    lab = of_two_platforms(stacks[0])
    first = with_image(stacks, platform="linux/arm64")
    (said,) = complaints(state_of(first), lab)
    assert f"linux/arm64 (sha256:{'b' * 64}) found" in said
    assert f"linux/amd64 (sha256:{'a' * 64}) expected" in said
    job = pulled((lab, stacks[1]), first, GOOD)
    assert job.problem == f"@fake/spark1: {said}"
    assert pulls(job) == []
    assert image_line(lab, [state_of(first), state_of(with_image(stacks))]).verdict == "drift"


def test_another_build_of_the_right_platform_is_refused_with_both(
    stacks: tuple[Stack, Stack],
) -> None:
    lab = of_two_platforms(stacks[0])
    (said,) = complaints(state_of(with_image(stacks, manifest=f"sha256:{'c' * 64}")), lab)
    assert f"linux/amd64 sha256:{'c' * 64} found, sha256:{'a' * 64} expected" in said


def test_an_image_that_is_not_made_for_the_machine_is_said_before_the_pull(
    stacks: tuple[Stack, Stack],
) -> None:
    lab = of_two_platforms(stacks[0])
    first = dirty(cluster(), 0, *stacks)
    first["boot"]["machine"] = "riscv64"
    (said,) = complaints(state_of(first), lab)
    assert said.endswith("is made for linux/amd64, linux/arm64, this is linux/riscv64")


def test_sizes_go_to_the_host_for_its_platform(stacks: tuple[Stack, Stack]) -> None:
    lab = of_two_platforms(stacks[0])
    assert lab.lock is not None
    found = lab.lock.image.model_copy(update={"download_bytes": {"linux/arm64": 7}})
    sized = lab.model_copy(update={"lock": lab.lock.model_copy(update={"image": found})})
    assert request(sized, "linux/arm64")["download_bytes"] == 7
    assert request(sized, "linux/amd64")["download_bytes"] is None


def test_a_daemon_that_is_down_is_not_an_absent_image(stacks: tuple[Stack, Stack]) -> None:
    first = dirty(cluster(), 0, *stacks)
    first["images"] = {"unknown": "Cannot connect to the Docker daemon"}
    job = pulled(stacks, first, GOOD)
    assert pulls(job) == []
    assert job.problem is not None
    assert "is the docker daemon up?" in job.problem


def test_after_a_pull_no_host_is_taken_for_what_it_was_before(stacks: tuple[Stack, Stack]) -> None:
    """A pull takes hours: what the other hosts said before it decides nothing after it."""
    snapshots = [dirty(cluster(), rank, *stacks) for rank in range(2)]
    responses = {0: {" images run ": [json.dumps(GOOD), END]}}
    job = made_job(cluster(), snapshots, stacks[0], stacks, responses=responses)
    words = {"here": Here(job, 0)}
    add_op(job.state, present, host=job.hosts[0], **words)
    job.state.is_executing = True
    other = job.hosts[1]
    job.read(other)
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    job.read(other)
    assert len([c for c in commands(other) if " snapshot " in c]) == 2

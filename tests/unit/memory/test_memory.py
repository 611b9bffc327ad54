"""The ritual before a bind: done on every host, proven by figures, and a failure without root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from facts.memory.memory import Memory
from facts.run.program import END
from operations.memory import ritual
from operations.run.job import Job
from stacks.definition import Stack
from tests.plan.made_job import made_job
from tests.plan.made_pair import bare, cluster, locked

GIB = 1024 * 1024


def figures(cached_gib: float, available_gib: float = 115, mapped_gib: float = 0.3) -> Any:
    """KiB of a Spark."""
    gib = {"MemTotal": 119, "MemFree": available_gib, "MemAvailable": available_gib}
    gib |= {"Cached": cached_gib, "Shmem": 0.1, "Mapped": mapped_gib}
    return {f"{name}_kib": int(value * GIB) for name, value in gib.items()}


@pytest.fixture
def lab(tmp_path: Path) -> Stack:
    return locked("lab", tmp_path)


def ran(lab: Stack, answer: Any, programs: Any = ()) -> tuple[bool, Job]:
    snapshots = [bare(cluster(), rank, lab, lab) for rank in range(2)]
    said = {"spark_host memory": [json.dumps(answer), END]}
    held = {"programs": programs, "rest_mib": 0, "gpu_unread": None}
    said["spark_host holders"] = [json.dumps(held), END]
    job = made_job(cluster(), snapshots, lab, (lab,), responses={0: said})
    return ritual._caches_dropped(job.state, job.hosts[0], job, 112000), job


def test_f01_the_figures_before_and_after_are_kept_for_the_receipt(lab: Stack) -> None:
    answer = {"before": figures(60, 55), "after": figures(0.5)}
    good, job = ran(lab, answer)
    assert good
    assert job.figures["memory"] == {"@fake/spark1": answer}


def test_f01_without_root_the_launch_fails_and_names_the_host(lab: Stack) -> None:
    why = "PermissionError: [Errno 13] Permission denied: '/proc/sys/vm/drop_caches'"
    good, job = ran(lab, {"ok": False, "message": why})
    assert not good
    assert job.problem == f"@fake/spark1: memory: {why}"


def test_f01_a_drop_that_drops_nothing_is_no_drop(lab: Stack) -> None:
    good, job = ran(lab, {"before": figures(60), "after": figures(59)})
    assert not good
    assert job.problem is not None
    assert "of page cache are left after it was dropped" in job.problem


@pytest.mark.parametrize(
    ("before_gib", "after_gib", "good"),
    [(60, 0.5, True), (60, 29, True), (60, 40, False), (8, 8, True), (0.4, 0.4, True)],
)
def test_f01_half_of_it_gone_or_little_left_is_a_proof(
    before_gib: float, after_gib: float, good: bool
) -> None:
    kept = ritual.kept_cache(figures(before_gib), figures(after_gib))
    assert (kept is None) is good


def test_what_programs_map_is_not_counted(lab: Stack) -> None:
    assert ritual.droppable_mib(figures(10, mapped_gib=9)) == int(0.9 * 1024)


def test_too_little_available_after_the_drop_fails(lab: Stack) -> None:
    good, job = ran(lab, {"before": figures(60), "after": figures(0.5, available_gib=90)})
    assert not good
    assert job.problem is not None
    assert "92160 MiB available after dropping the caches, 112000 MiB wanted" in job.problem


@pytest.mark.parametrize(
    ("mib", "told"), [(9000, "ollama.service (pid 7 of root) holds 9000 MiB: sudo"), (40, "see")]
)
def test_what_holds_the_missing_memory_is_named_and_what_is_small_is_not(
    lab: Stack, mib: int, told: str
) -> None:
    one = {"name": "ollama", "pid": 7, "user": "root", "unit": "ollama.service", "user_unit": ""}
    one |= {"screen": False, "mib": mib, "gpu_mib": 0}
    good, job = ran(lab, {"before": figures(60), "after": figures(0.5, available_gib=90)}, [one])
    assert not good
    assert job.problem is not None
    assert f"wanted before a bind: {told}" in job.problem


@pytest.mark.parametrize(
    ("shm_mib", "said"),
    [(59000, 0), (61253, 0), (2048, 1), (None, 0)],
    ids=["the kernel's half", "half", "made small", "unread"],
)
def test_a_shared_memory_that_somebody_made_small_is_refused(
    lab: Stack, shm_mib: int | None, said: int
) -> None:
    """A Spark's usual half of its memory is less than the 64 GiB of the stack, and is enough."""
    assert lab.container is not None
    large = lab.container.model_copy(update={"shm_size": "64g"})
    stack = lab.model_copy(update={"container": large})
    found = Memory(122507, 1000, 9000, 500, 0, 0, (), shm_mib=shm_mib)
    assert len(list(ritual.shm_complaints(found, stack))) == said
    private = stack.model_copy(update={"container": large.model_copy(update={"ipc": "private"})})
    assert list(ritual.shm_complaints(found, private)) == []


@pytest.mark.parametrize(
    ("text", "mib"), [("64g", 65536), ("64gb", 65536), ("64m", 64), ("512mb", 512), ("2048k", 2)]
)
def test_a_size_as_docker_takes_it(text: str, mib: int) -> None:
    assert ritual.size_mib(text) == mib

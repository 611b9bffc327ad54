"""Full frames over the fabric: which MTU counts when the fabric is not the job's to change."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from operations.launch.ping import crossed
from operations.run.job import Here, Job
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import PORTS, bare, cluster, dirty, locked

PAIR = cluster()


def pinged(folder: Path, old_fabric: bool, fabric_too: bool = False, addresses: bool = True) -> Job:
    """Run the operation on the head of a pair that serves nothing."""
    stacks = locked("lab", folder / "locks"), locked("dsf-lab", folder / "locks")
    made = dirty if old_fabric else bare
    snapshots = [made(PAIR, rank, *stacks) for rank in range(2)]
    if not addresses:
        snapshots[0]["fabric"]["interfaces"][PORTS[0]]["addresses"] = []
    job = made_job(PAIR, snapshots, stacks[0], stacks)
    job.settles = fabric_too
    add_op(job.state, crossed, here=Here(job, 0), host=job.hosts[0])
    job.state.is_executing = True
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    return job


def sizes(job: Job) -> list[str]:
    return [s for c in commands(job.hosts[0]) for s in re.findall(r"ping -M do -s (\d+)", c)]


@pytest.mark.parametrize(
    ("fabric_too", "old_fabric", "size"),
    [(True, False, "8972"), (False, False, "8972"), (True, True, "8972"), (False, True, "1472")],
)
def test_a_fabric_that_is_left_alone_is_asked_for_its_own_mtu(
    tmp_path: Path, fabric_too: bool, old_fabric: bool, size: str
) -> None:
    job = pinged(tmp_path, old_fabric, fabric_too)
    assert (sizes(job), job.problem) == ([size], None)


def test_a_host_without_its_fabric_address_is_one_sentence(tmp_path: Path) -> None:
    job = pinged(tmp_path, old_fabric=True, addresses=False)
    assert sizes(job) == []
    assert job.problem is not None
    assert job.problem.startswith("@fake/spark1: no link holds 192.168.100.1, ")

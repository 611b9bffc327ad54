"""Steps whose failure does not take a host out of the run: the next ones go on, the run fails."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from operations.launch import teardown
from operations.run import program, tolerated
from operations.run.job import Here, barrier
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import cluster, dirty, locked


def test_a_command_that_fails_keeps_no_rank_up_and_is_the_reason_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    stacks = locked("lab", tmp_path / "locks"), locked("dsf-lab", tmp_path / "locks")
    snapshots = [dirty(cluster(), rank, *stacks) for rank in range(2)]
    full = {"zipfile -e": {"success": False, "stderr": "No space left on device"}}
    job = made_job(cluster(), snapshots, None, stacks, name="stop", responses={1: full})
    host = job.hosts[1]
    words = {"here": Here(job, 1), "host": host}
    metas = add_op(job.state, program.installed, **words, _ignore_errors=True)
    add_op(job.state, tolerated.blamed, **words, steps={"Installed": metas[host]})
    add_op(job.state, teardown.ended, **words)
    job.state.is_executing = True
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    assert any("ranks save" in command for command in commands(host))
    assert job.problem == '@fake/spark2: failed at "Installed" (what it said is printed above)'


def test_the_last_barrier_fails_every_host_for_it(tmp_path: Path) -> None:
    job = made_job(cluster(), [{}, {}], None, (), name="stop")
    job.blame('@fake/spark2: failed at "Installed"')
    add_op(job.state, barrier, here=Here(job, 0), title="Verdict")
    job.state.is_executing = True
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    assert job.reachable() == []

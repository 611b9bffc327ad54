"""What an operation is told when the on-host program fails."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from facts.snapshot import END, PROGRAM
from operations.remote import RemoteError, call
from tests.plan.made_job import made_job
from tests.plan.made_pair import cluster


def told(lines: list[str]) -> str:
    responses: dict[int, dict[str, Any]] = {0: {" ranks ": lines}}
    job = made_job(cluster(), [{}, {}], None, (), responses=responses)
    with pytest.raises(RemoteError) as error:
        call(job.hosts[0], "ranks", "look", "engine", "0")
    return str(error.value)


def test_the_reason_of_a_failed_command_reaches_the_person() -> None:
    """The program itself, failing here, and its answer read as an operation reads it."""
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "ranks", "no-such-action"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    assert told(done.stdout.splitlines()) == (
        "@fake/spark1: ranks look: ValueError: unknown action no-such-action"
    )


def test_an_answer_that_ends_early_is_no_answer() -> None:
    whole = [json.dumps({"ok": True}), END]
    assert "the answer is cut short" in told(whole[:1])

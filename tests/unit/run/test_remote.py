"""One command on a host from inside an operation: links that break, answers that are cut off."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from facts.run.program import PROGRAM
from operations.run.remote import RemoteError, call, run
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import cluster


def test_a_link_that_broke_is_opened_anew_for_the_next_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = made_job(cluster(), [{}, {}], None, ()).hosts[1]
    real = host.connector.run_shell_command

    def dead(*_: Any, **__: Any) -> Any:
        raise OSError("Broken pipe")

    monkeypatch.setattr(host.connector, "run_shell_command", dead)
    with pytest.raises(RemoteError, match=r"@fake/spark2: the connection is gone \(Broken pipe\)"):
        run(host, "first")
    assert not host.connected
    monkeypatch.setattr(host.connector, "run_shell_command", real)
    run(host, "second")
    assert host.connected
    assert any("second" in told for told in commands(host))


def test_an_answer_without_its_end_is_no_answer() -> None:
    answers = {0: {"ranks look": ['{"state": null, "log": [']}}
    host = made_job(cluster(), [{}, {}], None, (), responses=answers).hosts[0]
    with pytest.raises(RemoteError, match="the answer is cut short"):
        call(host, "ranks", "look", "x", "0")


def test_the_reason_of_a_failed_command_reaches_the_person() -> None:
    """The program itself, failing here, and its answer read as an operation reads it."""
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "ranks", "no-such-action"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    answers = {0: {"ranks look": done.stdout.splitlines()}}
    host = made_job(cluster(), [{}, {}], None, (), responses=answers).hosts[0]
    with pytest.raises(RemoteError) as error:
        call(host, "ranks", "look", "x", "0")
    assert str(error.value) == "@fake/spark1: ranks look: ValueError: unknown action no-such-action"

"""Two runs on one cluster: the second is refused, a dead one keeps nobody away for long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import gevent
import pytest
from pyinfra.api.command import StringCommand
from pyinfra.connectors.util import CommandOutput

from operations.run import control
from operations.run.job import Job, fail
from operations.run.lease import beat, sentences
from stacks.definition import Stack
from tests.plan.made_job import made_job
from tests.plan.made_pair import bare, cluster, locked
from tests.unit.on_host import module

lease = module("run.lease")
UNDO = module("undo.undo")


def run(name: str, **words: str) -> dict[str, str]:
    return {"run": name, "job": "serve", "who": "milo@ops (pid 1)", "origin": ""} | words


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A host whose seconds since boot are in the list."""
    monkeypatch.setattr(lease, "FOLDER", str(tmp_path / "run"))
    now = [1000.0]
    monkeypatch.setattr(lease, "now_s", lambda: now[0])
    return now


def held_by() -> str | None:
    found = lease.holder()
    return found["run"] if found else None


def test_the_first_run_has_it_and_the_second_sees_whose_it_is(clock: list[float]) -> None:
    assert lease.section({"lease": ""}) == {"holder": None}
    assert lease.section({"lease": json.dumps(run("a"))})["holder"]["run"] == "a"
    clock[0] += 7
    seen = lease.section({"lease": json.dumps(run("b"))})["holder"]
    assert (seen["run"], seen["who"], seen["age_s"]) == ("a", "milo@ops (pid 1)", 7)


def test_it_lapses_a_minute_after_the_last_sign_of_life(clock: list[float]) -> None:
    lease.take(run("a"))
    clock[0] += 59
    lease.main(["renew", json.dumps(run("a"))])
    clock[0] += 59
    lease.take(run("b"))
    assert held_by() == "a"
    clock[0] += 2
    assert held_by() is None
    lease.take(run("b"))
    assert held_by() == "b"
    assert lease.main(["renew", json.dumps(run("a"))])["holder"]["run"] == "b"


def test_a_run_that_is_known_to_have_ended_is_taken_over_at_once(clock: list[float]) -> None:
    lease.take(run("a"))
    lease.take(run("b", over="x"))
    assert held_by() == "a"
    lease.take(run("b", over="a"))
    assert held_by() == "b"


def test_only_its_own_lease_is_given_back(clock: list[float]) -> None:
    lease.take(run("a"))
    lease.main(["release", "b"])
    assert held_by() == "a"
    lease.main(["release", "a"])
    assert held_by() is None
    lease.main(["release", "a"])


def test_of_many_at_the_same_moment_one_has_it(clock: list[float]) -> None:
    with ThreadPool(8) as pool:
        seen = pool.map(lambda n: lease.section({"lease": json.dumps(run(str(n)))}), range(8))
    assert len({one["holder"]["run"] for one in seen}) == 1


def test_a_damaged_file_is_nobodys_lease(clock: list[float], tmp_path: Path) -> None:
    lease.take(run("a"))
    (tmp_path / "run" / "lease.json").write_text("{")
    lease.take(run("b"))
    assert held_by() == "b"


def test_the_file_is_its_owners_alone(clock: list[float], tmp_path: Path) -> None:
    lease.take(run("a"))
    assert (tmp_path / "run" / "lease.json").stat().st_mode & 0o777 == 0o600


def test_an_undo_at_the_console_waits_for_a_run(clock: list[float]) -> None:
    assert UNDO.at_work() is None
    lease.take(run("a"))
    assert "refused: serve, started by milo@ops (pid 1), is changing this host" in UNDO.at_work()


# The control machine


def test_a_process_that_lives_has_not_ended_and_one_that_is_gone_has() -> None:
    assert not control.has_ended(control.origin())
    say = "from operations.run.control import origin; print(origin(), flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", say], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    one = child.stdout.readline().strip()
    assert one.rsplit(" ", 2)[1] == str(child.pid)
    assert not control.has_ended(one)
    child.kill()
    child.communicate()
    assert control.has_ended(one)


@pytest.mark.parametrize("one", ["", "another-boot/pid:[1] 1 1", "odd"])
def test_what_cannot_be_told_has_not_ended(one: str) -> None:
    assert not control.has_ended(one)


def test_a_number_that_another_process_has_by_now_is_no_life() -> None:
    machine, pid, _ = control.origin().rsplit(" ", 2)
    assert control.has_ended(f"{machine} {pid} 1")


def test_without_proc_nobody_can_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(control, "PROC", tmp_path)
    assert control.origin() == ""
    assert not control.has_ended(f"x {os.getpid()} 1")


# The two together


def job_over(folder: Path, holders: dict[int, dict[str, Any]], executing: bool = False) -> Job:
    lab: Stack = locked("lab", folder)
    snapshots = [bare(cluster(), rank, lab, lab) for rank in range(2)]
    for rank, holder in holders.items():
        snapshots[rank]["lease"] = {"holder": holder | {"age_s": 3.2}}
    job = made_job(cluster(), snapshots, lab, (lab,))
    job.reader.lease = run("mine")
    job.state.is_executing = executing
    return job


@pytest.mark.parametrize("executing", [False, True])
def test_another_run_on_one_host_is_named(tmp_path: Path, executing: bool) -> None:
    assert sentences(job_over(tmp_path, {1: run("theirs")}, executing)) == [
        "@fake/spark2: serve, started by milo@ops (pid 1), is running; last heard of 3 s ago. "
        "Wait until it has ended (if it died: a minute)"
    ]


def test_ones_own_lease_and_none_are_no_obstacle(tmp_path: Path) -> None:
    assert sentences(job_over(tmp_path, {0: run("mine")}, executing=True)) == []
    assert sentences(job_over(tmp_path, {})) == []


def test_a_run_that_died_on_this_machine_is_taken_over(tmp_path: Path) -> None:
    machine, pid, _ = control.origin().rsplit(" ", 2)
    dead = run("theirs", origin=f"{machine} {pid} 1")
    assert sentences(job_over(tmp_path, {0: dead})) == [], "while planning nothing is taken"
    job = job_over(tmp_path, {0: dead}, executing=True)
    # @fake goes on saying that the other has it: refused, but the host was asked with its name.
    assert len(sentences(job)) == 1
    assert job.reader.lease["over"] == "theirs"


def test_a_run_that_failed_on_a_host_lets_the_next_one_begin_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_over(tmp_path, {}, executing=True)
    host, asked = job.hosts[1], []

    def answer(command: StringCommand, **_: Any) -> tuple[bool, CommandOutput]:
        asked.append(str(command))
        return True, CommandOutput([])

    monkeypatch.setattr(host, "run_shell_command", answer)
    monkeypatch.setattr(host, "connected", True)
    monkeypatch.setattr("operations.run.lease.BEAT_S", 0.01)
    heart = gevent.spawn(beat, job)
    assert fail(job.state, host, job, "no space left") is False
    gevent.sleep(0.1)
    heart.kill()
    assert asked[-1].endswith("spark_host lease release mine"), "no sign of life after that"

"""The launch over @fake hosts: workers, then the head; and both down again when one is lost."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from facts.run.program import END
from gates.client import Reply
from operations.launch import bind
from operations.run.job import Here, Job
from operations.run.start import run_folder
from stacks.definition import Stack
from tests.plan.made_job import made_job
from tests.plan.made_pair import bare, cluster, locked

COMMAND = re.compile(r"\[fake\] simulating command on @fake/(spark\d): (.*)", re.DOTALL)


Made = Callable[..., "Launch"]


def state(rank: int, **changes: Any) -> dict[str, Any]:
    return {
        "Id": f"id{rank}",
        "StartedAt": "2026-08-26T06:00:00Z",
        "Running": True,
        "ExitCode": 0,
    } | changes


def looks(container: Mapping[str, Any] | None, *log: str) -> dict[str, Any]:
    return {"state": container, "log": list(log), "now": 1.0}


class InTurn(list[str]):
    """What @fake says to one command: the next of several answers each time, the last for ever."""

    def __init__(self, *answers: Mapping[str, Any]) -> None:
        super().__init__()
        self.left = [answered(answer) for answer in answers]

    def __iter__(self) -> Iterator[str]:
        return iter(self.left.pop(0) if len(self.left) > 1 else self.left[0])


def answered(answer: Mapping[str, Any]) -> list[str]:
    return [json.dumps(answer), END]


@dataclass
class Launch:
    """A cluster of bare hosts; what a rank's `look` says decides how the launch goes."""

    stack: Stack
    hosts: int
    log: pytest.LogCaptureFixture
    folder: Path

    def run(self, responses: Mapping[int, Mapping[str, Any]]) -> Job:
        wanted = cluster(self.hosts)
        usual = {
            "ranks end ": answered({"ok": True, "left": [], "message": ""}),
            "ranks record": answered({}),
            "docker logs": "the log of a rank",
        }
        every = {
            rank: usual
            | {f"ranks look spark-lab-{rank} ": answered(looks(state(rank), "loading"))}
            | dict(responses.get(rank, {}))
            for rank in range(self.hosts)
        }
        snapshots = [bare(wanted, rank, self.stack, self.stack) for rank in range(self.hosts)]
        job = made_job(wanted, snapshots, self.stack, (self.stack,), responses=every)
        job.enter("Bind")
        add_op(job.state, bind.bound, here=Here(job, 0), host=job.hosts[0])
        job.state.is_executing = True
        self.log.set_level("DEBUG", logger="pyinfra")
        with contextlib.suppress(PyinfraError):
            run_ops(job.state)
        return job

    def steps(self) -> list[tuple[str, str]]:
        """(host, run | end) in the order in which they were told."""
        found = []
        for record in self.log.records:
            told = COMMAND.match(record.getMessage())
            if told and (what := re.search(r"docker run|ranks end", told[2])):
                found.append((told[1], what[0].split()[1]))
        return found


@pytest.fixture
def launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[..., Launch]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lab = locked("lab", tmp_path / "locks")
    at_once = lab.model_copy(update={"start": lab.start.model_copy(update={"head_delay_s": 0})})
    return lambda hosts=2: Launch(at_once, hosts, caplog, tmp_path)


def dies(rank: int, after_start: int = 1) -> dict[int, dict[str, Any]]:
    """A rank that is seen alive behind its start and dead at a later look."""
    alive, dead = state(rank), state(rank, Running=False, ExitCode=3)
    told = [looks(alive)] * after_start + [looks(dead, "out of memory")]
    return {rank: {f"ranks look spark-lab-{rank} ": InTurn(*told)}}


@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_all_workers_start_before_the_head_and_the_head_goes_down_first(
    launch: Made, hosts: int
) -> None:
    made = launch(hosts)
    job = made.run(dies(0))
    workers = [f"spark{n}" for n in range(2, hosts + 1)]
    started = [(host, "run") for host in [*workers, "spark1"]]
    ended = [(host, "end") for host in ["spark1", *workers]]
    assert made.steps() == started + ended
    assert job.problem is not None
    assert job.problem.startswith("rank 0 on @fake/spark1 ended with exit status 3")
    assert "last line: out of memory; all ranks are down; logs: " in job.problem


def test_ranks_start_at_the_daemon_whose_state_was_read(launch: Made) -> None:
    """Not in another context of root's docker, where nobody would look for them again."""
    made = launch(2)
    made.run(dies(0))
    told = [r.getMessage() for r in made.log.records if "docker run" in r.getMessage()]
    assert len(told) == 2
    assert all("DOCKER_HOST=unix:///var/run/docker.sock docker run" in line for line in told)


def test_the_head_is_not_started_to_meet_a_dying_worker(launch: Made) -> None:
    made = launch(3)
    job = made.run(dies(1))
    assert [step for step in made.steps() if step[0] == "spark1"] == []
    assert made.steps()[-2:] == [("spark2", "end"), ("spark3", "end")]
    assert job.problem is not None
    assert job.problem.startswith("rank 1 on @fake/spark2 ended with exit status 3")


def test_a_worker_that_dies_while_the_head_loads_takes_the_head_down(launch: Made) -> None:
    made = launch()
    job = made.run(dies(1, after_start=2))
    assert made.steps()[-2:] == [("spark1", "end"), ("spark2", "end")]
    assert job.problem is not None
    assert job.problem.startswith("rank 1 on @fake/spark2 ended")


def test_a_rank_that_dies_behind_the_answer_takes_the_others_down_too(
    launch: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head answered; read again, the hosts have no rank (their snapshots here are bare)."""
    monkeypatch.setattr(bind, "ask_head", lambda *_: Reply("lab-model", "391", 1, 0.1, cut=False))
    ready = looks(state(0), "The server is fired up and ready to roll!")
    made = launch()
    job = made.run({0: {"ranks look spark-lab-0 ": answered(ready)}})
    assert made.steps()[-2:] == [("spark1", "end"), ("spark2", "end")]
    assert job.problem is not None
    assert "after the launch: " in job.problem
    assert "all ranks are down" in job.problem


def test_a_rank_that_restarted_is_dead(launch: Made) -> None:
    again = looks(state(1, StartedAt="2026-08-26T07:00:00Z"), "loading once more")
    job = launch().run({1: {"ranks look spark-lab-1 ": InTurn(looks(state(1)), again)}})
    assert job.problem is not None
    assert "rank 1 on @fake/spark2 was restarted while it loaded" in job.problem


def test_a_start_that_fails_cleans_up_what_it_may_have_left(launch: Made) -> None:
    made = launch(3)
    refused = {"success": False, "stderr": "docker: no such device"}
    job = made.run({2: {"docker run": refused}})
    assert made.steps() == [
        ("spark2", "run"),
        ("spark3", "run"),
        ("spark2", "end"),
        ("spark3", "end"),
    ]
    assert job.problem is not None
    assert job.problem.startswith("@fake/spark3: docker: no such device; all ranks are down")


def test_a_rank_that_will_not_go_is_said(launch: Made) -> None:
    stuck = answered({"ok": False, "left": ["spark-lab-1"], "message": ""})
    job = launch().run({**dies(0), 1: {"ranks end ": stuck}})
    assert job.problem is not None
    assert "NOT all ranks are down: @fake/spark2: spark-lab-1 is still there" in job.problem


def test_the_logs_of_all_ranks_are_collected(launch: Made) -> None:
    job = launch(3).run(dies(0))
    logs = {p.name: p.read_text() for p in run_folder(job).glob("rank*.log")}
    assert set(logs) == {f"rank{n}-spark{n + 1}.log" for n in range(3)}
    assert set(logs.values()) == {"the log of a rank\n"}


def test_f03_new_kernel_lines_lie_beside_the_logs_and_decide_nothing(launch: Made) -> None:
    told = "2026-08-27T01:02:03+00:00 spark1 kernel: NVRM: mem_desc.c:1359: NV_ERR_NO_MEMORY"
    every: dict[int, dict[str, Any]] = dies(0)
    every[0]["ranks kernel "] = answered({"lines": [told]})
    every[1] = {"ranks kernel ": answered({"lines": []})}
    made = launch()
    job = made.run(every)
    kernel = {p.name: p.read_text() for p in run_folder(job).glob("kernel-*.log")}
    assert kernel == {"kernel-spark1.log": told + "\n"}
    assert job.problem is not None
    assert "NV_ERR" not in job.problem
    told_to = " ".join(r.getMessage() for r in made.log.records)
    since = re.findall(r"spark_host ranks kernel (\d+)", told_to)
    assert since == ["1", "1"], "seconds since this launch, whatever the hosts' clocks say"


def test_f03_a_kernel_log_that_cannot_be_read_is_said_there(launch: Made) -> None:
    every: dict[int, dict[str, Any]] = dies(0)
    every[0]["ranks kernel "] = answered({"ok": False, "message": "journalctl: not installed"})
    job = launch().run(every)
    text = (run_folder(job) / "kernel-spark1.log").read_text()
    assert "could not be read: @fake/spark1: ranks kernel: journalctl: not installed" in text


def test_logs_that_cannot_be_kept_do_not_leave_the_ranks_up(launch: Made) -> None:
    made = launch()
    (made.folder / "state").write_text("a file where the folder of receipts should be")
    job = made.run(dies(0))
    assert made.steps()[-2:] == [("spark1", "end"), ("spark2", "end")]
    assert job.problem is not None
    assert "all ranks are down; logs: could not be kept (" in job.problem


def test_the_container_carries_the_generation_of_this_run(launch: Made) -> None:
    made = launch()
    job = made.run(dies(0))
    started_by = [r.getMessage() for r in made.log.records if "docker run" in r.getMessage()]
    assert len(started_by) == 2
    assert all(f"io.spark-converge.generation={job.generation}" in text for text in started_by)


def test_no_failure_shows_a_traceback(launch: Made) -> None:
    made = launch()
    made.run(dies(0))
    assert "Traceback" not in made.log.text

"""One run over all hosts: what stops it, what it remembers, what it writes down."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

import gevent
import pytest
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.operation import add_op, operation
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.context import host as current

from facts.run.unknown import Unknown
from facts.snapshot import Reader
from facts.state import HostState, unread
from operations.run.job import (
    Commands,
    Here,
    Job,
    barrier,
    milestone,
    refuse,
    step,
    stop_planning,
)
from operations.run.start import asked_to_end, close, make_run_folder, receipt, run_folder
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import cluster


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def job() -> Job:
    return three_hosts()


def three_hosts(fails_on_second: str = "nothing fails") -> Job:
    failing = {1: {fails_on_second: {"success": False}}}
    return made_job(cluster(3), [{}, {}, {}], None, (), responses=failing)


def test_all_hosts_are_read_at_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: set[str] = set()
    most = 0

    def read(_: Reader, host: Host) -> HostState:
        nonlocal most
        under_way.add(host.name)
        most = max(most, len(under_way))
        gevent.sleep(0.01)
        under_way.remove(host.name)
        return unread(host.name)

    monkeypatch.setattr(Reader, "_ask", read)
    states = job.states()
    assert most == 3
    assert [str(one.boot) for one in states] == [str(unread(h.name).boot) for h in job.hosts]


@operation()
def act(word: str) -> Commands:
    """Run one word on the host."""
    yield StringCommand(word)


@operation()
def refused_on(here: Here, sentence: str) -> Commands:
    """Refuse on one rank."""
    if current.name == here.host.name:
        yield refuse(here.job, sentence)


@step
def decides(here: Here) -> Commands:
    """Do what hangs on a fact."""
    here.known(Unknown("no answer"), "boot target")
    yield StringCommand("decided")


def execute(job: Job) -> None:
    job.state.is_executing = True
    with contextlib.suppress(PyinfraError):  # "No hosts remaining!" is how a stopped run ends
        run_ops(job.state)


def words(job: Job, rank: int) -> list[str]:
    """What a host was told to do; that a failed run gives its lease back is test_lease.py's."""
    return [one for one in commands(job.hosts[rank]) if " lease release " not in one]


def test_the_first_reason_stays() -> None:
    made = made_job(cluster(), [{}, {}], None, ())
    made.blame("spark2: the cable")
    made.blame("spark1: what followed")
    assert made.why_stop() == "spark2: the cable"


def test_no_host_passes_a_barrier_behind_a_failed_one() -> None:
    job = three_hosts(fails_on_second="first")
    for name, call in (("a", barrier), ("b", barrier)):
        add_op(job.state, call, here=Here(job, 0), title=f"Stage {name}")
        add_op(job.state, act, "first" if name == "a" else "second")
    execute(job)
    assert [words(job, rank) for rank in range(3)] == [["first"]] * 3
    assert job.why_stop() == '@fake/spark2: failed at "Stage a" (what it said is printed above)'
    assert not job.state.active_hosts


def test_a_refusal_on_one_host_stops_all_with_its_sentence(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    add_op(job.state, barrier, here=Here(job, 0), title="Stage a")
    add_op(job.state, refused_on, here=Here(job, 2), sentence="spark3: odd")
    add_op(job.state, barrier, here=Here(job, 0), title="Stage b")
    add_op(job.state, act, "second")
    execute(job)
    assert [words(job, rank) for rank in range(3)] == [[], [], []]
    assert job.problem == "spark3: odd"
    assert "Traceback" not in caplog.text


def test_an_operation_that_cannot_know_what_it_needs_fails_with_one_sentence(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    add_op(job.state, decides, here=Here(job, 1))
    add_op(job.state, act, "second")
    execute(job)
    assert job.problem == "@fake/spark2: boot target unknown (no answer)"
    assert "Traceback" not in caplog.text


def test_a_milestone_keeps_no_host_back() -> None:
    job = three_hosts(fails_on_second="first")
    add_op(job.state, milestone, here=Here(job, 0), title="Ranks down")
    add_op(job.state, act, "first")
    add_op(job.state, milestone, here=Here(job, 0), title="Quiet")
    add_op(job.state, act, "second")
    execute(job)
    assert [words(job, rank) for rank in range(3)] == [
        ["first", "second"],
        ["first"],
        ["first", "second"],
    ]
    assert [stage.title for stage in job.stages] == ["Ranks down", "Quiet"]


def test_barriers_of_all_hosts_make_one_stage(job: Job) -> None:
    add_op(job.state, barrier, here=Here(job, 0), title="Fabric")
    add_op(job.state, barrier, here=Here(job, 0), title="Bind")
    execute(job)
    assert [stage.title for stage in job.stages] == ["Fabric", "Bind"]
    assert job.stages[0].seconds is not None
    assert job.stages[1].seconds is None


def test_planning_enters_no_stage_and_writes_no_receipt(job: Job, home: Path) -> None:
    add_op(job.state, barrier, here=Here(job, 0), title="Fabric")
    close(job)
    assert job.stages == []
    assert list(home.iterdir()) == []


def test_a_refused_plan_names_every_reason_and_leaves_no_receipt(job: Job, home: Path) -> None:
    with pytest.raises(PyinfraError) as told:
        stop_planning(job, ["spark1: a", "spark2: b"])
    assert str(told.value) == "serve refuses:\n    - spark1: a\n    - spark2: b"
    job.enter("Preflight")
    close(job)
    assert list(home.iterdir()) == []


def test_the_receipt_says_how_it_went_and_is_written_once(job: Job, home: Path) -> None:
    job.enter("Preflight")
    job.enter("Bind")
    job.figures["bind_seconds"] = 12.5
    close(job)
    path = run_folder(job) / "receipt.json"
    assert path.is_relative_to(home)
    written = json.loads(path.read_text())
    assert written["ok"] is True
    assert written["reason"] is None
    assert written["hosts"] == ["@fake/spark1", "@fake/spark2", "@fake/spark3"]
    assert [stage["title"] for stage in written["stages"]] == ["Preflight", "Bind"]
    assert all(isinstance(stage["seconds"], float) for stage in written["stages"])
    assert written["figures"] == {"bind_seconds": 12.5}
    path.unlink()
    close(job)
    assert not path.exists()


def test_the_receipt_of_a_failed_run_has_the_first_reason(job: Job) -> None:
    job.enter("Bind")
    job.state.active_hosts.discard(job.hosts[2])
    close(job)
    written = json.loads((run_folder(job) / "receipt.json").read_text())
    assert written["ok"] is False
    assert written["reason"].startswith('@fake/spark3: failed at "Bind"')


def test_a_receipt_has_no_room_for_environment_or_arguments(job: Job) -> None:
    assert set(receipt(job)) == {
        "job", "generation", "began", "seconds", "cluster", "hosts", "stack", "image", "ok",
        "reason", "stages", "figures",
    }  # fmt: skip


def test_generations_sort_by_time(job: Job) -> None:
    later = made_job(cluster(), [{}, {}], None, ())
    assert job.generation <= later.generation
    assert len(job.generation) == len("20260826T060000Z")


def test_a_run_that_was_cut_off_has_not_succeeded(job: Job) -> None:
    job.enter("Bind")
    job.state.current_stage = StateStage.Execute
    close(job)
    told = json.loads((run_folder(job) / "receipt.json").read_text())
    assert (told["ok"], told["reason"]) == (False, 'ended early at "Bind"')


def test_ctrl_c_is_a_failure_with_its_stage(job: Job) -> None:
    job.enter("Old ranks down")
    with pytest.raises(SystemExit) as ended:
        asked_to_end(job, signal.SIGINT, None)
    assert ended.value.code == 130
    assert job.problem == 'ended by SIGINT at "Old ranks down"'


def test_logs_and_receipts_are_for_their_owner_alone(job: Job) -> None:
    assert make_run_folder(job).stat().st_mode & 0o777 == 0o700

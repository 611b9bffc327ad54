"""Long work in a unit of its own: started, joined, refused; systemd stands aside here."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import module

detached = module("run.detached")


class Systemd:
    """states: unit -> what `is-active` says, one after the other; started: command lines."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = {}
        self.started: list[list[str]] = []
        self.refused = ""

    def run(self, argv: list[str], **_: Any) -> tuple[int, str, str]:
        if argv[0] == "systemd-run":
            self.started.append(argv)
            return int(bool(self.refused)), "", self.refused
        said = self.states.get(argv[-1], ["inactive"])
        return 0, (said.pop(0) if len(said) > 1 else said[0]) + "\n", ""


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    made = Systemd()
    monkeypatch.setattr(detached, "STATE", str(tmp_path / "state"))
    monkeypatch.setattr(detached, "run", made.run)
    monkeypatch.setattr(detached, "LOOK_S", 0.001)
    return made


def start(subject: str = "a read of /m", apart: tuple[str, ...] = ()) -> None:
    detached.start("shards", subject, {"token": "secret"}, apart=apart)


def test_a_token_is_in_no_command_line_and_in_no_file_that_others_read(
    systemd: Systemd, tmp_path: Path
) -> None:
    start()
    assert "secret" not in str(systemd.started)
    folder = tmp_path / "state" / "shards"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "request").stat().st_mode) == 0o600
    assert detached.take_request("shards") == {"token": "secret"}
    assert not any("secret" in path.read_text() for path in folder.iterdir())


def test_a_token_does_not_stay_behind_when_the_unit_cannot_start(
    systemd: Systemd, tmp_path: Path
) -> None:
    systemd.refused = "Failed to start transient service unit"
    with pytest.raises(detached.Failed, match="Failed to start transient"):
        start()
    folder = tmp_path / "state" / "shards"
    assert not any("secret" in path.read_text() for path in folder.iterdir())


def test_whoever_asks_for_the_same_joins_it(systemd: Systemd) -> None:
    start()
    systemd.states["spark-converge-shards"] = ["active"]
    start()
    assert len(systemd.started) == 1
    with pytest.raises(detached.Failed, match="a read of /m is at work here"):
        start("a read of /other")


def test_a_unit_that_has_answered_is_waited_for_and_not_joined(systemd: Systemd) -> None:
    """Its answer is of before: what was changed since would be missed."""
    start()
    detached.write("shards", "answer", {"ok": True})
    systemd.states["spark-converge-shards"] = ["active", "deactivating", "inactive"]
    start()
    assert len(systemd.started) == 2
    assert detached.load("shards", "answer") is None


@pytest.mark.parametrize(("answered", "refused"), [(True, False), (False, True)])
def test_work_that_must_not_meet_waits_for_an_end_that_is_near(
    systemd: Systemd, answered: bool, refused: bool
) -> None:
    detached.start("fetch", "a fetch into /m", {})
    systemd.states["spark-converge-fetch"] = ["active", "active", "inactive"]
    if answered:
        detached.write("fetch", "answer", {"ok": True})
    if refused:
        with pytest.raises(detached.Failed, match="a fetch into /m is at work here"):
            start(apart=("fetch",))
    else:
        start(apart=("fetch",))
    assert len(systemd.started) == (1 if refused else 2)


@pytest.mark.parametrize("one", ["shards", "fetch", "survey"])
@pytest.mark.parametrize("other", ["shards", "fetch", "survey"])
def test_two_kinds_of_work_on_model_files_never_meet(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch, one: str, other: str
) -> None:
    """One would read what the other moves, and each keeps its own book of proofs."""
    detached.start(other, "earlier work", {})
    systemd.states[f"spark-converge-{other}"] = ["active"]
    asked = {"directory": "/m", "lock": "a" * 64, "revision": "1" * 40, "full": False}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
    with pytest.raises(detached.Failed, match="earlier work is at work here"):
        module(f"model.{one}").main(["run", "0"])


def worked(request: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True, "got": request}


def broke(request: dict[str, Any]) -> dict[str, Any]:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("work", "answer"),
    [
        (worked, {"ok": True, "got": {"token": "secret"}}),
        (broke, {"ok": False, "message": "OSError: [Errno 28] No space left on device"}),
    ],
)
def test_however_it_ends_there_is_an_answer_and_the_journal_has_no_more_than_that(
    systemd: Systemd, work: Callable[..., Any], answer: dict[str, Any]
) -> None:
    start()
    assert detached.here("shards", work) == {"ok": answer["ok"]}
    found = detached.poll("shards", 0)
    assert (found["active"], found["answer"]) == (False, answer)


def test_work_that_was_cut_short_has_no_answer(systemd: Systemd) -> None:
    start()
    found = detached.poll("shards", 5)
    assert (found["active"], found["answer"]) == (False, None)


class Tally:
    def progress(self) -> dict[str, Any]:
        return {"what": "read", "done": 1, "total": 2, "seconds": 0}


def tallied(request: dict[str, Any], _counter: Tally) -> dict[str, Any]:
    return {"ok": True, "got": request}


def test_one_kind_of_work_is_run_and_done_and_polled_under_one_name(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = detached.Work("shards", lambda asked: f"of {asked['of']}", tallied, lambda _: Tally())
    monkeypatch.setattr("sys.stdin", io.StringIO('{"of": "/m"}'))
    assert detached.command(work, ["run", "0"])["subject"] == "of /m"
    assert detached.command(work, ["here"]) == {"ok": True}
    found = detached.command(work, ["poll", "0"])
    assert found["answer"] == {"ok": True, "got": {"of": "/m"}}
    assert found["progress"] == Tally().progress()
    assert detached.command(work, ["stop"]) == {}
    with pytest.raises(ValueError, match="unknown action begin"):
        detached.command(work, ["begin", "0"])

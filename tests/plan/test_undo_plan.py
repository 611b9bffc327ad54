"""Undo over @fake hosts: what it would do where, and when it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.plan.conftest import Pair, Run
from tests.plan.made_pair import bare, install, running

Made = Callable[..., Pair]
RESTORED = {"ok": True, "restored": ["/etc/a"], "left": [], "notes": [], "aside": "/j.undone-1"}


def entry(name: str, verdict: str, why: str = "") -> dict[str, str]:
    return {"name": name, "verdict": verdict, "why": why}


def journalled(pair: Made, *entries: dict[str, str], on: tuple[int, ...] = (0, 1)) -> Pair:
    """A converged pair without an engine, with these journal entries on some hosts."""
    made = pair()
    made.snapshots[:] = [bare(made.cluster, rank, made.lab, made.dsf) for rank in range(2)]
    for rank, snapshot in enumerate(made.snapshots):
        snapshot["journal"] = {"entries": list(entries) if rank in on else []}
    return made


def told(run: Run, host: str) -> list[str]:
    return [
        li.split("] ", 1)[1] for li in run.err.splitlines() if f"{host}]" in li and "would" in li
    ]


def test_a_dry_run_lists_for_each_host_what_would_be_given_back(pair: Made) -> None:
    made = journalled(
        pair,
        entry("/etc/netplan/60-spark-converge.yaml", "restore"),
        entry("/etc/netplan/40-cx7.yaml", "edited", "edited since: line 3"),
        entry("unit cups.service", "same"),
        entry("container x", "gone", "it does not exist any more"),
        on=(1,),
    )
    run = made.run("undo", "--dry")
    assert run.status == 0, run.err
    assert told(run, "spark1") == []
    assert told(run, "spark2") == [
        "would give back /etc/netplan/60-spark-converge.yaml",
        "would leave /etc/netplan/40-cx7.yaml: edited since: line 3",
    ]
    assert made.plan("undo").changes == [("Host given back as it was", ("spark2",))]


def test_a_forced_path_is_given_back_and_no_other(pair: Made) -> None:
    made = journalled(pair, entry("/etc/a", "edited", "x"), entry("/etc/b", "edited", "x"))
    run = made.run("undo", "--dry", "--data", "force=/etc/a,/etc/c")
    assert told(run, "spark1") == ["would give back /etc/a", "would leave /etc/b: x"]


def test_an_empty_journal_is_nothing_to_undo_even_while_a_rank_runs(pair: Made) -> None:
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    for snapshot in made.snapshots:
        snapshot["journal"] = {"entries": []}
    run = made.plan("undo")
    assert run.status == 0, run.err
    assert run.changes == []
    assert "nothing to undo" in made.run("undo", "--dry", "-v").err


@pytest.mark.parametrize("way", [("--dry",), ("-y", "--debug")])
def test_a_rank_that_runs_anywhere_refuses_all_hosts(pair: Made, way: tuple[str, ...]) -> None:
    made = journalled(pair, entry("/etc/a", "restore"), on=(0,))
    ranks = running(made.cluster, made.lab, made.dsf)
    made.snapshots[1]["containers"] = ranks[1]["containers"]
    run = made.run("undo", *way)
    assert run.status == 1
    assert "Traceback" not in run.err
    (said,) = run.refusal()
    assert said.startswith("spark2: ")
    assert said.endswith("runs; take it down first: deploys/stop.py")
    assert [c for c in run.commands("spark1") if " undo " in c] == []


@pytest.mark.parametrize("part", ["journal", "containers"])
def test_what_cannot_be_read_refuses(pair: Made, part: str) -> None:
    made = journalled(pair, entry("/etc/a", "restore"))
    made.snapshots[0][part] = {"unknown": "OSError: broken"}
    run = made.run("undo", "--dry")
    assert run.status == 1
    assert run.refusal() == [f"spark1: {part} unknown (OSError: broken)"]


def test_a_host_that_is_gone_refuses_and_names_the_console_command(pair: Made) -> None:
    made = journalled(pair, entry("/etc/a", "restore"))
    run = made.run("undo", "-y", "--debug", gone="spark2")
    assert run.status == 1
    (said,) = run.refusal()
    assert "spark2: cannot be reached" in said
    assert "sudo /usr/local/sbin/spark-converge-undo" in said
    assert run.acts("spark1") == []


def executed(pair: Made, answer: dict[str, Any], **words: str) -> Run:
    made = journalled(pair, entry("/etc/a", "restore"))
    made.answers["spark_host undo --run "] = answer
    return made.run("undo", "-y", "--debug", **words)


def test_a_run_asks_each_host_once_and_says_what_was_given_back(pair: Made) -> None:
    run = executed(pair, RESTORED)
    assert run.status == 0, run.err
    for host in ("spark1", "spark2"):
        assert len([c for c in run.commands(host) if "spark_host undo --run" in c]) == 1
    assert run.err.count("given back: /etc/a") == 2


def test_what_is_left_fails_in_one_sentence_that_names_it(pair: Made) -> None:
    left = [{"name": "/etc/b", "why": "edited since: line 2"}]
    run = executed(pair, RESTORED | {"ok": False, "left": left})
    assert run.status == 1
    assert "Traceback" not in run.err
    assert "/etc/b: edited since: line 2" in run.refusal()
    assert "given back: /etc/a" in run.err


def test_a_host_without_the_program_gets_it_with_its_console_command(pair: Made) -> None:
    made = journalled(pair, entry("/etc/a", "restore"))
    made.answers["spark_host undo --run "] = RESTORED
    made.snapshots[0]["program"] = {"sha256": None}
    made.snapshots[0]["files"] = {}
    run = made.run("undo", "-y", "--debug")
    said = " ".join(run.commands("spark1"))
    assert "h=/usr/local/lib/spark-converge/spark_host; n=$h.new" in said
    assert "/usr/local/sbin/spark-converge-undo.new" in said
    install(made.snapshots[0])
    assert "spark-converge-undo.new" not in " ".join(
        made.run("undo", "-y", "--debug").commands("spark1")
    )

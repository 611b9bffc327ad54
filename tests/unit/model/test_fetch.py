"""A fetch over all hosts: who is asked for what, in which order, and what is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from facts.run.program import END
from operations.model import fetch
from operations.run.job import Here, Job
from stacks.definition import Stack
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import bare, cluster, locked

NAME = "model-00077-of-00120.safetensors"


def said(answer: Any, active: bool = False) -> list[str]:
    found = {"active": active, "subject": "a read", "progress": None, "answer": answer}
    return [json.dumps(found), END]


def seen(*wrong: str, extra: tuple[str, ...] = ()) -> list[str]:
    faults = [f"{name}: missing" for name in wrong] + [f"{n}: not in the manifest" for n in extra]
    return said(
        {
            **{"ok": not faults, "faults": faults, "wrong": wrong, "extra": extra, "beside": []},
            **{"left": [], "bytes": 0, "remembered_bytes": 0, "files": 120, "seconds": 0.1},
        }
    )


def moved(**brought: int) -> list[str]:
    return said(
        {
            **{"ok": True, "brought": brought, "moved_bytes": sum(brought.values())},
            **{"local": {}, "aside": [], "failed": [], "seconds": 0.1},
        }
    )


def waves(host: Any) -> list[str]:
    """Which program was asked on a host, snapshots and polls of earlier work left out."""
    found = []
    for line in commands(host):
        for word in ("shards run", "fetch run", "lend run", "lend stop"):
            if word in line:
                found.append(word)
    return found


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., tuple[Job, Stack]]:
    def make(*responses: dict[str, Any], fabric: bool = True) -> tuple[Job, Stack]:
        stacks = locked("lab", tmp_path / "locks"), locked("dsf-lab", tmp_path / "locks")
        snapshots = [bare(cluster(), rank, *stacks) for rank in range(2)]
        for snapshot in snapshots:
            snapshot["shards"] = dict.fromkeys(snapshot["shards"], "changed")
            if not fabric:
                snapshot["fabric"]["interfaces"]["bond0"]["carrier"] = False
        answers = {rank: {"fetch poll": said(None), **one} for rank, one in enumerate(responses)}
        return made_job(cluster(), snapshots, stacks[0], stacks, responses=answers), stacks[0]

    return make


def run(job: Job, stack: Stack, hub_only: bool = False) -> None:
    add_op(
        job.state,
        fetch.brought,
        here=Here(job, 0),
        hub_only=hub_only,
        full=False,
        host=job.hosts[0],
    )
    job.state.is_executing = True
    try:
        run_ops(job.state)
    except PyinfraError:
        assert job.problem


LENT = {"lend run": [json.dumps({"port": 4711}), END], "lend stop": ["{}", END]}


def test_what_one_host_has_is_lent_to_the_other_and_the_lender_ends(
    made: Callable[..., tuple[Job, Stack]],
) -> None:
    job, stack = made(
        {"shards run": seen(), **LENT}, {"shards run": seen(NAME), "fetch run": moved(x=65640)}
    )
    run(job, stack)
    assert waves(job.hosts[0]) == ["shards run", "lend run", "lend stop"]
    # What it has itself elsewhere is asked for first, then the other host.
    assert waves(job.hosts[1]) == ["shards run", "fetch run", "fetch run", "shards run"]
    assert job.figures["fetch"]["@fake/spark2"][1]["moved_bytes"] == 65640
    # The fake host says the same again: it is still wrong, and that is said.
    assert job.problem is not None
    assert NAME in job.problem
    assert "run this again" in job.problem


def test_without_a_fabric_the_hub_is_asked(
    made: Callable[..., tuple[Job, Stack]], capsys: pytest.CaptureFixture[str]
) -> None:
    job, stack = made(
        {"shards run": seen()},
        {"shards run": seen(NAME), "fetch run": moved(x=65640)},
        fabric=False,
    )
    run(job, stack)
    assert waves(job.hosts[0]) == ["shards run"]
    assert job.figures["fetch"]["@fake/spark2"][1]["from"] == constants.ENDPOINT


def test_source_hub_leaves_the_other_host_alone(made: Callable[..., tuple[Job, Stack]]) -> None:
    job, stack = made(
        {"shards run": seen()}, {"shards run": seen(NAME), "fetch run": moved(x=65640)}
    )
    run(job, stack, hub_only=True)
    assert waves(job.hosts[0]) == ["shards run"]
    assert job.figures["fetch"]["@fake/spark2"][1]["from"] == constants.ENDPOINT


def test_a_lender_ends_also_when_the_fetch_fails(
    made: Callable[..., tuple[Job, Stack]], capsys: pytest.CaptureFixture[str]
) -> None:
    failing = said({"ok": False, "message": "/srv/models: 9.00 GiB needed for 6 files, 1.00 free"})
    job, stack = made(
        {"shards run": seen(), **LENT}, {"shards run": seen(NAME), "fetch run": failing}
    )
    run(job, stack)
    assert job.problem is not None
    assert "9.00 GiB needed" in job.problem
    assert "Traceback" not in "".join(capsys.readouterr())
    job, stack = made(
        {"shards run": seen(NAME), "fetch run": moved(), **LENT},
        {"shards run": seen("model-00001-of-00120.safetensors"), "fetch run": failing},
    )
    run(job, stack)
    assert waves(job.hosts[0]).count("lend run") == waves(job.hosts[0]).count("lend stop")


@pytest.mark.parametrize(
    ("head", "worker"),
    [
        ({"shards run": seen(), **LENT}, {"shards run": seen(NAME), "fetch run": said({"odd": 1})}),
        ({"shards run": seen(), **LENT, "lend run": ["{}", END]}, {"shards run": seen(NAME)}),
        ({"shards run": seen()}, {"shards run": ["not JSON", END]}),
    ],
    ids=["an odd answer of a receiver", "of a lender", "of a reader"],
)
def test_an_unexpected_error_is_one_sentence_and_lenders_end(
    made: Callable[..., tuple[Job, Stack]],
    capsys: pytest.CaptureFixture[str],
    head: dict[str, Any],
    worker: dict[str, Any],
) -> None:
    job, stack = made(head, {"fetch run": moved(x=65640), **worker})
    run(job, stack)
    assert job.problem is not None
    assert "unexpected " in job.problem
    assert "run this again" in job.problem
    assert "Traceback" not in "".join(capsys.readouterr())
    assert waves(job.hosts[0]).count("lend run") == waves(job.hosts[0]).count("lend stop")


def test_the_token_of_the_hub_reaches_no_command_line(
    made: Callable[..., tuple[Job, Stack]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    job, stack = made(
        {"shards run": seen()}, {"shards run": seen(NAME), "fetch run": moved(x=65640)}
    )
    run(job, stack, hub_only=True)
    assert not any("hf_secret" in line for host in job.hosts for line in commands(host))
    assert "hf_secret" not in json.dumps(job.figures)


def test_all_reasons_of_all_hosts_come_at_once(made: Callable[..., tuple[Job, Stack]]) -> None:
    broken = said({"ok": False, "message": "PermissionError: /srv/models/lab"})
    job, stack = made({"shards run": broken}, {"shards run": broken})
    run(job, stack)
    assert job.problem is not None
    assert "spark1: PermissionError" in job.problem
    assert "spark2: PermissionError" in job.problem

"""An engine that no stack file knows: taken on, brought back, and never lost by mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operations.adopt import file
from operations.adopt.plan import adoption
from stacks.definition import Stack, load, load_adopted, names
from tests.plan.conftest import Pair
from tests.plan.made_pair import found_pair, install, running, states

Made = Callable[..., Pair]
KEPT = {"folder": "/var/lib/spark-converge/adopted/x", "files": 4, "unread": [], "tags": []}
BOTH = ("spark1", "spark2")


def found(pair: Made, **changes: Any) -> Pair:
    """The shipped owner's file: no rollback stack, strangers refused."""
    made = pair(**({"rollback_stack": None} | changes))
    made.snapshots[:] = found_pair(made.cluster, made.lab, made.dsf)
    made.answers[" adopt keep "] = KEPT
    return made


def written(made: Pair) -> Path:
    return made.folder / "state" / "spark-converge" / "stacks" / "sparks" / "previous.yaml"


def taken_on(made: Pair) -> Stack:
    """What a run makes of a found pair."""
    shipped = [load(name) for name in names()]
    stack = adoption(made.cluster, states(made.snapshots), shipped).stack
    assert stack is not None
    return stack


def adopted(pair: Made) -> Pair:
    """A pair on which the new stack runs, beside what an earlier run has taken on."""
    made = found(pair)
    stack = taken_on(made)
    written(made).parent.mkdir(parents=True)
    written(made).write_text(file.text(made.cluster, stack))
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    return made


def test_adopt_keeps_both_ranks_and_writes_the_stack_on_this_machine(pair: Made) -> None:
    made = found(pair)
    wanted = taken_on(made)
    for snapshot in made.snapshots:
        install(snapshot)
    run = made.run("adopt", "-y", "--debug")
    assert run.status == 0, run.err
    for host, container in zip(BOTH, ("ds4-vllm-1", "vllm-worker"), strict=True):
        (keep,) = [line for line in run.acts(host) if " adopt keep " in line]
        assert keep.rstrip("'").endswith(container) or container in keep
        assert not any(word in " ".join(run.acts(host)) for word in ("ranks ", "docker "))
    assert load_adopted(written(made)) == wanted
    assert "deepseek-v4-flash-0731 taken on as previous" in run.err
    assert made.run("adopt", "-y", "--data", "again=1").status == 0
    again = made.run("adopt", "-y", "--debug", "--data", "again=2")
    assert not any(" adopt keep " in line for host in BOTH for line in again.acts(host))


def test_adopt_says_line_by_line_what_cannot_be_taken_on_and_writes_nothing(pair: Made) -> None:
    made = found(pair)
    for snapshot in made.snapshots:
        snapshot["adoptable"]["engines"][0]["cannot"] = ["it was started with --rm"]
    made.snapshots[1]["adoptable"]["engines"][0]["rank"] = 0
    run = made.run("adopt", "-y")
    assert run.status == 1
    assert [line.split(";")[0] for line in run.refusal()] == [
        "spark1: it was started with --rm",
        "spark2: it was started with --rm",
        "spark2: vllm-worker is rank 0, and the owner's file makes this host rank 1",
    ]
    assert not written(made).exists()


def test_serve_takes_over_an_engine_of_no_stack_file_and_keeps_it_first(pair: Made) -> None:
    made = found(pair)
    run = made.plan("serve")
    assert run.status == 0, run.err
    names = [name for name, _ in run.changes]
    order = ["What this rank was made from is kept", "Stack previous written"]
    order += ["Cron watchdogs held behind a dated tag", "Head rank down", "Worker rank down"]
    assert [name for name in names if name in order] == order
    assert dict(run.changes)[order[0]] == BOTH
    assert dict(run.changes)["Worker rank down"] == ("spark2",)


def test_serve_refuses_strangers_that_cannot_be_brought_back(pair: Made) -> None:
    made = found(pair)
    made.snapshots[1]["adoptable"]["engines"][0]["rank"] = 0
    run = made.plan("serve")
    assert run.status == 1
    assert "cannot be taken on as previous: spark2: vllm-worker is rank 0" in run.err
    assert [line.split(" (")[0] for line in run.refusal()] == [
        "spark1: ds4-vllm-1",
        "spark2: vllm-worker",
    ]


def test_a_stranger_beside_an_engine_that_is_taken_on_is_refused_as_ever(pair: Made) -> None:
    made = found(pair)
    other = dict(made.snapshots[0]["containers"]["containers"][0])
    other |= {"Name": "/webui", "Id": "f" * 64, "Labels": {}, "Signs": []}
    made.snapshots[0]["containers"]["containers"].append(other)
    run = made.plan("serve")
    assert run.status == 1
    assert [line.split(" of no")[0] for line in run.refusal()] == ["spark1: webui"]


def test_rollback_goes_to_what_was_taken_on_when_the_owner_names_no_stack(pair: Made) -> None:
    made = adopted(pair)
    run = made.plan("rollback_dsf")
    assert run.status == 0, run.err
    names = [name for name, _ in run.changes]
    assert "previous bound and answering" in names
    assert names.index("Head rank down") < names.index("previous bound and answering")
    assert not any("SHA-256" in name or "digest" in name for name, _ in run.operations)


@pytest.mark.parametrize("lacking", [["docker has no compose plugin"], ["its image is gone"]])
def test_rollback_refuses_with_the_new_stack_still_serving_when_a_rank_lacks_something(
    pair: Made, lacking: list[str]
) -> None:
    made = adopted(pair)
    made.answers[" needs"] = {"lacking": lacking, "different": ["/opt/ds4/compose.yaml is gone"]}
    run = made.run("rollback_dsf", "-y", "--debug")
    assert run.status == 1
    assert f"previous cannot be launched: {lacking[0]}; nothing was torn down" in run.err
    assert "not as it was: /opt/ds4/compose.yaml is gone" in run.err
    for host in BOTH:
        assert not any(" ranks " in line or "crontab settle" in line for line in run.acts(host))


def test_rollback_to_a_compose_stack_that_lacks_a_file_names_the_other_way(pair: Made) -> None:
    made = adopted(pair)
    made.data["rollback_stack"] = "dsf-lab"
    made.answers[" needs"] = {"lacking": ["no file /opt/dsf-lab/compose.yaml"], "different": []}
    run = made.run("rollback_dsf", "-y", "--debug")
    assert run.status == 1
    assert "no file /opt/dsf-lab/compose.yaml (or bring back what ran before: --data " in run.err
    (asked,) = {line for line in run.commands("spark1") if " needs" in line}
    assert "needs" in asked


def test_what_was_taken_on_is_served_by_rollback_alone(pair: Made) -> None:
    made = adopted(pair)
    run = made.plan("prepare", "--data", "stack=previous")
    assert run.status == 1
    assert "deploys/rollback_dsf.py brings it back" in run.err
    assert "Traceback" not in run.err


def test_a_damaged_file_of_what_was_taken_on_ends_a_run_in_a_sentence(pair: Made) -> None:
    made = adopted(pair)
    written(made).write_text(json.dumps({"name": "previous"}))
    run = made.plan("rollback_dsf", "--data", "damaged=yes")
    assert run.status == 1
    assert "remove it, then adopt anew" in run.err
    assert "Traceback" not in run.err

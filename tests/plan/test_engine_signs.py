"""What behaves like an engine keeps every job from what would hurt it, whoever started it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.plan import made_pair
from tests.plan.conftest import Pair
from tests.plan.made_pair import container, install
from tests.plan.test_refusals import ENDS, RANKS, is_refused
from tests.plan.test_undo_plan import entry
from tests.plan.test_verify_plan import converge, result

Made = Callable[..., Pair]
SIGNS = ["vLLM", "GPU requested", "host IPC"]


def only(pair: Pair, *found: dict[str, Any]) -> None:
    """No engine of a known stack is left on any host; these run on the worker."""
    for snapshot in pair.snapshots:
        snapshot["containers"]["containers"] = []
    pair.snapshots[1]["containers"]["containers"] = list(found)


def lane(**changes: Any) -> dict[str, Any]:
    return container("lane", "my-own/vllm:mine", {}, Signs=SIGNS) | changes


def of_docker(pair: Pair) -> str:
    only(pair, lane())
    return "lane (vLLM, GPU requested, host IPC)"


def in_a_loop(pair: Pair) -> str:
    one = lane(RestartCount=7, Restart="unless-stopped")
    one["State"] |= {"Status": "restarting", "Restarting": True}
    only(pair, one)
    return "lane (vLLM, GPU requested, host IPC; in a loop of crashes, 7 restarts)"


def on_the_port(pair: Pair) -> str:
    """A name and an image of nobody's, no GPU: but it answers where the model would."""
    one = container("web", "my-own/web:1", {})
    only(pair, one)
    pair.snapshots[1]["listeners"]["listeners"] = [made_pair.listener(8888, container=one["Id"])]
    return "web (listens on port 8888)"


def of_podman(pair: Pair) -> str:
    only(pair)
    one = {"name": "lane", "image": "", "user": "kim", "signs": ["has the GPU open"]}
    pair.snapshots[1]["containers"]["podman"] = [one]
    return "lane (podman of kim) (has the GPU open)"


def of_a_person(pair: Pair) -> str:
    only(pair)
    one = {"name": "python3", "pid": 77, "user": "milo", "unit": "", "user_unit": ""}
    pair.snapshots[1]["outside"]["programs"] = [one | {"signs": ["has the GPU open"]}]
    return "python3 (pid 77 of milo) (has the GPU open)"


def that_listens(pair: Pair) -> str:
    only(pair)
    pair.snapshots[1]["listeners"]["listeners"] = [made_pair.listener(8888, unit="lane.service")]
    return "lane.service (pid 4711 of milo) (listens on port 8888)"


KINDS = [of_docker, in_a_loop, on_the_port, of_podman, of_a_person, that_listens]


@pytest.mark.parametrize("engine", KINDS, ids=lambda one: one.__name__)
def test_prepare_leaves_the_fabric_to_an_engine_of_no_known_stack_and_names_it(
    pair: Made, engine: Callable[[Pair], str]
) -> None:
    made = pair()
    told = engine(made)
    run = made.plan("prepare")
    assert run.status == 0, run.err
    assert "Fabric as the owner's file says" not in dict(run.changes)
    assert run.err.count(f"until {told} on @fake/spark2 is down") == 2


@pytest.mark.parametrize("engine", KINDS, ids=lambda one: one.__name__)
def test_stop_names_what_it_leaves_running_and_fails(
    pair: Made, engine: Callable[[Pair], str]
) -> None:
    made = pair()
    told = engine(made)
    for snapshot in made.snapshots:
        install(snapshot)
        snapshot["crontab"]["users"].clear()
    made.answers.update(ENDS)
    run = made.run("stop", "-y", "--debug")
    is_refused(run)
    assert f"yours to stop: {told}: " in run.err
    assert not any(f"{RANKS} stop " in command for command in run.commands("spark2"))


@pytest.mark.parametrize("engine", KINDS, ids=lambda one: one.__name__)
def test_undo_gives_nothing_back_under_it(pair: Made, engine: Callable[[Pair], str]) -> None:
    made = pair()
    told = engine(made)
    for snapshot in made.snapshots:
        snapshot["journal"] = {"entries": [entry("/etc/a", "restore")]}
    run = made.plan("undo")
    is_refused(run)
    (said,) = run.refusal()
    assert said.startswith(f"spark2: {told} runs; take it down first: ")


@pytest.mark.parametrize("engine", [of_docker, in_a_loop], ids=lambda one: one.__name__)
def test_serve_refuses_before_any_teardown_beside_an_engine_that_it_does_not_know(
    pair: Made, engine: Callable[[Pair], str]
) -> None:
    made = pair()
    told = engine(made)
    run = made.plan("serve")
    is_refused(run)
    assert run.refusal() == [
        f"spark2: {told} of no known stack runs and holds memory; stop it, or allow that with "
        "policy.foreign_containers: stop"
    ]


def test_an_engine_that_docker_would_start_again_is_refused_with_what_keeps_it_down(
    pair: Made,
) -> None:
    made = pair()
    one = lane(Restart="always")
    one["State"] |= {"Status": "exited", "Running": False}
    only(made, one)
    (said,) = made.plan("serve").refusal()
    assert "down, and started by docker when that starts" in said
    assert "docker update --restart=no lane" in said
    assert "Fabric as the owner's file says" in dict(made.plan("prepare").changes)


@pytest.mark.parametrize("policy", ["refuse", "stop"])
def test_one_that_a_stop_would_delete_is_refused_whatever_the_owner_allows(
    pair: Made, policy: str
) -> None:
    made = pair(policy={"foreign_containers": policy})
    only(made, lane(AutoRemove=True))
    (said,) = made.plan("serve").refusal()
    assert said.startswith("spark2: lane was started with --rm, so docker deletes it once it is ")
    run = made.plan("stop")
    assert ("No other engine runs", ("spark2",)) in run.changes
    assert "Other engines stopped" not in dict(run.changes)


def test_stop_takes_engines_of_no_known_stack_down_where_the_owner_allows_it(pair: Made) -> None:
    made = pair(policy={"foreign_containers": "stop"})
    only(made, lane(), container("grafana", "grafana/grafana:12", {}))
    made.snapshots[0]["containers"]["containers"] = [lane()]
    changes = dict(made.plan("stop").changes)
    names = list(changes)
    assert changes["Other engines of the head stopped"] == ("spark1",)
    assert changes["Other engines stopped"] == ("spark2",)
    assert names.index("Other engines of the head stopped") < names.index("Other engines stopped")
    assert "No other engine runs" not in changes
    for snapshot in made.snapshots:
        install(snapshot)
        snapshot["crontab"]["users"].clear()
    made.answers.update(ENDS | {f"{RANKS} stop ": {"policies": {"lane": "no"}}})
    run = made.run("stop", "-y", "--debug")
    (stopped,) = [c for c in run.commands("spark2") if f"{RANKS} stop " in c]
    assert "lane" in stopped
    assert "grafana" not in stopped


def test_serve_does_not_lay_the_fabric_under_a_program_that_no_job_ends(pair: Made) -> None:
    made = pair()
    told = of_a_person(made)
    assert made.plan("serve").refusal() == [
        f"spark2: {told} runs outside of docker, and the fabric is not changed under it; stop it: "
        "sudo kill 77"
    ]
    assert made.plan("rollback_dsf").status == 0


@pytest.mark.parametrize("engine", KINDS, ids=lambda one: one.__name__)
def test_verify_shows_it(pair: Made, engine: Callable[[Pair], str]) -> None:
    made = converge(pair())
    told = engine(made)
    run = made.run("verify")
    assert run.status == 1
    items = result(run)["hosts"]["spark2"]["items"]
    assert [one["verdict"] for one in items if told in one["found"]] == ["drift"]

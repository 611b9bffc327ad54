"""From what runs on all hosts to the stack `previous`, or why it cannot be one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from facts.network.fabric import Fabric
from facts.state import HostState, state_of
from operations.adopt import file
from operations.adopt.plan import Adoption, adoption
from operations.network.gids import fabric_facts
from operations.pair.identity import rank_faults
from stacks.definition import PREVIOUS, StackError, load_adopted
from stacks.render import check_pair, rank_spec
from tests.plan.made_pair import Snapshot, cluster, dirty, found_engine, found_pair, locked


@pytest.fixture
def pair(tmp_path: Path) -> list[Snapshot]:
    """As seed 002 had it: the head by compose, the worker by `docker run`, of no stack file."""
    return found_pair(cluster(), locked("lab", tmp_path), locked("dsf-lab", tmp_path))


def engine(pair: list[Snapshot], rank: int) -> dict[str, Any]:
    found: dict[str, Any] = pair[rank]["adoptable"]["engines"][0]
    return found


def states(pair: list[Snapshot]) -> list[HostState]:
    return [state_of(one) for one in pair]


def plan(pair: list[Snapshot], hosts: int = 2) -> Adoption:
    return adoption(cluster(hosts), states(pair), ())


def test_ranks_that_were_started_differently_are_one_stack(pair: list[Snapshot]) -> None:
    found = plan(pair)
    assert (found.cannot, found.notes) == ((), ())
    stack = found.stack
    assert stack is not None
    assert stack.adopted is not None
    assert [one.by for one in stack.adopted.ranks] == ["compose", "run"]
    assert [one.container for one in stack.adopted.ranks] == ["ds4-vllm-1", "vllm-worker"]
    assert (stack.ports.api, stack.ports.rendezvous, stack.start.head_delay_s) == (8888, 25000, 25)
    assert (stack.serve.model_name, stack.adopted.context) == ("deepseek-v4-flash-0731", 200000)
    assert stack.log.ready == "Application startup complete"
    assert stack.adopted.ranks[0].watchdogs == ("cron lines: the crontab of root line 5",)
    assert stack.recognise.compose_projects == ("ds4",)
    assert stack.unlocked == []


def test_the_file_that_is_written_is_the_stack_that_is_read(
    pair: list[Snapshot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    engine(pair, 0).update(ready=None, rendezvous=None, progress=[])
    engine(pair, 1).update(rendezvous=None)
    stack = plan(pair).stack
    assert stack is not None
    path = file.write(cluster(), stack)
    assert path == tmp_path / "spark-converge" / "stacks" / "sparks" / "previous.yaml"
    assert path.stat().st_mode & 0o777 == 0o600
    assert file.read(cluster()) == stack
    assert "ready: null" in path.read_text()


def test_a_file_of_a_run_that_somebody_broke_is_named(tmp_path: Path) -> None:
    path = tmp_path / "previous.yaml"
    assert load_adopted(path) is None
    path.write_text("name: other\nlauncher: adopted\n")
    with pytest.raises(StackError, match="remove it, then adopt anew"):
        load_adopted(path)


def test_what_was_not_found_is_said_and_stays_null(pair: list[Snapshot]) -> None:
    engine(pair, 0).update(ready=None, progress=[])
    engine(pair, 0)["files"] = [{"path": "/opt/ds4/compose.yaml", "there": False}]
    engine(pair, 0)["checkout"] = {"folder": "/opt/ds4", "commit": "a" * 40, "dirty": True}
    found = plan(pair)
    assert found.stack is not None
    assert (found.stack.log.ready, found.stack.log.progress) == (None, ())
    assert found.notes == (
        "spark1: /opt/ds4/compose.yaml is gone, no copy of it is kept",
        f"spark1: the checkout of ds4-vllm-1 has changes beyond {'a' * 40}",
        "no line of the head's log says that it is ready: null",
        "no line of the head's log shows how far a load is: null",
    )


@pytest.mark.parametrize(
    ("rank", "change", "said"),
    [
        (
            1,
            {"rank": 0},
            "spark2: vllm-worker is rank 0, and the owner's file makes this host rank 1",
        ),
        (1, {"world": 4}, "spark2: vllm-worker is one of 4 ranks, the owner's file has 2 hosts"),
        (
            1,
            {"address": "10.9.9.9"},
            "the ranks do not meet at one address: spark1 10.0.0.1, spark2",
        ),
        (1, {"rendezvous": 25001}, "the ranks do not meet at one rendezvous: spark1 25000, spark2"),
        (1, {"started_at": "2026-08-25T06:00:00Z"}, "different starts, further apart than a bind"),
        (0, {"api": None}, "spark1: ds4-vllm-1 lists no models on any port"),
        (0, {"model_name": None}, "does not say under which name it serves its model"),
        (1, {"cannot": ["vllm-worker was started with --rm"]}, "spark2: vllm-worker was started"),
        (0, {"project": "Not A Project"}, "recognise.compose_projects"),
    ],
)
def test_ranks_that_do_not_belong_together_are_no_stack(
    pair: list[Snapshot], rank: int, change: dict[str, Any], said: str
) -> None:
    engine(pair, rank).update(change)
    found = plan(pair)
    assert found.stack is None
    assert [said in line for line in found.cannot] == [True]


def test_half_a_pair_is_no_stack(pair: list[Snapshot]) -> None:
    pair[1]["adoptable"]["engines"] = []
    assert plan(pair).cannot == ("spark2: no engine runs here; the ranks are one unit",)


def test_two_engines_on_a_host_are_not_guessed_between(pair: list[Snapshot]) -> None:
    other = found_engine("other", 0)
    pair[0]["adoptable"]["engines"].append(other)
    (line,) = plan(pair).cannot
    assert line.startswith("spark1: none of ds4-vllm-1, other is one rank of an engine")


def test_what_else_serves_in_the_project_of_a_rank_is_part_of_it(pair: list[Snapshot]) -> None:
    proxy = found_engine("ds4-proxy-1", 0) | {"world": None, "rendezvous": None, "address": None}
    engine(pair, 0)["containers"]["ds4-proxy-1"] = "e" * 64
    pair[0]["adoptable"]["engines"].append(proxy)
    stack = plan(pair).stack
    assert stack is not None
    assert stack.adopted is not None
    assert set(stack.adopted.ranks[0].containers) == {"ds4-vllm-1", "ds4-proxy-1"}


def test_hosts_without_an_engine_have_nothing_to_adopt(tmp_path: Path) -> None:
    lab, dsf = locked("lab", tmp_path), locked("dsf-lab", tmp_path)
    bare = [state_of(dirty(cluster(), rank, lab, dsf)) for rank in range(2)]
    assert adoption(cluster(), bare, ()) == Adoption()


def test_a_rank_that_came_back_is_known_by_what_it_was_made_from(pair: list[Snapshot]) -> None:
    stack = plan(pair).stack
    assert stack is not None
    fabrics = [state.fabric for state in states(pair)]
    assert all(isinstance(fabric, Fabric) for fabric in fabrics)
    specs = [
        rank_spec(stack, cluster(), rank, fabric_facts(cluster(), rank, fabric))
        for rank, fabric in enumerate(fabrics)
        if isinstance(fabric, Fabric)
    ]
    assert check_pair(specs) == []
    assert (specs[0].stack, specs[1].create_argv) == (PREVIOUS, ())
    assert [list(rank_faults(s, st)) for s, st in zip(specs, states(pair), strict=True)] == [[], []]
    pair[1]["containers"]["containers"][0]["Recipe"] = "9" * 64
    assert list(rank_faults(specs[1], states(pair)[1])) == [
        "spark2: rank 1: vllm-worker was started with other settings than the engine that was kept"
    ]
    with pytest.raises(StackError, match="the owner's file names others"):
        rank_spec(stack, cluster(3), 0, fabric_facts(cluster(), 0, _fabric(pair)))


def _fabric(pair: list[Snapshot]) -> Fabric:
    found = states(pair)[0].fabric
    assert isinstance(found, Fabric)
    return found

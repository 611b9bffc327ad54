"""The ranks as one thing: whose container it is, and whether the pair is what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from facts.engines.containers import Container
from facts.network.fabric import Fabric, parse
from facts.state import HostState
from inventory.schema import Cluster
from operations.engines.recognise import containers_of, engines, foreign, stack_of, strays
from operations.launch.teardown import to_end
from operations.network.gids import fabric_facts, roce_v2_index
from operations.pair.identity import faults as job_faults
from operations.pair.identity import generations, rank_faults, specs
from stacks.definition import Stack, StackError, load
from stacks.render import RankSpec
from tests.plan.made_job import made_job
from tests.plan.made_pair import (
    Snapshot,
    bare,
    cluster,
    container,
    dirty,
    locked,
    roce,
    running,
    states,
)

PAIR = cluster()
LABEL = "io.spark-converge."


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stack, Stack]:
    folder: Path = tmp_path_factory.mktemp("locks")
    return locked("lab", folder), locked("dsf-lab", folder)


@pytest.fixture
def pair(stacks: tuple[Stack, Stack]) -> list[Snapshot]:
    return running(PAIR, *stacks)


def wanted(stacks: tuple[Stack, Stack], snapshots: list[Snapshot]) -> list[RankSpec]:
    return specs(PAIR, stacks[0], states(snapshots))


def only(snapshot: Snapshot) -> dict[str, Any]:
    """The one container of a host, to be changed."""
    found: dict[str, Any] = snapshot["containers"]["containers"][0]
    return found


def parsed(made: dict[str, Any]) -> Container:
    (found,) = containers_of(states([{"containers": {"installed": True, "containers": [made]}}])[0])
    return found


def faults(stacks: tuple[Stack, Stack], snapshots: list[Snapshot], rank: int) -> list[str]:
    return list(rank_faults(wanted(stacks, snapshots)[rank], states(snapshots)[rank]))


# Whose container is it?


@pytest.mark.parametrize(
    ("name", "image", "labels", "stack"),
    [
        ("x", "other/image", {f"{LABEL}stack": "lab"}, "lab"),
        ("x", "other/image", {"com.docker.compose.project": "dsf-lab"}, "dsf-lab"),
        ("x", "10.0.2.100:5000/lab-engine@sha256:" + "0" * 64, {}, "lab"),
        ("x", "10.0.2.100:5000/lab-engine:v2", {}, "lab"),
        ("x", "10.0.2.100:5000/lab-engine", {}, "lab"),
        ("x", "10.0.2.100:5000/lab-engine:v2@sha256:" + "0" * 64, {}, "lab"),
        ("x", "10.0.2.100:5000/lab-engine-old:v2", {}, "dsf-lab"),
        ("spark-lab-0", "other/image", {}, "lab"),
        ("glm53-sglang-1", "other/image", {}, "glm53-sglang-nvfp4"),
        ("x", "10.0.2.100:5000/lab-engine-new", {}, None),
        ("my-spark-lab-0", "other/image", {}, None),
        ("x", "sha256:" + "0" * 64, {}, None),
        ("x", "", {}, None),
    ],
)
def test_a_container_is_known_by_label_project_image_or_name(
    stacks: tuple[Stack, Stack], name: str, image: str, labels: dict[str, str], stack: str | None
) -> None:
    known = (*stacks, load("glm53-sglang-nvfp4"))
    assert stack_of(parsed(container(name, image, labels)), known) == stack
    assert stack_of(parsed(container(name, image, labels)), known[::-1]) == stack


def test_our_label_counts_more_than_a_name(stacks: tuple[Stack, Stack]) -> None:
    odd = parsed(container("dsf-lab-engine-1", "x/y", {f"{LABEL}stack": "lab"}))
    assert stack_of(odd, stacks) == stack_of(odd, stacks[::-1]) == "lab"


def test_engines_and_strangers_are_told_apart(stacks: tuple[Stack, Stack]) -> None:
    snapshot = dirty(PAIR, 0, *stacks)
    grafana = container("grafana", "grafana/grafana:12", {})
    stopped = container("old-notebook", "jupyter/base:1", {})
    stopped["State"] |= {"Running": False, "Status": "exited"}
    snapshot["containers"]["containers"] += [grafana, stopped]
    (state,) = states([snapshot])
    found = engines(0, state, stacks)
    assert [(f.rank, f.stack, f.container.name) for f in found] == [
        (0, "dsf-lab", "dsf-lab-engine-1")
    ]
    assert [c.name for c in foreign(state, stacks)] == ["grafana"]


def test_an_engine_that_does_not_run_is_one_all_the_same(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    only(pair[0])["State"] |= {"Running": False, "Status": "exited", "ExitCode": 137}
    assert len(engines(0, states(pair)[0], stacks)) == 1


# GIDs


def fabric(rdma: dict[str, Any]) -> Fabric:
    return parse(
        {"interfaces": {}, "bonds": {}, "netplan": {}, "rdma": rdma, "default_interfaces": []}
    )


def test_d03_the_index_is_looked_up_for_each_device_not_assumed() -> None:
    found = fabric(
        {
            "rocep1s0f0": roce("192.168.100.1", "bond0", index=3),
            "roceP2p1s0f0": roce("192.168.100.1", "bond0", index=4),
        }
    )
    assert roce_v2_index(found, "rocep1s0f0", "192.168.100.1") == 3
    assert roce_v2_index(found, "roceP2p1s0f0", "192.168.100.1") == 4
    assert fabric_facts(PAIR, 0, found).gid_indexes == {"rocep1s0f0": 3, "roceP2p1s0f0": 4}


def test_d03_a_version_1_gid_or_another_address_is_not_taken() -> None:
    old = roce("192.168.100.1", "bond0", index=2)
    old["gids"]["2"]["type"] = "IB/RoCE v1"
    found = fabric({"rocep1s0f0": old, "rocep1s0f1": roce("192.168.100.9", "bond0")})
    assert roce_v2_index(found, "rocep1s0f0", "192.168.100.1") is None
    assert roce_v2_index(found, "rocep1s0f1", "192.168.100.1") is None
    assert roce_v2_index(found, "absent", "192.168.100.1") is None
    assert fabric_facts(PAIR, 0, found).gid_indexes == {}


def test_d05_every_rank_gets_its_own_hosts_index(stacks: tuple[Stack, Stack]) -> None:
    snapshots = [bare(PAIR, rank, *stacks) for rank in range(2)]
    for snapshot, index, node in zip(snapshots, (4, 3), PAIR.nodes, strict=True):
        snapshot["fabric"]["rdma"] = {"rocep1s0f0": roce(node.fabric_address, "bond0", index)}
    made = wanted(stacks, snapshots)
    assert [spec.env["NCCL_IB_GID_INDEX"] for spec in made] == ["4", "3"]


def test_devices_of_other_links_are_not_the_fabrics() -> None:
    found = fabric(
        {
            "rocep1s0f0": roce("192.168.100.1", "enp1s0f0np0"),
            "mlx5_9": roce("10.0.2.11", "enP7s7"),
        }
    )
    assert fabric_facts(PAIR, 0, found).hcas == ("rocep1s0f0",)


def test_an_unread_fabric_makes_no_spec(stacks: tuple[Stack, Stack], pair: list[Snapshot]) -> None:
    pair[1]["fabric"] = {"unknown": "ip address failed"}
    with pytest.raises(StackError, match=r"spark2: fabric unknown \(ip address failed\)"):
        wanted(stacks, pair)


# Is each rank what was asked for?


def test_a_running_pair_has_no_fault(stacks: tuple[Stack, Stack], pair: list[Snapshot]) -> None:
    assert faults(stacks, pair, 0) == faults(stacks, pair, 1) == []
    assert told(stacks, pair) == []


def stop(one: dict[str, Any]) -> None:
    one["State"] |= {"Running": False, "Status": "exited", "ExitCode": 137}


def restarting(one: dict[str, Any]) -> None:
    one["State"] |= {"Restarting": True, "Status": "restarting", "ExitCode": 1}


def other_image(one: dict[str, Any]) -> None:
    one |= {"Reference": "10.0.2.100:5000/lab-engine:latest", "Digests": [], "Image": DIGEST}


def other_settings(one: dict[str, Any]) -> None:
    one["Labels"][f"{LABEL}spec"] = "0" * 64


def no_label(one: dict[str, Any]) -> None:
    del one["Labels"][f"{LABEL}spec"]


def updated(one: dict[str, Any]) -> None:
    one["Restart"] = "unless-stopped"


def renamed(one: dict[str, Any]) -> None:
    one["Name"] = "/spark-lab-9"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (stop, "spark2: rank 1: spark-lab-1 is exited (exit status 137)"),
        (restarting, "spark2: rank 1: spark-lab-1 is restarting (exit status 1)"),
        (other_image, "spark2: rank 1: spark-lab-1 runs image 10.0.2.100:5000/lab-engine:latest ("),
        (other_settings, "spark2: rank 1: spark-lab-1 was started with other settings"),
        (no_label, "spark2: rank 1: spark-lab-1 was started with other settings"),
        (
            updated,
            "spark2: rank 1: spark-lab-1 would come back by itself (restart policy unless-stopped)",
        ),
        (renamed, "spark2: rank 1: no container spark-lab-1"),
    ],
)
def test_each_way_of_being_another_rank_is_named(
    stacks: tuple[Stack, Stack],
    pair: list[Snapshot],
    change: Callable[[dict[str, Any]], None],
    said: str,
) -> None:
    change(only(pair[1]))
    (found,) = faults(stacks, pair, 1)
    assert found.startswith(said)
    assert faults(stacks, pair, 0) == []


def test_a_daemon_that_is_down_is_no_clean_rank(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["containers"] = {"unknown": "Cannot connect to the Docker daemon"}
    assert faults(stacks, pair, 0) == [
        "spark1: rank 0: containers unknown (Cannot connect to the Docker daemon)"
    ]


def test_a_renumbered_gid_is_no_fault_of_a_running_rank_but_another_device_is(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["fabric"]["rdma"] = {"rocep1s0f0": roce("192.168.100.1", "bond0", index=5)}
    assert faults(stacks, pair, 0) == []
    pair[0]["fabric"]["rdma"] = {"rocep1s0f1": roce("192.168.100.1", "bond0")}
    assert faults(stacks, pair, 0) == [
        "spark1: rank 0: spark-lab-0 was started with other settings"
    ]


def test_a_compose_rank_is_known_by_its_image(stacks: tuple[Stack, Stack]) -> None:
    snapshots = [dirty(PAIR, rank, *stacks) for rank in range(2)]
    made = specs(PAIR, stacks[1], states(snapshots))
    assert [list(rank_faults(s, st)) for s, st in zip(made, states(snapshots), strict=True)] == [
        [],
        [],
    ]
    other_image(only(snapshots[0]))
    assert len(list(rank_faults(made[0], states(snapshots)[0]))) == 1


# Do the ranks belong together?


def told(stacks: tuple[Stack, Stack], snapshots: list[Snapshot]) -> list[str]:
    return list(generations(wanted(stacks, snapshots), states(snapshots), 300))


def test_e07_a_head_that_came_back_alone_is_no_pair(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    only(pair[0])["State"]["StartedAt"] = "2026-08-27T04:00:00Z"
    assert told(stacks, pair) == [
        "spark1: spark-lab-0 was restarted at 2026-08-27T04:00:00Z, not by this tool",
        "the ranks were started further apart than the 300 s of a bind: spark1 "
        "2026-08-27T04:00:00Z, spark2 2026-08-26T06:00:00Z",
    ]


def test_ranks_that_docker_brought_back_together_are_a_pair(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    """Both hosts lost power: what the ranks are worth is asked of the model, not of the record."""
    for snapshot, seconds in zip(pair, ("07.5", "41.123456789"), strict=True):
        only(snapshot)["State"]["StartedAt"] = f"2026-08-27T04:00:{seconds}Z"
    assert told(stacks, pair) == []
    only(pair[1])["State"]["StartedAt"] = "2026-08-27T04:06:00Z"
    (said,) = told(stacks, pair)
    assert said.startswith("the ranks were started further apart than the 300 s of a bind: ")


def test_a_head_that_was_made_anew_with_copied_labels_is_named(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    only(pair[0])["Id"] = "f" * 64
    assert told(stacks, pair) == [
        "spark1: spark-lab-0 is not the container that this tool started, though it has its labels"
    ]


DIGEST = "sha256:" + "d" * 64


@pytest.mark.parametrize("spelling", ["{}:v1", "{}:v1@{digest}", "{}@{digest}", "{id}"])
def test_an_image_is_the_same_however_it_is_spelled(
    stacks: tuple[Stack, Stack], spelling: str
) -> None:
    dsf = stacks[1]
    snapshots = [dirty(PAIR, rank, *stacks) for rank in range(2)]
    repository, _, digest = dsf.image_reference.partition("@")
    for snapshot in snapshots:
        one = only(snapshot)
        words = {"digest": digest, "id": one["Image"]}
        one["Reference"] = spelling.format(repository, **words)
    made = specs(PAIR, dsf, states(snapshots))
    assert not list(rank_faults(made[0], states(snapshots)[0]))
    only(snapshots[0])["Digests"] = []  # docker load drops them; the id is the same
    assert not list(rank_faults(made[0], states(snapshots)[0]))
    only(snapshots[0])["Image"] = DIGEST
    (said,) = rank_faults(made[0], states(snapshots)[0])
    assert DIGEST in said


def test_e07_ranks_of_two_launches_are_no_pair(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["record"]["generation"] = "20260827T040000Z"
    assert told(stacks, pair) == [
        "the ranks are of different generations: spark1 20260827T040000Z, spark2 20260826T060000Z"
    ]


def test_e07_without_a_record_the_label_speaks(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["record"] = {"container_id": "of an older container", "generation": "20260101T000000Z"}
    assert told(stacks, pair) == []
    only(pair[0])["Labels"][f"{LABEL}generation"] = "20260827T040000Z"
    assert len(told(stacks, pair)) == 1
    pair[1]["record"] = {"unknown": "no such file"}
    assert len(told(stacks, pair)) == 1


def test_e07_half_a_pair_is_named_by_the_missing_rank(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[1]["containers"]["containers"] = []
    assert told(stacks, pair) == []
    assert faults(stacks, pair, 1) == ["spark2: rank 1: no container spark-lab-1"]


def test_an_old_stack_that_nobody_recorded_is_one_pair(stacks: tuple[Stack, Stack]) -> None:
    snapshots = [dirty(PAIR, rank, *stacks) for rank in range(2)]
    made = specs(PAIR, stacks[1], states(snapshots))
    assert list(generations(made, states(snapshots), 300)) == []
    snapshots[0]["record"] = {
        "generation": "20260827T040000Z",
        "container_id": only(snapshots[0])["Id"],
        "started_at": only(snapshots[0])["State"]["StartedAt"],
    }
    (said,) = generations(made, states(snapshots), 300)
    assert "spark1 20260827T040000Z, spark2 not started by this tool" in said


def test_more_ranks_have_specs_of_their_own(stacks: tuple[Stack, Stack]) -> None:
    eight: Cluster = cluster(8)
    found: list[HostState] = states([bare(eight, rank, *stacks) for rank in range(8)])
    made = specs(eight, stacks[0], found)
    assert [spec.rank for spec in made] == list(range(8))
    assert len({spec.spec for spec in made}) == 8
    assert {spec.world for spec in made} == {8}


# What is there beside the wanted ranks?


def test_a_second_container_of_the_wanted_stack_is_a_fault(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    """It holds memory or the port, and nobody asked for it: it goes down with the rest."""
    lab = stacks[0]
    pair[1]["containers"]["containers"].append(
        container("spark-lab-by-hand", lab.image_reference, {})
    )
    job = made_job(PAIR, pair, lab, stacks)
    assert job_faults(job) == ["spark2: spark-lab-by-hand of stack lab is there"]
    assert to_end(job, 1) == ["spark-lab-1", "spark-lab-by-hand"]


def test_what_the_wanted_compose_project_starts_beside_its_engine_belongs_to_it(
    stacks: tuple[Stack, Stack],
) -> None:
    dsf = stacks[1]
    snapshots = [dirty(PAIR, rank, *stacks) for rank in range(2)]
    project = {"com.docker.compose.project": "dsf-lab"}
    snapshots[0]["containers"]["containers"] += [
        container("dsf-lab-proxy-1", "nginx:1", project),
        container("dsf-lab-by-hand", dsf.image_reference, {}),
    ]
    found = states(snapshots)
    spec = specs(PAIR, dsf, found)[0]
    others = [f.container.name for f in strays(0, found[0], dsf, spec, stacks)]
    assert others == ["dsf-lab-by-hand"]

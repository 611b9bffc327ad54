"""RDMA between the ranks: who meets whom, and what a bandwidth says."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from facts.run.program import END
from operations.launch import rdma
from operations.launch.rdma import (
    Exchange,
    average_gbps,
    exchanged,
    exchanges,
    judged,
    lacking,
    path_mtu,
)
from operations.network.gids import fabric_facts, unlike
from operations.run.job import Here, Job
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import PORTS, bare, cluster, link, locked, roce
from tests.unit.network.test_netplan import DUAL, converged

PAIR = cluster()
# perftest 24.10: the table of a client with --report_gbits, with figures put in.
REPORT = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : rocep1s0f0
 Link type       : Ethernet
 GID index       : 3
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0015 PSN 0xd8bd7e RKey 0x000d12 VAddr 0x007ffff7a0b000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:100:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      883500           0.00               {gbps}  		   0.176531
---------------------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("gbps", "rate", "verdict"),
    [
        ("13.2", 200.0, "degraded init"),
        ("8.00", 200.0, "degraded init"),
        ("25.00", 200.0, "degraded init"),
        ("92.6", 200.0, "good"),
        ("25.10", 200.0, "slow"),
        ("3.10", 200.0, "slow"),
        ("13.2", 10.0, "not judged"),
        ("13.2", None, "not judged"),
    ],
)
def test_d17_a_badly_initialised_card_has_a_verdict_of_its_own(
    gbps: str, rate: float | None, verdict: str
) -> None:
    found = average_gbps(REPORT.format(gbps=gbps))
    assert found == float(gbps)
    assert judged(found, rate) == verdict


@pytest.mark.parametrize(
    "text", ["", "Couldn't connect to 10.0.0.2", REPORT.replace("Gb/sec", "MiB/sec"), "1 2 3 x"]
)
def test_a_report_without_the_figure_is_none(text: str) -> None:
    assert average_gbps(text) is None


def test_each_device_meets_its_namesake_with_each_hosts_own_index() -> None:
    fabrics = [
        converged(rdma={"rocep1s0f0": roce("192.168.100.1", "bond0", 4)}),
        converged(rdma={"rocep1s0f0": roce("192.168.100.2", "bond0", 3)}),
    ]
    assert list(exchanges(PAIR, fabrics)) == [
        Exchange("rocep1s0f0", 4, 1, "rocep1s0f0", 3, "192.168.100.2", 4096)
    ]


def test_each_rail_meets_its_own_address() -> None:
    def rails(n: int) -> dict[str, Any]:
        names = ("rocep1s0f0", "rocep1s0f1")
        return {name: roce(f"192.168.10{i}.{n}", PORTS[i]) for i, name in enumerate(names)}

    found = exchanges(DUAL, [converged(rdma=rails(1)), converged(rdma=rails(2))])
    assert [(one.device, one.other_address) for one in found] == [
        ("rocep1s0f0", "192.168.100.2"),
        ("rocep1s0f1", "192.168.101.2"),
    ]


def test_a_device_that_is_down_or_has_no_such_gid_meets_nobody() -> None:
    up = {"rocep1s0f0": roce("192.168.100.1", "bond0")}
    down = {"rocep1s0f0": roce("192.168.100.2", "bond0") | {"state": "1: DOWN"}}
    other = {"rocep1s0f0": roce("192.168.100.9", "bond0")}
    for there in (down, other):
        assert list(exchanges(PAIR, [converged(rdma=up), converged(rdma=there)])) == []


def test_devices_of_other_names_meet_by_their_place() -> None:
    fabrics = [
        converged(rdma={"mlx5_bond_0": roce("192.168.100.1", "bond0")}),
        converged(rdma={"rocep1s0f0": roce("192.168.100.2", "bond0")}),
    ]
    assert next(exchanges(PAIR, fabrics)).other_device == "rocep1s0f0"


def test_a_host_without_the_tool_is_named() -> None:
    have, have_not = converged(tools=["ibv_rc_pingpong"]), converged()
    told = "ibv_rc_pingpong is not installed on spark2"
    assert lacking([have, have_not], ["spark1", "spark2"], "ibv_rc_pingpong") == told
    assert lacking([have], ["spark1"], "ibv_rc_pingpong") is None


TOOL = "ibv_rc_pingpong"


def tried(
    folder: Path, tools: list[str], meets: Any = None, devices: dict[str, Any] | None = None
) -> Job:
    """Run the operation on the head; meets: what the meeting end says; devices: of the worker."""
    stacks = locked("lab", folder / "locks"), locked("dsf-lab", folder / "locks")
    snapshots = [bare(PAIR, rank, *stacks) for rank in range(2)]
    for snapshot in snapshots:
        snapshot["fabric"]["tools"] = tools
    snapshots[1]["fabric"]["rdma"] = devices or snapshots[1]["fabric"]["rdma"]
    said: dict[str, Any] = {
        " rdma serve ": {},
        " rdma meet ": meets or {"out": ""},
        " rdma end": {},
    }
    answers = {words: [json.dumps(answer), END] for words, answer in said.items()}
    job = made_job(PAIR, snapshots, stacks[0], stacks, responses={0: answers, 1: answers})
    add_op(job.state, exchanged, here=Here(job, 0), host=job.hosts[0])
    job.state.is_executing = True
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    return job


def asked(job: Job) -> list[list[str]]:
    """Words behind `rdma` of what each host was given."""
    found = [re.findall(r" rdma ([^|]*?) \|\|", c) for h in job.hosts for c in commands(h)]
    return [words.split() for one in found for words in one]


def test_the_waiting_end_is_on_the_worker_and_is_ended_again(tmp_path: Path) -> None:
    job = tried(tmp_path, [TOOL])
    assert job.problem is None
    assert asked(job) == [
        ["meet", TOOL, "rocep1s0f0", "1", "18515", "4096", "192.168.100.2"],
        ["serve", TOOL, "rocep1s0f0", "1", "18515", "4096"],
        ["end"],
    ]


def test_messages_that_do_not_pass_are_one_sentence(tmp_path: Path) -> None:
    job = tried(tmp_path, [TOOL], {"ok": False, "message": "Failed status transport retry"})
    assert job.problem is not None
    assert job.problem.startswith(
        "RDMA from rocep1s0f0 (GID 1) of @fake/spark1 to rocep1s0f0 (GID 1) of @fake/spark2 does "
        "not pass though full frames do (@fake/spark1: rdma meet: Failed status transport retry)"
    )
    assert asked(job)[-1] == ["end"]


def test_without_tools_nothing_is_tried_and_nothing_fails(tmp_path: Path) -> None:
    job = tried(tmp_path, [])
    assert (job.problem, asked(job)) == (None, [])


WORKER = roce("192.168.100.2", "bond0", 3)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (WORKER | {"state": "1: DOWN"}, "rocep1s0f0 is DOWN and has GID 3"),
        (WORKER | {"state": "2: INIT"}, "rocep1s0f0 is INIT and has GID 3"),
        (
            WORKER | {"gids": {"0": WORKER["gids"]["0"]}},  # that of the link's IPv6 address
            "rocep1s0f0 is ACTIVE and has no such GID",
        ),
    ],
    ids=["down", "init", "IPv6 only"],
)
def test_a_rank_that_would_hang_for_want_of_a_gid_is_not_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], told: str
) -> None:
    """With the tools or without: a warning that nothing was tried would come before a hang."""
    monkeypatch.setattr(rdma, "GID_S", 0)
    job = tried(tmp_path, [], devices={"rocep1s0f0": found})
    assert job.problem is not None
    assert job.problem.startswith(
        f"spark2: no active RDMA device has a RoCE v2 GID of 192.168.100.2 ({told}), and lab uses"
    )


def test_a_second_function_of_a_cable_without_a_gid_forbids_nothing(tmp_path: Path) -> None:
    """In a bond the member that does not send has none."""
    second = {"state": "4: ACTIVE", "gids": {"0": WORKER["gids"]["0"]}}
    job = tried(tmp_path, [], devices={"rocep1s0f0": WORKER, "rocep1s0f1": second})
    assert job.problem is None


@pytest.mark.parametrize(
    ("mtu", "path"), [(9000, 4096), (4200, 4096), (4191, 2048), (1500, 1024), (1280, 1024)]
)
def test_messages_are_as_large_as_the_links_frames_allow(mtu: int, path: int) -> None:
    assert path_mtu(mtu) == path
    links = {"bond0": link(mtu, "192.168.100.1/24", kind="bond")}
    head = converged(interfaces=links, rdma={"rocep1s0f0": roce("192.168.100.1", "bond0")})
    other = converged(rdma={"rocep1s0f0": roce("192.168.100.2", "bond0")})
    assert [one.mtu for one in exchanges(PAIR, [head, other])] == [path]


LOST = roce("192.168.100.1", "bond0") | {"state": "1: DOWN"}
NO_GID = {"state": "4: ACTIVE", "gids": {"0": WORKER["gids"]["0"] | {"interface": "bond0"}}}
GOOD = roce("192.168.100.1", "bond0", 3)


@pytest.mark.parametrize(
    ("devices", "named"),
    [
        ({"rocep1s0f0": GOOD, "rocep1s0f1": LOST}, ("rocep1s0f0",)),
        ({"rocep1s0f0": NO_GID, "rocep1s0f1": GOOD}, ("rocep1s0f1",)),
        ({"rocep1s0f0": GOOD, "rocep1s0f1": GOOD}, ("rocep1s0f0", "rocep1s0f1")),
        ({"rocep1s0f0": LOST, "rocep1s0f1": NO_GID}, ("rocep1s0f0", "rocep1s0f1")),
    ],
    ids=["one down", "one without a GID", "both", "none, so all are told"],
)
def test_only_devices_that_can_carry_the_fabric_are_named(
    devices: dict[str, Any], named: tuple[str, ...]
) -> None:
    assert fabric_facts(PAIR, 0, converged(rdma=devices)).hcas == named


def test_devices_come_in_the_order_of_the_rails_whatever_they_are_called() -> None:
    crossed = {"a": roce("192.168.101.1", PORTS[1]), "b": roce("192.168.100.1", PORTS[0])}
    assert fabric_facts(DUAL, 0, converged(rdma=crossed)).hcas == ("b", "a")
    straight = {"a": roce("192.168.100.2", PORTS[0]), "b": roce("192.168.101.2", PORTS[1])}
    fabrics = [converged(rdma=crossed), converged(rdma=straight)]
    assert [(e.device, e.other_device) for e in exchanges(DUAL, fabrics)] == [
        ("b", "a"),
        ("a", "b"),
    ]


@pytest.mark.parametrize(
    ("worker", "told"),
    [
        ({"rocep1s0f0": WORKER}, None),
        ({"mlx5_bond_0": WORKER}, None),
        ({"rocep1s0f0": WORKER, "rocep1s0f1": WORKER}, "spark2 rocep1s0f0 rocep1s0f1"),
        ({"rocep1s0f0": WORKER | {"state": "1: DOWN"}}, "spark2 none"),
    ],
)
def test_hosts_with_unlike_devices_are_told(worker: dict[str, Any], told: str | None) -> None:
    head = converged(rdma={"rocep1s0f0": GOOD})
    said = list(unlike(PAIR, [head, converged(rdma=worker)]))
    assert [f"(spark1 rocep1s0f0, {told})" in line for line in said] == [True] * bool(told)


def test_a_launch_with_unlike_devices_fails_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rdma, "GID_S", 0)
    job = tried(tmp_path, [], devices={"rocep1s0f0": WORKER, "rocep1s0f1": WORKER})
    assert job.problem is not None
    assert job.problem.startswith("the RDMA devices that can carry the fabric differ (spark1 rocep")

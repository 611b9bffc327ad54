"""verify over @fake hosts: read-only, one page, its exit status and its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.plan.conftest import Pair, Run
from tests.plan.made_pair import bare, running
from tests.unit.look.test_verify_items import MACHINE

Make = Callable[..., Pair]


def converge(pair: Pair) -> Pair:
    """All hosts converged, nothing running."""
    for rank in range(len(pair.names)):
        pair.snapshots[rank] = bare(pair.cluster, rank, pair.lab, pair.dsf) | {"machine": MACHINE}
    return pair


def result(run: Run) -> dict[str, Any]:
    (path,) = run.state_home.glob("spark-converge/*-verify/verify.json")
    assert str(path) in run.out
    assert path.parent.stat().st_mode & 0o777 == 0o700
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_converged_pair_is_all_ok(pair: Make) -> None:
    run = converge(pair()).run("verify")
    assert (run.status, result(run)["ok"]) == (0, True)
    assert "all ok" in run.out
    assert "Traceback" not in run.err


def test_one_drift_on_one_host_is_exit_status_1(pair: Make) -> None:
    made = converge(pair())
    made.snapshots[1]["boot"]["default_target"] = "graphical.target"
    run = made.run("verify")
    found = result(run)
    drifted = {
        (host, item["name"])
        for host, column in found["hosts"].items()
        for item in column["items"]
        if item["verdict"] != "ok"
    }
    assert (run.status, drifted) == (1, {("spark2", "boots into")})
    assert "Traceback" not in run.err


def test_a_host_that_cannot_be_reached_has_an_unknown_column(pair: Make) -> None:
    run = converge(pair()).run("verify", gone="spark2")
    found = result(run)
    assert run.status == 1
    assert found["hosts"]["spark1"]["reached"]
    assert not found["hosts"]["spark2"]["reached"]
    assert {i["verdict"] for i in found["hosts"]["spark2"]["items"]} == {"unknown"}
    assert found["counts"]["drift"] == 0
    assert "cannot be reached" in run.out


def test_a_host_left_out_is_unknown_too(pair: Make) -> None:
    run = converge(pair()).run("verify", "--limit", "@fake/spark1")
    assert run.status == 1
    assert "left out by" in run.out  # the rest may stand on the next line of its cell


def test_a_pair_that_runs_rightly_but_does_not_answer_is_not_serving(pair: Make) -> None:
    """Over @fake there is no SSH link to ask the head by: the ranks are right, the answer lacks."""
    made = pair()
    made.snapshots[:] = [
        snapshot | {"machine": MACHINE} for snapshot in running(made.cluster, made.lab, made.dsf)
    ]
    run = made.run("verify")
    found = result(run)
    assert (run.status, found["serving"]["verdict"]) == (1, "drift")
    assert "no SSH link" in found["serving"]["found"]
    assert found["counts"]["drift"] == 1


def test_ranks_without_a_cable_between_them_are_not_asked(pair: Make) -> None:
    """Their answer would be awaited for a minute while the page tells what is wrong."""
    made = pair()
    made.snapshots[:] = [
        snapshot | {"machine": MACHINE} for snapshot in running(made.cluster, made.lab, made.dsf)
    ]
    for name in made.cluster.fabric.interfaces:
        made.snapshots[1]["fabric"]["interfaces"][name]["carrier"] = False
    run = made.run("verify")
    told = result(run)["serving"]
    assert told["verdict"] == "drift"
    assert told["found"] == "not asked: no cable of the fabric carries on spark2"


@pytest.mark.parametrize("arguments", [("--dry",), ("-y",), ()])
def test_nothing_is_executed_whatever_the_flags(pair: Make, arguments: tuple[str, ...]) -> None:
    made = converge(pair())
    run = made.run("verify", *arguments, "--debug")
    commands = [line for name in made.names for line in run.commands(name)]
    assert len(commands) == len(made.names)
    assert all(" snapshot " in line for line in commands)


def test_eight_hosts_stand_side_by_side(pair: Make) -> None:
    run = converge(pair(8)).run("verify")
    assert (run.status, len(result(run)["hosts"])) == (0, 8)


REPORT = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      883500           0.00               13.20  		   0.176531
"""


@pytest.mark.parametrize(
    ("tools", "verdict", "told"),
    [
        (["ib_write_bw"], "drift", "13.2 Gb/s, degraded init (link 200)"),
        ([], "unsupported", "ib_write_bw is not installed on @fake/spark1, @fake/spark2"),
    ],
)
def test_d17_bandwidth_is_measured_on_request_only(
    pair: Make, tools: list[str], verdict: str, told: str
) -> None:
    made = converge(pair())
    made.answers.update({" rdma serve ": {}, " rdma meet ": {"out": REPORT}, " rdma end": {}})
    for snapshot in made.snapshots:
        snapshot["fabric"]["tools"] = tools
        snapshot["fabric"]["rdma"]["rocep1s0f0"]["rate"] = "200 Gb/sec (4X HDR)"
    run = made.run("verify", "--data", "bandwidth=yes")
    (line,) = (one for one in result(run)["parity"] if one["name"].startswith("RDMA write"))
    assert (line["verdict"], told in line["found"].values()) == (verdict, True)
    assert run.status == (1 if verdict == "drift" else 0)


def test_no_bandwidth_is_measured_unasked(pair: Make) -> None:
    run = converge(pair()).run("verify")
    assert "RDMA write" not in json.dumps(result(run))

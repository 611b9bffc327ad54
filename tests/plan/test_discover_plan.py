"""discover over @fake hosts: one exec each, and an owner's file on standard output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from inventory.schema import load
from tests.plan.conftest import Pair
from tests.unit.look.test_owner_file import discovered


def prepared(pair: Pair) -> Pair:
    for rank, snapshot in enumerate(pair.snapshots):
        snapshot["discovered"] = discovered(rank)
    return pair


def test_the_printed_file_loads_and_names_the_hosts_in_order(
    pair: Callable[..., Pair], tmp_path: Path
) -> None:
    run = prepared(pair()).run("discover")
    assert run.status == 0, run.err
    path = tmp_path / "sparks.yaml"
    path.write_text(run.out)
    made = load(path)
    assert [node.name for node in made.nodes] == ["spark1", "spark2"]
    assert [node.fabric_address for node in made.nodes] == ["192.168.100.1", "192.168.100.2"]


def test_each_host_is_read_once_and_nothing_else_is_run(pair: Callable[..., Pair]) -> None:
    made = prepared(pair())
    run = made.run("discover", "-y", "--debug")
    for name in made.names:
        (command,) = run.commands(name)
        assert " snapshot " in command


def test_one_host_alone_is_no_cluster(pair: Callable[..., Pair]) -> None:
    run = prepared(pair()).run("discover", "--limit", "@fake/spark1")
    assert run.status == 1
    assert "1 hosts can be read, 2 to 8 wanted" in run.err
    assert "Traceback" not in run.err


def test_a_host_that_does_not_let_us_look_is_named(pair: Callable[..., Pair]) -> None:
    made = prepared(pair())
    made.snapshots[1]["fabric"] = {"unknown": "PermissionError: /etc/netplan/40-cx7.yaml"}
    run = made.run("discover")
    assert run.status == 1
    assert "spark2: its state could not be read" in run.err
    assert "Traceback" not in run.err
    assert run.out == ""

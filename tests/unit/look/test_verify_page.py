"""Verify between the hosts: parity, ranks that belong together, and the page as a whole."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from facts.state import HostState, state_of, unread
from inventory.host_settings import shipped
from operations.look.page import Column, Page, document, rendered
from operations.look.parity import alike, lines
from operations.pair.identity import rank_line
from operations.run.findings import Finding, Line, Look
from stacks.definition import Stack
from tests.plan.made_pair import Snapshot, bare, cluster, container, dirty, locked, running
from tests.unit.look.test_verify_items import MACHINE


@pytest.fixture
def lab(tmp_path: Path) -> Stack:
    return locked("lab", tmp_path)


@pytest.fixture
def dsf(tmp_path: Path) -> Stack:
    return locked("dsf-lab", tmp_path)


def pair(lab: Stack, dsf: Stack) -> list[Snapshot]:
    return [
        bare(cluster(), rank, lab, dsf) | {"machine": copy.deepcopy(MACHINE)} for rank in range(2)
    ]


def states(snapshots: list[Snapshot]) -> list[HostState]:
    return [state_of(snapshot) for snapshot in snapshots]


def verdicts(found: list[Line]) -> dict[str, str]:
    return {line.name: line.verdict for line in found}


def test_equal_hosts_are_alike(lab: Stack, dsf: Stack) -> None:
    assert set(verdicts(lines(cluster(), states(pair(lab, dsf)))).values()) == {"ok"}


def kernel(snapshot: Snapshot) -> None:
    snapshot["boot"]["kernel"] = "6.12.75"


def docker(snapshot: Snapshot) -> None:
    snapshot["machine"]["docker"]["version"] = "28.4.0"


def driver(snapshot: Snapshot) -> None:
    snapshot["machine"]["gpus"][0]["driver_version"] = "580.95.06"


def firmware(snapshot: Snapshot) -> None:
    snapshot["machine"]["nic_firmware"]["rocep1s0f0"] = "28.45.9999"


def bios(snapshot: Snapshot) -> None:
    snapshot["machine"]["bios"] = "5.37"


def frames(snapshot: Snapshot) -> None:
    snapshot["fabric"]["interfaces"]["bond0"]["mtu"] = 1500


def memory(snapshot: Snapshot) -> None:
    snapshot["memory"]["meminfo_kib"]["MemTotal"] = 1400000


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (kernel, "kernel"),
        (docker, "docker"),
        (driver, "GPU driver"),
        (firmware, "NIC firmware"),
        (bios, "BIOS"),
        (frames, "MTU bond0 and members"),
        (memory, "memory"),
    ],
)
def test_one_difference_is_one_line(
    lab: Stack, dsf: Stack, change: Callable[[Snapshot], None], name: str
) -> None:
    snapshots = pair(lab, dsf)
    change(snapshots[1])
    found = verdicts(lines(cluster(), states(snapshots)))
    assert {n for n, verdict in found.items() if verdict != "ok"} == {name}
    assert found[name] == "drift"


def test_e01_different_image_stores_are_said_and_are_no_drift(lab: Stack, dsf: Stack) -> None:
    """Field case E01: overlay2 beside the containerd store is how real pairs are."""
    snapshots = pair(lab, dsf)
    snapshots[1]["machine"]["docker"] |= {"driver": "overlayfs", "store": "containerd"}
    (line,) = (x for x in lines(cluster(), states(snapshots)) if x.name == "image store")
    assert (line.verdict, line.found) == ("ok", ("overlay2 (docker)", "overlayfs (containerd)"))
    assert "digest" in line.note


def test_memory_that_firmware_keeps_is_no_difference(lab: Stack, dsf: Stack) -> None:
    snapshots = pair(lab, dsf)
    snapshots[1]["memory"]["meminfo_kib"]["MemTotal"] -= 10000
    assert verdicts(lines(cluster(), states(snapshots)))["memory"] == "ok"


def test_what_no_host_has_is_unsupported_and_what_one_lacks_is_a_drift() -> None:
    assert alike("GPU driver", ["none", "none"]).verdict == "unsupported"
    assert alike("GPU driver", ["none", "580"]).verdict == "drift"


def test_an_unread_host_makes_every_parity_line_unknown(lab: Stack, dsf: Stack) -> None:
    found = [states(pair(lab, dsf))[0], unread("cannot be reached")]
    assert set(verdicts(lines(cluster(), found)).values()) == {"unknown"}


# Ranks


def ranks(found: list[HostState], lab: Stack, dsf: Stack) -> list[Finding]:
    wanted, known = cluster(), (lab, dsf)
    looks = [Look(wanted, rank, tuple(found), lab, known, shipped()) for rank in range(2)]
    return [rank_line(look) for look in looks]


def test_two_right_ranks_or_none_are_ok(lab: Stack, dsf: Stack) -> None:
    wanted = states(running(cluster(), lab, dsf))
    assert [i.verdict for i in ranks(wanted, lab, dsf)] == ["ok", "ok"]
    assert [i.verdict for i in ranks(states(pair(lab, dsf)), lab, dsf)] == ["ok", "ok"]


def test_half_a_pair_is_a_drift_on_both_hosts(lab: Stack, dsf: Stack) -> None:
    snapshots = running(cluster(), lab, dsf)
    snapshots[1]["containers"]["containers"] = []
    found = ranks(states(snapshots), lab, dsf)
    assert [i.verdict for i in found] == ["ok", "drift"]
    assert found[1].found == "none here, but on another host"


def test_another_stack_and_an_ended_rank_are_drifts(lab: Stack, dsf: Stack) -> None:
    old = states([dirty(cluster(), rank, lab, dsf) for rank in range(2)])
    assert [i.verdict for i in ranks(old, lab, dsf)] == ["drift", "drift"]
    snapshots = running(cluster(), lab, dsf)
    state: dict[str, Any] = {"Status": "exited", "Running": False, "ExitCode": 137}
    snapshots[0]["containers"]["containers"][0]["State"] |= state
    found = ranks(states(snapshots), lab, dsf)
    assert (found[0].verdict, found[0].found) == (
        "drift",
        "spark-lab-0 is exited (exit status 137)",
    )


def test_a_second_container_of_the_wanted_stack_is_a_drift(lab: Stack, dsf: Stack) -> None:
    snapshots = running(cluster(), lab, dsf)
    snapshots[1]["containers"]["containers"].append(
        container("spark-lab-by-hand", lab.image_reference, {})
    )
    found = ranks(states(snapshots), lab, dsf)
    assert [i.verdict for i in found] == ["ok", "drift"]
    assert found[1].found == "spark-lab-by-hand of lab is running"


def test_unread_containers_are_unknown_and_not_nothing(lab: Stack, dsf: Stack) -> None:
    snapshots = pair(lab, dsf)
    snapshots[0]["containers"] = {"unknown": "docker does not answer"}
    found = ranks(states(snapshots), lab, dsf)
    assert [i.verdict for i in found] == ["unknown", "ok"]


# The page

GOOD = Finding("host", "boots into", "multi-user.target", "multi-user.target", "ok")
PAGE = Page(
    (Column("spark1", True, (GOOD,)), Column("spark2", True, (GOOD,))),
    (Line("kernel", ("6.12", "6.12"), "ok"),),
    Finding("cluster", "serving", "lab answers", "lab gave a real completion", "ok"),
)


def test_what_a_host_cannot_have_does_not_spoil_the_page() -> None:
    gpu = replace(GOOD, name="GPU", kind="unsupported")
    assert PAGE.ok
    assert replace(PAGE, columns=(Column("spark1", True, (GOOD, gpu)),)).ok


@pytest.mark.parametrize("verdict", ["drift", "unknown"])
def test_one_drift_or_one_unknown_anywhere_spoils_it(verdict: Any) -> None:
    item = Column("spark2", True, (replace(GOOD, kind=verdict),))
    assert not replace(PAGE, columns=(PAGE.columns[0], item)).ok
    assert not replace(PAGE, parity=(Line("kernel", ("1", "2"), verdict),)).ok
    assert not replace(PAGE, serving=replace(PAGE.serving, kind=verdict)).ok


def test_the_json_tells_drift_from_could_not_tell() -> None:
    items = (replace(GOOD, kind="drift"), replace(GOOD, name="fabric", kind="unknown"))
    page = replace(PAGE, columns=(PAGE.columns[0], Column("spark2", False, items)))
    found = json.loads(json.dumps(document(page)))
    assert found["ok"] is False
    assert found["counts"] == {"ok": 3, "drift": 1, "unsupported": 0, "unknown": 1}
    assert found["hosts"]["spark2"]["reached"] is False
    assert [i["verdict"] for i in found["hosts"]["spark2"]["items"]] == ["drift", "unknown"]
    assert found["parity"][0]["found"] == {"spark1": "6.12", "spark2": "6.12"}


def text_of(page: Page) -> str:
    console = Console(file=StringIO(), width=160)
    console.print(rendered(page))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_hosts_stand_side_by_side_and_nothing_is_taken_for_markup() -> None:
    other = replace(GOOD, found="[red]graphical.target[/red]", kind="drift")
    page = replace(PAGE, columns=(PAGE.columns[0], Column("spark2", True, (other,))))
    (row,) = (line for line in text_of(page).splitlines() if "boots into" in line)
    assert "ok  multi-user.target" in row
    assert "drift  [red]graphical.target[/red]" in row


def test_an_item_that_one_host_lacks_leaves_its_place_empty() -> None:
    extra = replace(GOOD, name="nvme Composite", found="42 °C")
    page = replace(PAGE, columns=(Column("spark1", True, (GOOD, extra)), PAGE.columns[1]))
    (row,) = (line for line in text_of(page).splitlines() if "nvme Composite" in line)
    assert row.rstrip("│ ").endswith("-")

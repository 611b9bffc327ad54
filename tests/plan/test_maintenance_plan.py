"""Updates of the hosts over @fake hosts: held before anything else, let go on request."""

from __future__ import annotations

from collections.abc import Callable

from facts.systemd.services import drop_in
from tests.plan.conftest import Pair
from tests.plan.made_pair import bare, install, running

Made = Callable[..., Pair]
HOLD = "Updates of the host held"


def entry(name: str, verdict: str) -> dict[str, str]:
    return {"name": name, "verdict": verdict, "why": ""}


def test_serve_holds_again_what_was_let_go_since(pair: Made) -> None:
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    held = made.snapshots[1]["services"]["units"]["apt-daily-upgrade.timer"]
    held |= {"ActiveState": "active", "UnitFileState": "enabled"}
    assert made.plan("prepare").changes == [(HOLD, ("spark2",))]


def test_a_dry_run_says_which_update_it_would_wait_for(pair: Made) -> None:
    made = pair()
    busy = "apt-get (process 7) has /var/lib/dpkg/lock-frontend"
    made.snapshots[0]["maintenance"]["busy"] = [busy]
    run = made.run("prepare", "--dry")
    assert run.status == 0, run.err
    assert f"would wait for: {busy}" in run.err


def test_a_host_whose_updates_cannot_be_read_refuses_all(pair: Made) -> None:
    made = pair()
    made.snapshots[0]["maintenance"] = {"unknown": "cut off"}
    run = made.plan("prepare")
    assert run.status == 1
    assert run.refusal() == ["spark1: maintenance unknown (cut off)"]


def test_rearm_gives_back_what_this_project_holds_while_the_engine_runs(pair: Made) -> None:
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    for snapshot in made.snapshots:
        snapshot["journal"] = {"entries": [entry("unit gdm.service", "restore")]}
    journal = made.snapshots[1]["journal"]["entries"]
    journal += [entry("unit apt-daily.timer", "restore"), entry("unit fwupd.service", "same")]
    assert made.plan("rearm_maintenance").changes == [("Held updates given back", ("spark2",))]
    told = made.run("rearm_maintenance", "--dry").err
    assert "would give back unit apt-daily.timer" in told
    assert "gdm" not in told


def test_rearm_lets_go_of_a_unit_that_only_a_drop_in_holds(pair: Made) -> None:
    """A static unit of the owner's own: its state is the same with the drop-in and without."""
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    for snapshot in made.snapshots:
        snapshot["journal"] = {"entries": []}
    held = entry("unit fwupd.service", "same"), entry(drop_in("fwupd.service"), "restore")
    made.snapshots[1]["journal"]["entries"] += held
    assert made.plan("rearm_maintenance").changes == [("Held updates given back", ("spark2",))]
    told = made.run("rearm_maintenance", "--dry").err
    assert f"would give back {drop_in('fwupd.service')}" in told


def test_rearm_of_a_host_that_holds_nothing_changes_nothing(pair: Made) -> None:
    made = pair()
    for rank, snapshot in enumerate(made.snapshots):
        made.snapshots[rank] = bare(made.cluster, rank, made.lab, made.dsf)
        made.snapshots[rank]["journal"] = {"entries": []}
        install(snapshot)
    run = made.plan("rearm_maintenance")
    assert run.status == 0, run.err
    assert run.changes == []

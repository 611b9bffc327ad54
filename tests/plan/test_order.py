"""Which operations run where, and in which order (design, rule 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.plan.conftest import Pair, Run
from tests.plan.made_pair import bare, running

Made = Callable[..., Pair]
ALL, HEAD, WORKERS = "all", "head", "workers"

# (stage that the barrier before it opens, operation, hosts)
SERVE = (
    ("Preflight", "On-host program installed", ALL),
    ("Updates held", "Updates of the host held", ALL),
    ("Host state", "Boots without a desktop", ALL),
    ("Host state", "Desktop services down for good", ALL),
    ("Host state", "Nothing else sets the CPU governor", ALL),
    ("Host state", "CPU governor on every policy", ALL),
    ("Host state", "Kernel settings of the engine stacks", ALL),
    ("Host state", "Shared memory outlives a login", ALL),
    ("Image by digest", "Image of lab by digest", ALL),
    ("Shards by SHA-256", "Model files of lab by SHA-256", ALL),
    ("Fabric on paper", "netplan takes the fabric's file", ALL),
    ("Watchdogs held", "Cron watchdogs held behind a dated tag", HEAD),
    ("Old ranks down", "Head rank down", HEAD),
    ("Old ranks down", "Worker rank down", WORKERS),
    ("Fabric", "Fabric as the owner's file says", ALL),
    ("Shared memory clean", "Dead segments in /dev/shm removed", ALL),
    ("Nothing comes back", "No container starts by itself", ALL),
    ("Memory ritual", "Page cache dropped", ALL),
    ("Full frames", "Full frames cross the fabric", ALL),
    ("RDMA", "RDMA messages cross the fabric", HEAD),
    ("Bind", "lab bound and answering", HEAD),
)


def where(names: Sequence[str], hosts: str) -> tuple[str, ...]:
    return {ALL: tuple(names), HEAD: (names[0],), WORKERS: tuple(names[1:])}[hosts]


def with_stages(run: Run) -> list[tuple[str, str, tuple[str, ...]]]:
    """The changes of a plan, each with the last stage that was opened before it."""
    stage, found = "", []
    for name, hosts in run.operations:
        if name.startswith("Stage: "):
            stage = name.removeprefix("Stage: ")
        elif hosts:
            found.append((stage, name, hosts))
    return found


@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_serve_on_dirty_hosts_goes_stage_by_stage(pair: Made, hosts: int) -> None:
    made = pair(hosts)
    run = made.plan("serve")
    assert run.status == 0, run.err
    wanted = [(stage, name, where(made.names, on)) for stage, name, on in SERVE]
    assert with_stages(run) == wanted


def test_the_ranks_go_down_head_first_with_a_barrier_between(pair: Made) -> None:
    names = [name for name, _ in pair(4).plan("serve").operations]
    down = names.index("Head rank down"), names.index("Worker rank down")
    assert down[0] < names.index("Head is down") < down[1] < names.index("Workers are down")


def test_no_two_stages_are_opened_twice(pair: Made) -> None:
    opened = [n for n, _ in pair().plan("serve").operations if n.startswith("Stage: ")]
    assert len(opened) == len(set(opened)) == len({stage for stage, *_ in SERVE})


def test_prepare_on_a_running_pair_leaves_the_fabric_and_says_so(pair: Made) -> None:
    made = pair()
    run = made.plan("prepare")
    assert run.status == 0, run.err
    assert [name for name, _ in run.changes] == [
        "On-host program installed",
        "Updates of the host held",
        "Boots without a desktop",
        "Desktop services down for good",
        "Nothing else sets the CPU governor",
        "CPU governor on every policy",
        "Kernel settings of the engine stacks",
        "Shared memory outlives a login",
        "Image of lab by digest",
        "Model files of lab by SHA-256",
    ]
    waits = [line for line in run.err.splitlines() if "waits: the fabric" in line]
    assert len(waits) == 2
    assert all("dsf-lab-engine-1 (of stack dsf-lab) on @fake/spark1" in line for line in waits)
    assert all("bond0 does not exist" in line for line in waits)
    assert "deploys/stop.py" in waits[0]


def test_one_running_rank_anywhere_makes_the_fabric_wait_everywhere(pair: Made) -> None:
    made = pair()
    made.snapshots[0]["containers"]["containers"] = []
    run = made.plan("prepare")
    assert "Fabric as the owner's file says" not in dict(run.changes)
    assert run.err.count("until dsf-lab-engine-1 (of stack dsf-lab) on @fake/spark2 is down") == 2


def test_prepare_with_nothing_running_converges_the_fabric_last(pair: Made) -> None:
    made = pair()
    for snapshot in made.snapshots:
        snapshot["containers"]["containers"] = []
    run = made.plan("prepare")
    assert run.changes[-1] == ("Fabric as the owner's file says", made.names)


def test_prepare_of_an_unlocked_stack_does_all_but_its_bytes(pair: Made) -> None:
    run = pair().plan("prepare", "--data", "stack=glm53-sglang-nvfp4")
    assert run.status == 0, run.err
    assert not any("digest" in name or "SHA-256" in name for name, _ in run.operations)
    assert ("Boots without a desktop", ("spark1", "spark2")) in run.changes


def test_stop_holds_the_watchdog_and_takes_both_ranks_down_head_first(pair: Made) -> None:
    run = pair(4).plan("stop")
    assert run.status == 0, run.err
    workers = ("spark2", "spark3", "spark4")
    assert run.changes == [
        ("On-host program installed", ("spark1", *workers)),
        ("Cron watchdogs held behind a dated tag", ("spark1",)),
        ("Head rank down", ("spark1",)),
        ("Worker rank down", workers),
        ("No container starts by itself", ("spark1", *workers)),
    ]


def test_stop_on_stopped_hosts_changes_nothing(pair: Made) -> None:
    made = pair()
    made.snapshots[:] = [bare(made.cluster, rank, made.lab, made.dsf) for rank in range(2)]
    assert made.plan("stop").changes == []


def test_rollback_takes_the_new_stack_down_and_leaves_fabric_and_host_alone(pair: Made) -> None:
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    run = made.plan("rollback_dsf")
    assert run.status == 0, run.err
    both = ("spark1", "spark2")
    assert run.changes == [
        ("Head rank down", ("spark1",)),
        ("Worker rank down", ("spark2",)),
        ("No container starts by itself", both),
        ("Page cache dropped", both),
        ("Full frames cross the fabric", both),
        ("RDMA messages cross the fabric", ("spark1",)),
        ("dsf-lab bound and answering", ("spark1",)),
        ("Held cron lines given back", ("spark1",)),
    ]


def test_rollback_holds_an_armed_watchdog_until_the_old_stack_serves(pair: Made) -> None:
    """On the dirty pair the old stack is there but does not answer over @fake: a relaunch."""
    names = [name for name, _ in pair().plan("rollback_dsf").changes]
    assert names.index("Cron watchdogs held behind a dated tag") < names.index("Head rank down")
    assert names[-2:] == ["dsf-lab bound and answering", "Held cron lines given back"]


def test_what_rollback_would_hold_for_its_launch_it_plans_to_give_back(pair: Made) -> None:
    made = pair()
    lane = {"path": "/etc/cron.hourly/lane", "inert": None, "held": False}
    made.snapshots[1]["starters"]["scripts"] = [lane]
    changes = made.plan("rollback_dsf").changes
    for part in ("Units and timers that start engines held", "Held units and timers given back"):
        assert (part, ("spark2",)) in changes


def test_rollback_without_a_rollback_stack_is_refused(pair: Made) -> None:
    run = pair(rollback_stack=None).plan("rollback_dsf")
    assert run.status == 1
    assert "names no rollback_stack" in run.err
    assert "Traceback" not in run.err


def test_a_pair_that_runs_what_is_wanted_but_does_not_answer_is_launched_anew(pair: Made) -> None:
    """Rule 6: a right label and a running container are claims; only a completion counts."""
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    run = made.plan("serve")
    assert run.status == 0, run.err
    both = ("spark1", "spark2")
    assert run.changes == [
        ("Head rank down", ("spark1",)),
        ("Worker rank down", ("spark2",)),
        ("No container starts by itself", both),
        ("Page cache dropped", both),
        ("Full frames cross the fabric", both),
        ("RDMA messages cross the fabric", ("spark1",)),
        ("lab bound and answering", ("spark1",)),
    ]


def test_a_kernel_command_line_that_wins_is_a_warning_and_no_change(pair: Made) -> None:
    """Field case B11, case 4: it is the owner's to change."""
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    made.snapshots[1]["boot"] |= {
        "override": "systemd.unit=graphical.target",
        "override_from": ["/etc/default/grub.d/kiosk.cfg"],
    }
    assert made.plan("prepare").changes == []
    told = made.run("prepare", "--dry").err
    assert (
        "does not boot into multi-user.target: the kernel command line has "
        "systemd.unit=graphical.target, set in /etc/default/grub.d/kiosk.cfg"
    ) in told


def test_prepare_on_converged_hosts_lists_no_change(pair: Made) -> None:
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    run = made.plan("prepare")
    assert run.status == 0, run.err
    assert run.changes == []


def test_one_drifted_host_is_the_only_one_that_changes(pair: Made) -> None:
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    made.snapshots[1]["cpufreq"]["policies"]["policy1"]["governor"] = "performance"
    made.snapshots[1]["boot"]["default_target"] = "graphical.target"
    assert made.plan("prepare").changes == [
        ("Boots without a desktop", ("spark2",)),
        ("CPU governor on every policy", ("spark2",)),
    ]

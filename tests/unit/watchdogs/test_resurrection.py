"""What could bring an engine back: classified, planned for, told without giving secrets away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from facts.run.unknown import Unknown
from facts.state import state_of
from facts.watchdogs.crontab import Crontabs, Table, line
from facts.watchdogs.starters import AtJob, Script, Starters, Trigger, Unit
from operations.watchdogs import crontab, resurrection
from operations.watchdogs.resurrection import (
    KINDS,
    at_source,
    cron_lines,
    likely_origin,
    plan,
    refusals,
    sources,
    stack_words,
    starters_sources,
    unit_source,
    unread,
)
from tests.plan.made_pair import bare, cluster, dirty, locked
from tests.unit.on_host import module

READY = "/usr/local/bin/spark1-inference-ready.sh"
WORD = "SPARK-HELD"
PATH = "/var/spool/cron/crontabs/root"


def crontab_of(text: str, path: str = PATH, **more: Any) -> Table:
    """A table as the host judges it, on which READY is a script that starts an engine."""
    reader, host = module("watchdogs.mentions").Reader(()), module("watchdogs.crontab")
    for home in ("/root", "/nonexistent"):
        reader.weights[READY, home] = "starts"
    mine = path == PATH
    found = host.verdicts(reader, path, text.encode(), "/root" if mine else None)
    judged = {int(number): line(one) for number, one in found.items()}
    return Table("root" if mine else None, path, text, 0o600, 0, 0, lines=judged, **more)


WATCH = Unit(
    scope="system",
    uid=0,
    name="spark-ready.service",
    path="/etc/systemd/system/spark-ready.service",
    weight="starts",
    direct=False,
    scripts=(READY,),
    active="inactive",
    file_state="static",
    wanted_by=(),
    triggers=(
        Trigger("spark-ready.timer", "/etc/systemd/system/spark-ready.timer", "active", "enabled"),
    ),
    held=False,
)


def of(*units: Unit) -> Starters:
    return Starters(units, (), ())


def test_a14_the_same_watchdog_in_cron_and_in_timers_is_found_everywhere() -> None:
    """Field case A14: the cron line was commented out, and a timer did the thing anyway."""
    crontabs = Crontabs(
        (
            crontab_of(f"* * * * * {READY}\n"),
            crontab_of(f"* * * * * root {READY}\n", "/etc/cron.d/ready"),
        ),
    )
    lines = [(s.name, s.status) for s in cron_lines(crontabs, WORD)]
    assert lines == [
        ("the crontab of root line 1", "armed"),
        ("/etc/cron.d/ready line 1", "armed"),
    ]
    mine = replace(WATCH, scope="milo", uid=1000)
    found = [(s.kind, s.name, s.status) for s in starters_sources(of(WATCH, mine))]
    assert found == [
        ("system units", "spark-ready.service", "armed"),
        ("user units", "spark-ready.service of milo", "armed"),
    ]


def test_a10_a_copy_put_back_beside_a_held_line_is_called_a_resurrection() -> None:
    job = f"*/5 * * * * {READY}"
    found = Crontabs((crontab_of(f"#Ansible: guard\n#SPARK-HELD-20260826 {job}\n{job}\n"),))
    assert [(s.name, s.status, s.why) for s in cron_lines(found, WORD)] == [
        ("the crontab of root line 2", "held", READY),
        ("the crontab of root line 3", "armed", f"{READY}; the held line 2, armed again"),
    ]


def test_a_line_that_was_tagged_before_our_time_is_a_comment() -> None:
    theirs = f"#SPARK-HELD-20250101 * * * * * {READY}"
    table = crontab_of(f"{theirs}\n", kept=frozenset({theirs}))
    assert table.lines
    assert list(cron_lines(Crontabs((table,)), WORD)) == []


def test_a_held_line_and_an_inert_file_are_listed_and_not_armed() -> None:
    text = f"#SPARK-HELD-20260826 * * * * * {READY}\n* * * * * /bin/true\n"
    inert = crontab_of(f"* * * * * root {READY}\n", "/etc/cron.d/x.bak", inert="its name")
    crontabs = Crontabs((crontab_of(text), inert))
    assert [s.status for s in cron_lines(crontabs, WORD)] == ["held", "inert"]
    assert crontab.watchdogs(crontabs) == []  # nothing that would have to be held


def test_a_password_in_a_cron_line_is_not_repeated() -> None:
    text = f"* * * * * docker login -p hunter2 && {READY} --token=hunter2\n"
    crontabs = Crontabs((crontab_of(text),))
    assert list(cron_lines(crontabs, WORD))
    assert "hunter2" not in str(list(cron_lines(crontabs, WORD)))


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "armed"),
        ({"triggers": ()}, "inert"),
        ({"triggers": (), "file_state": "enabled"}, "armed"),
        ({"triggers": (), "wanted_by": ("multi-user.target",)}, "armed"),
        ({"triggers": (), "active": "active"}, "armed"),
        ({"triggers": (Trigger("x.timer", "", "inactive", "disabled"),)}, "inert"),
        ({"triggers": (Trigger("x.timer", "", "active", "static"),)}, "armed"),
        ({"weight": "mentions"}, "armed"),
        ({"held": True}, "held"),
        ({"held": True, "active": "active"}, "armed"),
        ({"held": True, "active": "active", "direct": True}, "held"),
        ({"held": True, "active": "activating"}, "armed"),
        ({"held": True, "active": "activating", "direct": True}, "armed"),
        ({"held": True, "active": "unknown"}, "held"),
        ({"path": "/usr/lib/systemd/system/x.service"}, "refused"),
        ({"path": "/usr/lib/systemd/system/x.service", "weight": "mentions"}, "inert"),
        ({"path": "/usr/lib/systemd/system/x.service", "triggers": ()}, "inert"),
    ],
)
def test_a_unit_is_armed_when_something_would_start_it(changes: Any, status: str) -> None:
    assert unit_source(replace(WATCH, **changes)).status == status


def test_what_is_not_ours_to_judge_says_what_to_do() -> None:
    package = replace(WATCH, path="/usr/lib/systemd/system/spark-ready.service")
    said = refusals(Starters((package,), (), (AtJob(18, 0, 1796000000),)))
    assert len(said) == 2
    assert any("atrm 18" in sentence for sentence in said)
    assert any("systemctl mask --now spark-ready.timer spark-ready.service" in s for s in said)
    assert refusals(of(WATCH)) == []
    assert refusals(Unknown("no answer")) != []


@pytest.mark.parametrize("where", ["/run", "/run/user/1000"])
def test_triggers_end_before_what_they_start_and_a_transient_one_is_left(where: str) -> None:
    path = f"{where}/systemd/transient/run-r1.timer"
    lost = Trigger("run-r1.timer", path, "active", "transient")
    unit = replace(WATCH, triggers=(*WATCH.triggers, lost))
    names = [u["name"] for u in plan(of(unit))["units"]]
    assert names == ["spark-ready.timer", "spark-ready.service"]


@pytest.mark.parametrize(
    ("changes", "stop", "restart"),
    [
        ({}, True, False),
        ({"active": "active"}, True, True),
        ({"active": "activating"}, True, False),  # its timer starts it again
        ({"active": "activating", "triggers": ()}, True, True),  # a loop between two rounds
        ({"active": "active", "direct": True, "triggers": ()}, False, False),  # an engine's own
        ({"active": "activating", "direct": True}, True, False),  # `docker compose up` just now
    ],
)
def test_what_runs_is_stopped_and_what_ran_by_itself_started_again(
    changes: Any, stop: bool, restart: bool
) -> None:
    found = plan(of(replace(WATCH, **changes)))["units"][-1]
    assert (found["stop"], found["restart"]) == (stop, restart)


def test_two_services_of_one_timer_are_held_with_it_once() -> None:
    names = [u["name"] for u in plan(of(WATCH, replace(WATCH, name="b.service")))["units"]]
    assert names == ["spark-ready.timer", "spark-ready.service", "b.service"]


def test_only_scripts_that_would_run_are_held() -> None:
    scripts = (
        Script("/etc/cron.daily/a", None, False),
        Script("/etc/cron.daily/b.bak", "its name", False),
        Script("/etc/cron.daily/c", "not executable", True),
    )
    assert plan(Starters((), scripts, ()))["scripts"] == ["/etc/cron.daily/a"]
    assert [s.status for s in starters_sources(Starters((), scripts, ()))] == [
        "armed",
        "inert",
        "held",
    ]


def test_an_at_job_is_named_with_its_time() -> None:
    assert "2026-11-30 00:53 UTC" in at_source(AtJob(7, 0, 1796000000)).why


def test_names_of_stacks_are_their_projects_folders_and_images(tmp_path: Path) -> None:
    words = stack_words([locked("lab", tmp_path), locked("dsf-lab", tmp_path)])
    assert {"dsf-lab", "/opt/dsf-lab", "dsf-lab-engine-1"} <= set(words)
    # a stack's own short name would match any path that has it as a part
    assert "lab" not in words


def test_a_restart_policy_brings_an_engine_back(tmp_path: Path) -> None:
    lab, dsf = locked("lab", tmp_path), locked("dsf-lab", tmp_path)
    state = state_of(dirty(cluster(), 0, lab, dsf))
    found = sources(0, state, WORD, lab, (lab, dsf))
    assert ("restart policies", "dsf-lab-engine-1", "armed") in [
        (s.kind, s.name, s.status) for s in found
    ]
    wanted = sources(0, state, WORD, dsf, (lab, dsf))
    assert "restart policies" not in [s.kind for s in wanted]  # its own compose file says so


def test_an_unread_part_is_unknown_for_its_kinds_only(tmp_path: Path) -> None:
    lab, dsf = locked("lab", tmp_path), locked("dsf-lab", tmp_path)
    snapshot = dirty(cluster(), 0, lab, dsf) | {"starters": {"unknown": "cut off"}}
    state = state_of(snapshot)
    assert [kind for kind in KINDS if unread(kind, state)] == [
        "cron folders",
        "network hooks",
        "at jobs",
        "system units",
        "user units",
    ]
    assert resurrection.sources(0, state, WORD, lab, (lab, dsf)) != []


def test_what_came_back_is_named_with_its_likely_origin(tmp_path: Path) -> None:
    lab, dsf = locked("lab", tmp_path), locked("dsf-lab", tmp_path)
    state = state_of(dirty(cluster(), 0, lab, dsf))
    told = likely_origin(0, state, WORD, (lab, dsf), ["other"])
    assert "the crontab of root line 5 (/usr/local/bin/spark1-inference-ready.sh)" in told
    assert "dsf-lab-engine-1 (unless-stopped)" in told
    # Its own policy did not make a container anew that had been removed.
    assert "unless-stopped" not in likely_origin(0, state, WORD, (lab, dsf), ["dsf-lab-engine-1"])
    clean = state_of(bare(cluster(), 0, lab, dsf))
    assert "a person, or another machine" in likely_origin(0, clean, WORD, (lab, dsf), ["x"])


def test_an_origin_that_could_not_be_looked_for_is_not_called_none(tmp_path: Path) -> None:
    lab, dsf = locked("lab", tmp_path), locked("dsf-lab", tmp_path)
    snapshot = bare(cluster(), 0, lab, dsf) | {"starters": {"unknown": "cut off"}}
    told = likely_origin(0, state_of(snapshot), WORD, (lab, dsf), ["x"])
    assert told.count("cut off") == 1
    assert "a person" not in told


def test_a_last_line_without_its_newline_is_said_and_not_where_cron_looks_at_nothing() -> None:
    table = crontab_of("@daily /bin/true", unended=1)
    (said,) = resurrection.unended(Crontabs((table, replace(table, inert="its name"))))
    assert said.startswith("the crontab of root line 1 is the last one and has no newline")
    assert resurrection.unended(Crontabs((crontab_of("@daily /bin/true\n"),))) == []

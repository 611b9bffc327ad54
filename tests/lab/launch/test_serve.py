"""serve on two dirty hosts: what it plans, what it does, and that it then leaves them alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from lab.common.paths import lab_home
from lab.guests.ssh import wait_units
from lab.pair.verbs import power as reset
from tests.lab.acceptance_run import failing
from tests.running_lab import (
    HOSTS,
    REPOSITORY,
    FirstServe,
    completion,
    containers,
    job,
    on,
    planned,
)

# Parts of the acceptance tests that must hold after a reset, before anything is launched again.
AFTER_BOOT = "boots_into or service_is_down or governor or bond or mtu or address or frames"
WATCHDOG = "* * * * * /usr/local/bin/spark1-inference-ready.sh"


def test_dry_run_on_a_dirty_pair_lists_the_changes(first_serve: FirstServe) -> None:
    text = "\n".join(first_serve.plan)
    for host in HOSTS:
        for part in (
            "Boots without a desktop", "Desktop services", "CPU governor", "Image of lab",
            "Model files of lab", "Dead segments", "Fabric as the owner's file says",
        ):  # fmt: skip
            assert any(part in line and line.endswith(host) for line in first_serve.plan), (
                f"{part} on {host} not in:\n{text}"
            )
    assert any("watchdogs held" in line and "spark1" in line for line in first_serve.plan), text
    assert any("bound and answering" in line for line in first_serve.plan), text


def test_dry_run_changes_nothing(first_serve: FirstServe) -> None:
    assert first_serve.after_dry_run == first_serve.fresh


def test_served_model_answers(first_serve: FirstServe) -> None:
    assert "391" in completion("lab-model")
    assert first_serve.run.receipt["ok"] is True
    assert None not in [stage["seconds"] for stage in first_serve.run.receipt["stages"]]


def test_dry_run_on_a_served_pair_lists_nothing(first_serve: FirstServe, state_home: Path) -> None:
    assert planned("serve", state_home) == []


def test_second_serve_changes_nothing_and_is_quick(
    first_serve: FirstServe, state_home: Path
) -> None:
    ids = [on(host, "docker ps --all --no-trunc --format '{{.ID}}'") for host in HOSTS]
    again = job("serve", state_home)
    assert again.status == 0, again.text
    assert again.changed == []
    assert again.seconds < first_serve.run.seconds / 4
    assert [on(host, "docker ps --all --no-trunc --format '{{.ID}}'") for host in HOSTS] == ids


def test_watchdog_line_is_held_with_todays_tag(first_serve: FirstServe) -> None:
    original = (REPOSITORY / "lab/stacks/old/root.crontab").read_text()
    held = original.replace(WATCHDOG, f"#SPARK-HELD-{date.today():%Y%m%d} {WATCHDOG}")
    assert held != original
    assert on("spark1", "cat /var/spool/cron/crontabs/root") == held


def test_acceptance_tests_pass(first_serve: FirstServe) -> None:
    assert failing(HOSTS) == set()


def test_old_stack_is_not_back_after_two_minutes(first_serve: FirstServe) -> None:
    time.sleep(max(0.0, first_serve.ended + 125 - time.monotonic()))
    assert [containers(host) for host in HOSTS] == [["spark-lab-0"], ["spark-lab-1"]]


def test_hosts_are_as_wanted_after_a_reset(first_serve: FirstServe) -> None:
    """Both at once: a boot takes a minute or more under emulation."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda host: reset(lab_home(), host, "reset"), HOSTS))
    for host in HOSTS:
        wait_units(lab_home(), host)
    assert failing(HOSTS, "-k", AFTER_BOOT) == set()

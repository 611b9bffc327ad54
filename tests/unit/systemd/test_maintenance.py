"""What must be held of a host's own updates, and when one of them is at work."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from facts.state import HostState, state_of
from inventory.host_settings import shipped
from operations.systemd import maintenance
from operations.systemd.maintenance import at_work, needrestart_missing, runs, unread, unsettled
from operations.systemd.services import plan
from tests.plan.made_job import made_job
from tests.plan.made_pair import (
    UPDATES,
    Snapshot,
    bare,
    cluster,
    dirty,
    locked,
    unit,
    update_unit,
)
from tests.unit.on_host import module

NAMES = shipped().maintenance_held


def made(tmp_path: Path, kind: Callable[..., Snapshot]) -> Snapshot:
    return kind(cluster(), 0, locked("lab", tmp_path), locked("dsf-lab", tmp_path))


def state(snapshot: Snapshot) -> HostState:
    return state_of(snapshot)


def test_a_fresh_host_has_everything_to_be_held_and_needrestart_to_be_told(tmp_path: Path) -> None:
    found = state(made(tmp_path, dirty))
    left = unsettled(found, NAMES)
    assert [line.split(" is ")[0] for line in left] == [
        *UPDATES,
        "/etc/needrestart/conf.d/zz-spark-converge.conf",
    ]
    todo = plan(found.services, NAMES)  # type: ignore[arg-type]
    assert todo.mask == ("fwupd.service",)
    assert "packagekit.service" not in (*todo.stop, *todo.disable, *todo.mask), "it is absent"


def test_a_held_host_has_nothing_left(tmp_path: Path) -> None:
    found = state(made(tmp_path, bare))
    assert unsettled(found, NAMES) == []
    assert at_work(found, NAMES) == []


def test_a_host_without_needrestart_is_not_given_its_file(tmp_path: Path) -> None:
    snapshot = made(tmp_path, dirty) | {"maintenance": {"busy": [], "needrestart": False}}
    assert not needrestart_missing(state(snapshot))


@pytest.mark.parametrize(
    ("active", "busy"),
    [("activating", True), ("deactivating", True), ("inactive", False), ("failed", False)],
)
def test_a_run_that_a_held_timer_started_is_at_work(
    tmp_path: Path, active: str, busy: bool
) -> None:
    snapshot = made(tmp_path, dirty)
    name = "apt-daily-upgrade.service"
    snapshot["services"]["triggers"][name] = unit(name, active, "static")
    told = [f"{name} is {active}"] if busy else []
    assert at_work(state(snapshot), NAMES) == told


def test_an_idle_daemon_is_no_run_but_a_flash_at_boot_is(tmp_path: Path) -> None:
    snapshot = made(tmp_path, dirty)
    flash = "nvidia-spark-mlnx-firmware-manager.service"
    snapshot["services"]["units"]["fwupd.service"] = update_unit("fwupd.service", "active", "x")
    assert at_work(state(snapshot), NAMES) == []
    snapshot["services"]["units"][flash] = unit(flash, "activating", "enabled")
    assert at_work(state(snapshot), NAMES) == [f"{flash} is activating"]


def test_a_lock_of_the_packages_is_named_with_its_holder(tmp_path: Path) -> None:
    told = "apt-get (process 7) has /var/lib/dpkg/lock-frontend"
    snapshot = made(tmp_path, bare) | {"maintenance": {"busy": [told], "needrestart": True}}
    assert at_work(state(snapshot), NAMES) == [told]


@pytest.mark.parametrize("part", ["services", "maintenance", "files"])
def test_what_could_not_be_read_is_not_held(tmp_path: Path, part: str) -> None:
    found = state(made(tmp_path, bare) | {part: {"unknown": "cut off"}})
    assert unread(found) == [f"{part} unknown (cut off)"]


def test_the_state_of_a_unit_alone_tells_a_run() -> None:
    found = state_of({"services": {"units": {"a": unit("a", "reloading", "x")}, "triggers": {}}})
    assert runs(found.services.asked["a"])  # type: ignore[union-attr]


def test_holders_of_package_locks_and_blockers_of_a_shutdown_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_host = module("systemd.maintenance")
    lock = tmp_path / "lock-frontend"
    lock.touch()
    monkeypatch.setattr(on_host, "LOCKS", (str(lock),))
    monkeypatch.setattr(on_host, "NEEDRESTART", str(tmp_path / "absent"))
    monkeypatch.setattr(on_host, "INHIBITORS", str(tmp_path / "inhibit" / "*"))
    (tmp_path / "inhibit").mkdir()
    os.mkfifo(tmp_path / "inhibit" / "1.ref")
    for number, (who, mode) in enumerate(
        [("fwupd", "block"), ("Unattended Upgrades Shutdown", "delay"), ("GNOME", "block")]
    ):
        (tmp_path / "inhibit" / str(number)).write_text(
            f"WHAT=shutdown:sleep\nWHO={who}\nWHY=Update in progress\nMODE={mode}\nPID=0\n"
        )
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        found: dict[str, Any] = on_host.section({})
    held, blocked = found["busy"]
    assert held.endswith(f"(process {os.getpid()}) has {lock}")
    assert blocked == "fwupd (process 0) blocks a shutdown: Update in progress"
    assert found["needrestart"] is False
    assert on_host.lock_holders() == []


def test_the_triggers_that_went_down_with_a_held_unit_come_back_with_it(tmp_path: Path) -> None:
    """plan() takes them down too; of one that is down systemd shows nothing at the unit itself."""
    snapshot = made(tmp_path, dirty)
    snapshot["services"]["units"]["fwupd.service"]["TriggeredBy"] = "fwupd.socket"
    snapshot["services"]["triggers"]["fwupd.socket"] = unit("fwupd.socket", "active", "enabled")
    entries: list[dict[str, Any]] = [
        {"name": "unit spool.path", "starts": ["fwupd.service"]},
        {"name": "unit cups.path", "starts": ["cups.service"]},
        {"name": "/etc/motd"},
    ]
    snapshot["journal"] = {"entries": [{"verdict": "restore", "why": "", **e} for e in entries]}
    found = state(snapshot)
    names = maintenance.held_units(found.services, found.journal, ["fwupd.service"])  # type: ignore[arg-type]
    assert names == ["fwupd.socket", "fwupd.service", "spool.path"]


@pytest.mark.parametrize(("through", "told"), [("overlay", False), ("mount", True)])
def test_a_lock_of_a_container_is_the_hosts_only_when_it_is_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: str, told: bool
) -> None:
    """apt in a container shows the path that it has in there, whatever file lies behind it."""
    on_host = module("systemd.maintenance")
    lock, inside = tmp_path / "lock-frontend", tmp_path / "inside"
    lock.touch()
    if through == "mount":
        inside.hardlink_to(lock)
    else:
        inside.touch()
    monkeypatch.setattr(on_host, "LOCKS", (str(lock),))
    monkeypatch.setattr(os, "readlink", lambda _: str(lock))
    with inside.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert len(on_host.lock_holders()) == told


@pytest.mark.parametrize(("busy", "good"), [([], True), (["dpkg (process 7) has a lock"], False)])
def test_a_run_is_awaited_and_named_when_it_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: list[str], good: bool
) -> None:
    monkeypatch.setattr(maintenance, "WAIT_S", -1)
    monkeypatch.setattr(maintenance, "LOOK_EVERY_S", 0)
    pair = [made(tmp_path, dirty) for _ in range(2)]
    pair[0]["maintenance"]["busy"] = busy
    job = made_job(cluster(), pair, None, ())
    assert maintenance._wait(job.state, job.hosts[0], job, NAMES) is good
    if busy:
        assert job.problem is not None
        assert "spark1: dpkg (process 7) has a lock still after" in job.problem
        assert "an update is never cut off from here" in job.problem

"""What is to be done so that desktop services are down for good, and in which order."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from facts.systemd.services import DROP_IN, Services, parse
from operations.systemd import services as operation
from operations.systemd.services import Changes, command
from tests.plan.made_pair import DESKTOP, TRIGGERS, absent_unit, unit

Found = dict[str, dict[str, Any]]


def services(units: Found, triggers: Found | None = None) -> Services:
    return parse({"units": units, "triggers": triggers or {}})


def plan(found: Services) -> Changes:
    return operation.plan(found, list(found.asked))


def unsettled(found: Services) -> list[str]:
    return operation.unsettled(found, list(found.asked))


def one(name: str, active: str, file_state: str) -> Services:
    return services({name: unit(name, active, file_state)})


def test_b01_cups_goes_down_with_socket_and_path_before_the_service() -> None:
    names = ("cups.socket", "cups.path")
    found = services(
        {"cups.service": unit("cups.service", "active", "enabled", "cups.socket cups.path")},
        {name: unit(name, "active", "enabled") for name in names},
    )
    todo = plan(found)
    assert todo.stop == (*names, "cups.service")
    assert todo.disable == (*names, "cups.service")
    assert todo.mask == ()


def test_b01_a_socket_that_still_listens_is_a_change_though_the_service_sleeps() -> None:
    found = services(
        {"cups.service": unit("cups.service", "inactive", "disabled", "cups.socket")},
        {"cups.socket": unit("cups.socket", "active", "enabled")},
    )
    assert plan(found).stop == ("cups.socket",)
    assert plan(found).disable == ("cups.socket",)
    assert unsettled(found) == ["cups.socket is active/enabled"]


def test_b05_an_alias_leads_to_the_real_unit_which_is_masked() -> None:
    found = services({"gdm3.service": unit("gdm.service", "active", "indirect")})
    todo = plan(found)
    assert (todo.stop, todo.disable, todo.mask) == (("gdm.service",), (), ("gdm.service",))


def test_two_names_of_one_unit_are_acted_on_once() -> None:
    gdm = unit("gdm.service", "active", "indirect")
    todo = plan(services({"gdm3.service": gdm, "display-manager.service": gdm}))
    assert (todo.stop, todo.mask) == (("gdm.service",), ("gdm.service",))


def test_static_colord_is_masked_even_while_it_sleeps() -> None:
    todo = plan(one("colord.service", "inactive", "static"))
    assert (todo.stop, todo.disable, todo.mask) == ((), (), ("colord.service",))


def test_b07_a_unit_that_the_owner_masked_is_left_and_the_others_go_in_one_run() -> None:
    found = services(
        {
            "cups.service": unit("cups.service", "inactive", "masked"),
            "ModemManager.service": unit("ModemManager.service", "active", "enabled"),
        }
    )
    todo = plan(found)
    assert todo.stop == todo.disable == ("ModemManager.service",)
    assert "cups" not in command(todo)


@pytest.mark.parametrize(("active", "stop"), [("inactive", ()), ("active", ("colord.service",))])
@pytest.mark.parametrize("starters", [[], ["D-Bus as colord.service"]])
def test_a_unit_that_our_drop_in_holds_is_down_for_good_once_it_is_stopped(
    active: str, stop: tuple[str, ...], starters: list[str]
) -> None:
    """Of an owner's full copy of a static unit, which systemd does not mask."""
    path = "/etc/systemd/system/colord.service"
    copy = unit("colord.service", active, "static") | {"FragmentPath": path, "starters": starters}
    assert plan(services({"colord.service": copy})) == Changes(stop, (), ("colord.service",))
    held = copy | {"DropInPaths": f"/etc/x.d/a.conf {path}.d/{DROP_IN}"}
    found = services({"colord.service": held})
    assert plan(found) == Changes(stop, (), ())
    told = operation.described(found.asked["colord.service"])
    assert told == f"colord.service {active}/static, held down by a drop-in"


def test_a_masked_unit_that_still_runs_is_only_stopped() -> None:
    todo = plan(one("cups.service", "active", "masked"))
    assert (todo.stop, todo.disable, todo.mask) == (("cups.service",), (), ())


@pytest.mark.parametrize("file_state", ["masked-runtime", "enabled-runtime", "linked-runtime"])
def test_a_state_that_ends_with_the_next_boot_is_not_for_good(file_state: str) -> None:
    todo = plan(one("cups.service", "inactive", file_state))
    assert todo.mask == ("cups.service",)


def test_b09_an_absent_unit_is_fine_and_gets_no_ghost_mask() -> None:
    found = services({"ModemManager.service": absent_unit("ModemManager.service")})
    assert not plan(found)
    assert unsettled(found) == []


def test_a_unit_without_its_file_that_still_runs_is_stopped_and_masked() -> None:
    gone = absent_unit("cups.service") | {"ActiveState": "active"}
    todo = plan(services({"cups.service": gone}))
    assert (todo.stop, todo.mask) == (("cups.service",), ("cups.service",))


@pytest.mark.parametrize("active", ["inactive", "failed"])
def test_down_for_good_is_no_change(active: str) -> None:
    assert not plan(one("cups.service", active, "disabled"))


@pytest.mark.parametrize("active", ["activating", "deactivating", "reloading", "active"])
def test_whatever_is_not_asleep_is_stopped(active: str) -> None:
    assert plan(one("cups.service", active, "disabled")).stop == ("cups.service",)


def test_the_host_itself_acts_so_that_its_journal_comes_first() -> None:
    found = services(
        {asked: unit(*state) for asked, state in DESKTOP.items()},
        {name: unit(name, "active", "enabled") for name in sorted(TRIGGERS)},
    )
    words = shlex.split(command(plan(found)))
    assert words[words.index("units") :][:2] == ["units", "down"]
    asked = json.loads(words[words.index("down") + 1])
    assert asked["mask"] == ["gdm.service", "colord.service"]
    assert {"cups.socket", "cups.path", "cups.service"} <= {*asked["stop"]} & {*asked["disable"]}


def test_b11_a_disabled_unit_that_another_one_wants_is_masked() -> None:
    gdm = unit("gdm.service", "inactive", "disabled") | {"starters": ["kiosk.target"]}
    found = services({"gdm3.service": gdm})
    assert plan(found).mask == ("gdm.service",)
    assert unsettled(found) == ["gdm.service is inactive/disabled, started by kiosk.target"]


def test_b01_units_that_start_each_other_and_all_go_down_need_no_mask() -> None:
    wanted = {"starters": ["cups-browsed.service", "cups.service"]}
    found = services(
        {
            "cups.service": unit("cups.service", "active", "enabled", "cups.socket") | wanted,
            "cups-browsed.service": unit("cups-browsed.service", "active", "enabled"),
        },
        {"cups.socket": unit("cups.socket", "active", "enabled") | wanted},
    )
    todo = plan(found)
    assert todo.mask == ()
    assert todo.disable == ("cups.socket", "cups.service", "cups-browsed.service")


def test_an_enabled_unit_that_d_bus_starts_by_its_own_name_is_masked() -> None:
    found = one("upower.service", "active", "enabled").asked["upower.service"]
    made = replace(found, starters=("D-Bus as upower.service",))
    todo = plan(Services({"upower.service": made}, {"upower.service": made}))
    assert (todo.disable, todo.mask) == ((), ("upower.service",))


def test_a_trigger_that_could_not_be_read_is_not_invented() -> None:
    found = services({"cups.service": unit("cups.service", "active", "enabled", "cups.socket")})
    assert plan(found).stop == ("cups.service",)


def test_a_unit_that_was_only_asked_about_is_left_alone() -> None:
    """The governor's boot unit is read by the same question and must stay enabled."""
    found = services(
        {
            "cups.service": unit("cups.service", "active", "enabled"),
            "ours.service": unit("ours.service", "active", "enabled"),
        }
    )
    assert operation.plan(found, ["cups.service"]).stop == ("cups.service",)
    assert operation.unsettled(found, []) == []

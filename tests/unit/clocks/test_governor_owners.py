"""Other owners of the governor: which there are, and what is to be done until none can start."""

from __future__ import annotations

import pytest

from facts.run.unknown import Unknown
from facts.state import state_of
from facts.systemd.services import DROP_IN, Services
from inventory.host_settings import shipped
from operations.clocks.governor_owners import changes, left_over, other_owners
from operations.systemd.services import Changes
from tests.plan.made_pair import PROFILES, absent_unit, unit

Units = dict[str, dict[str, str]]
OWNERS = shipped().governor_owners


def owners(units: Units, writers: Units | None = None, triggers: Units | None = None) -> Services:
    """Owners on a host where systemd knows `units`, and `writers` were found by their commands."""
    known = {name: absent_unit(name) for name in OWNERS} | units
    found = other_owners(
        state_of(
            {
                "services": {"units": known, "triggers": {}},
                "cpufreq": {
                    "policies": {},
                    "writers": {"units": writers or {}, "triggers": triggers or {}},
                    "left_alone": [],
                    "profile": None,
                },
            }
        ),
        OWNERS,
    )
    assert isinstance(found, Services)
    return found


def test_hosts_without_other_owners_have_nothing_to_do() -> None:
    assert not changes(owners({}))


def test_c01_an_owner_that_is_enabled_though_it_sleeps_now_is_not_left() -> None:
    """It writes a minute after the next boot."""
    found = owners({"ondemand.service": unit("ondemand.service", "inactive", "enabled")})
    assert changes(found) == Changes((), ("ondemand.service",), ())
    assert left_over(found) == ["ondemand.service is inactive/enabled"]


def test_c01_an_init_script_is_masked() -> None:
    found = owners({"cpufrequtils.service": unit("cpufrequtils.service", "active", "generated")})
    name = ("cpufrequtils.service",)
    assert changes(found) == Changes(name, (), name)


@pytest.mark.parametrize("file_state", ["enabled", "disabled"])
def test_c07_an_owner_that_a_bus_call_would_start_is_masked(file_state: str) -> None:
    bus = {"starters": [f"D-Bus as {PROFILES}"]}
    found = owners({PROFILES: unit(PROFILES, "active", file_state) | bus})
    todo = changes(found)
    assert (todo.stop, todo.mask) == ((PROFILES,), (PROFILES,))
    assert changes(owners({PROFILES: unit(PROFILES, "inactive", "masked") | bus})) == Changes(
        (), (), ()
    )


def test_c07_an_owner_that_only_sleeps_beside_an_active_one_is_taken_too() -> None:
    found = owners(
        {
            PROFILES: unit(PROFILES, "active", "disabled"),
            "tuned.service": unit("tuned.service", "inactive", "enabled"),
        }
    )
    assert changes(found).stop == (PROFILES,)
    assert changes(found).disable == ("tuned.service",)


def test_a_unit_found_by_its_commands_goes_down_with_its_timer() -> None:
    name, timer = "vendor-clocks.service", "vendor-clocks.timer"
    fires = {timer: unit(timer, "active", "enabled")}
    found = owners({}, {name: unit(name, "inactive", "static", timer)}, fires)
    assert changes(found) == Changes((timer,), (timer,), (name,))


def test_a_static_unit_of_the_owners_own_goes_down_with_its_timer() -> None:
    """systemd refuses to mask what lies in /etc/systemd/system itself; a drop-in holds it."""
    name, timer = "clocks.service", "clocks.timer"
    path = f"/etc/systemd/system/{name}"
    own = unit(name, "inactive", "static", timer) | {"FragmentPath": path}
    found = owners({}, {name: own}, {timer: unit(timer, "active", "enabled")})
    assert changes(found) == Changes((timer,), (timer,), (name,))
    held = own | {"DropInPaths": f"{path}.d/{DROP_IN}"}
    after = owners({}, {name: held}, {timer: unit(timer, "inactive", "disabled")})
    assert left_over(after) == []


def test_an_owner_found_both_ways_is_one() -> None:
    name = "tlp.service"
    found = owners({name: unit(name, "active", "enabled")}, {name: unit(name, "active", "enabled")})
    assert changes(found).stop == (name,)


def test_unread_services_are_not_taken_for_the_absence_of_owners() -> None:
    assert isinstance(other_owners(state_of({}), OWNERS), Unknown)
    unread = state_of({"services": {"units": {}, "triggers": {}}, "cpufreq": {"unknown": "why"}})
    assert str(other_owners(unread, OWNERS)) == "unknown (why)"

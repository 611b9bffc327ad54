"""Governors: which policies are wrong, which cannot be set, and the boot unit."""

from __future__ import annotations

from typing import Any

import pytest

from deploys.steps.begin import host_settings
from facts.cpufreq import Cpufreq, parse
from facts.services import Services
from facts.snapshot import HostState, state_of
from facts.unknown import Unknown
from operations.cpufreq import (
    UNIT,
    UNIT_PATH,
    not_offered,
    other_owners,
    owner_changes,
    owners_left,
    persisted,
    unit_text,
    wrong_policies,
)
from operations.services import Changes
from tests.plan.made_pair import PROFILES, absent_unit, file_of, policy, unit

BOTH = ["performance", "schedutil"]


def found(**policies: tuple[str | None, list[str], str]) -> Cpufreq:
    """policy -> (governor, offered, affected CPUs), as spark-host reads them."""
    return parse(
        {
            "policies": {
                name: policy(cpus, governor=governor, offered=offered)
                for name, (governor, offered, cpus) in policies.items()
            },
            "writers": {"units": {}, "triggers": {}},
            "profile": None,
        }
    )


def test_every_policy_under_another_governor_is_wrong() -> None:
    cpus = found(
        policy0=("performance", BOTH, "0"),
        policy4=("schedutil", BOTH, "4"),
        policy10=("powersave", BOTH, "10"),
    )
    assert set(wrong_policies(cpus, "schedutil")) == {"policy0", "policy10"}
    assert wrong_policies(found(policy4=("schedutil", BOTH, "4")), "schedutil") == []


def test_c03_a_governor_that_is_not_offered_is_said_with_the_list() -> None:
    cpus = found(policy0=("performance", ["performance", "powersave"], "0"))
    assert not_offered(cpus, "schedutil") == ["policy0 offers performance powersave, not schedutil"]
    assert not_offered(found(policy0=("performance", BOTH, "0")), "schedutil") == []
    assert not_offered(found(policy0=("performance", [], "0")), "schedutil") == [
        "policy0 offers nothing, not schedutil"
    ]


@pytest.mark.parametrize("left", [None, "performance"])
def test_c05_a_policy_whose_cpus_are_offline_waits(left: str | None) -> None:
    """The kernel says EBUSY there; some kernels still show the old governor."""
    cpus = found(policy0=("schedutil", BOTH, "0"), policy10=(left, [], ""))
    assert cpus.policies[1].offline
    assert wrong_policies(cpus, "schedutil") == []
    assert not_offered(cpus, "schedutil") == []


def test_c05_a_policy_that_came_back_is_drift() -> None:
    cpus = found(policy0=("schedutil", BOTH, "0"), policy10=("performance", BOTH, "10"))
    assert wrong_policies(cpus, "schedutil") == ["policy10"]


def test_an_online_policy_that_cannot_be_read_is_not_taken_for_right() -> None:
    assert wrong_policies(found(policy0=(None, BOTH, "0")), "schedutil") == ["policy0"]


def test_no_policies_is_unsupported() -> None:
    assert not found().supported
    assert found(policy0=("performance", BOTH, "0")).supported


def state(own: Any, boot_unit: dict[str, str]) -> HostState:
    return state_of(
        {
            "files": {UNIT_PATH: own},
            "services": {"units": {UNIT: boot_unit}, "triggers": {}},
        }
    )


ENABLED = unit(UNIT, "active", "enabled")


def test_the_setting_lasts_only_with_the_units_bytes_enabled() -> None:
    own = file_of(unit_text("schedutil"), 0o644)
    assert persisted(state(own, ENABLED), "schedutil")
    assert not persisted(state(None, ENABLED), "schedutil")
    assert not persisted(state(file_of(unit_text("schedutil") + b"#"), ENABLED), "schedutil")
    assert not persisted(state(own, unit(UNIT, "active", "disabled")), "schedutil")
    assert not persisted(state(own, absent_unit(UNIT)), "schedutil")


def test_a_boot_unit_for_another_governor_is_not_the_wanted_one() -> None:
    own = file_of(unit_text("schedutil"), 0o644)
    assert not persisted(state(own, ENABLED), "powersave")
    assert persisted(state(file_of(unit_text("powersave")), ENABLED), "powersave")


def test_an_unread_host_has_no_lasting_setting() -> None:
    assert not persisted(state_of({}), "schedutil")
    own = {"files": {UNIT_PATH: file_of(unit_text("schedutil"))}}
    assert not persisted(state_of(own), "schedutil")


@pytest.mark.parametrize("want", ["schedutil", "powersave"])
def test_the_boot_unit_sets_the_governor_that_is_wanted_and_no_other(want: str) -> None:
    text = unit_text(want).decode()
    assert f'do echo {want} > "$p"' in text
    assert "@" not in text
    assert want == "schedutil" or "schedutil" not in text


def test_the_boot_unit_comes_after_every_known_owner_and_after_the_target_they_wait_for() -> None:
    text = unit_text("schedutil").decode()
    after = {word for line in text.splitlines() for word in line.partition("After=")[2].split()}
    assert after >= {*host_settings()["governor_owners"], "multi-user.target"}


# Other owners


Units = dict[str, dict[str, str]]
OWNERS = host_settings()["governor_owners"]


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
                    "profile": None,
                },
            }
        ),
        OWNERS,
    )
    assert isinstance(found, Services)
    return found


def test_hosts_without_other_owners_have_nothing_to_do() -> None:
    assert not owner_changes(owners({}))


def test_c01_an_owner_that_is_enabled_though_it_sleeps_now_is_not_left() -> None:
    """It writes a minute after the next boot."""
    found = owners({"ondemand.service": unit("ondemand.service", "inactive", "enabled")})
    assert owner_changes(found) == Changes((), ("ondemand.service",), ())
    assert owners_left(found) == ["ondemand.service is inactive/enabled"]


def test_c01_an_init_script_is_masked() -> None:
    found = owners({"cpufrequtils.service": unit("cpufrequtils.service", "active", "generated")})
    name = ("cpufrequtils.service",)
    assert owner_changes(found) == Changes(name, (), name)


@pytest.mark.parametrize("file_state", ["enabled", "disabled"])
def test_c07_an_owner_that_a_bus_call_would_start_is_masked(file_state: str) -> None:
    bus = {"starters": [f"D-Bus as {PROFILES}"]}
    found = owners({PROFILES: unit(PROFILES, "active", file_state) | bus})
    todo = owner_changes(found)
    assert (todo.stop, todo.mask) == ((PROFILES,), (PROFILES,))
    assert owner_changes(owners({PROFILES: unit(PROFILES, "inactive", "masked") | bus})) == Changes(
        (), (), ()
    )


def test_c07_an_owner_that_only_sleeps_beside_an_active_one_is_taken_too() -> None:
    found = owners(
        {
            PROFILES: unit(PROFILES, "active", "disabled"),
            "tuned.service": unit("tuned.service", "inactive", "enabled"),
        }
    )
    assert owner_changes(found).stop == (PROFILES,)
    assert owner_changes(found).disable == ("tuned.service",)


def test_a_unit_found_by_its_commands_goes_down_with_its_timer() -> None:
    name, timer = "vendor-clocks.service", "vendor-clocks.timer"
    fires = {timer: unit(timer, "active", "enabled")}
    found = owners({}, {name: unit(name, "inactive", "static", timer)}, fires)
    assert owner_changes(found) == Changes((timer,), (timer,), (name,))


def test_a_static_unit_of_the_owners_own_is_left_without_its_timer() -> None:
    """systemd refuses to mask what lies in /etc/systemd/system itself."""
    name, timer = "clocks.service", "clocks.timer"
    own = unit(name, "inactive", "static", timer) | {"FragmentPath": f"/etc/systemd/system/{name}"}
    found = owners({}, {name: own}, {timer: unit(timer, "active", "enabled")})
    assert owner_changes(found) == Changes((timer,), (timer,), ())
    after = owners({}, {name: own}, {timer: unit(timer, "inactive", "disabled")})
    assert owners_left(after) == []


def test_an_owner_found_both_ways_is_one() -> None:
    name = "tlp.service"
    found = owners({name: unit(name, "active", "enabled")}, {name: unit(name, "active", "enabled")})
    assert owner_changes(found).stop == (name,)


def test_unread_services_are_not_taken_for_the_absence_of_owners() -> None:
    assert isinstance(other_owners(state_of({}), OWNERS), Unknown)
    unread = state_of({"services": {"units": {}, "triggers": {}}, "cpufreq": {"unknown": "why"}})
    assert str(other_owners(unread, OWNERS)) == "unknown (why)"

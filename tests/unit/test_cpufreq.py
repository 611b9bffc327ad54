"""Governors: which policies are wrong, which cannot be set, and the boot unit."""

from __future__ import annotations

from typing import Any

import pytest

from facts.cpufreq import Cpufreq, parse
from facts.snapshot import HostState, state_of
from operations.cpufreq import UNIT, UNIT_PATH, not_offered, persisted, unit_text, wrong_policies
from tests.plan.made_pair import absent_unit, file_of, unit

BOTH = ["performance", "schedutil"]


def found(**policies: tuple[str | None, list[str], str]) -> Cpufreq:
    """policy -> (governor, offered, affected CPUs), as spark-host reads them."""
    return parse(
        {
            "policies": {
                name: {"governor": governor, "offered": offered, "online_cpus": cpus}
                for name, (governor, offered, cpus) in policies.items()
            }
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

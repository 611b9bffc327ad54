"""Governors: which policies are wrong, which cannot be set, and the boot unit."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from facts.clocks.cpufreq import Cpufreq, parse
from facts.state import HostState, state_of
from inventory.host_settings import shipped
from operations.clocks.cpufreq import (
    UNIT,
    UNIT_PATH,
    kept_then,
    left_caps,
    not_cappable,
    not_offered,
    offline_note,
    persisted,
    unit_text,
    wrong_caps,
    wrong_policies,
)
from tests.plan.made_pair import absent_unit, file_of, policy, unit

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
            "left_alone": [],
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
    assert not_offered(found(policy0=("schedutil", [], "0")), "schedutil") == []


@pytest.mark.parametrize("left", [None, "performance"])
def test_c05_a_policy_whose_cpus_are_offline_waits(left: str | None) -> None:
    """The kernel says EBUSY there; some kernels still show the old governor."""
    cpus = found(policy0=("schedutil", BOTH, "0"), policy10=(left, [], ""))
    assert cpus.policies[1].offline
    assert wrong_policies(cpus, "schedutil") == []
    assert not_offered(cpus, "schedutil") == []


def test_a_policy_without_a_list_of_its_cpus_is_judged_by_its_governor() -> None:
    raw = {"policy0": policy("0", online_cpus=None), "policy1": policy("1", governor=None)}
    raw["policy1"]["online_cpus"] = None
    cpus = parse(
        {
            "policies": raw,
            "writers": {"units": {}, "triggers": {}},
            "left_alone": [],
            "profile": None,
        }
    )
    assert [p.offline for p in cpus.policies] == [False, True]
    assert wrong_policies(cpus, "schedutil") == ["policy0"]


def test_a_policy_that_refuses_the_write_leaves_the_others_to_be_set(tmp_path: Path) -> None:
    """Its CPUs have just gone offline: EBUSY. Nothing is written that the journal does not have."""
    write = [f"echo x > {tmp_path}/{name}" for name in ("a", "absent/b", "c")]
    done = subprocess.run(["sh", "-c", kept_then(["true"], write)], check=False)
    assert done.returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "c"]
    (tmp_path / "a").unlink()
    done = subprocess.run(["sh", "-c", kept_then(["false"], write)], check=False)
    assert done.returncode != 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c"]


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
    own = file_of(unit_text("schedutil", None), 0o644)
    assert persisted(state(own, ENABLED), "schedutil", None)
    assert not persisted(state(None, ENABLED), "schedutil", None)
    assert not persisted(
        state(file_of(unit_text("schedutil", None) + b"#"), ENABLED), "schedutil", None
    )
    assert not persisted(state(own, unit(UNIT, "active", "disabled")), "schedutil", None)
    assert not persisted(state(own, absent_unit(UNIT)), "schedutil", None)


def test_a_boot_unit_for_another_governor_is_not_the_wanted_one() -> None:
    own = file_of(unit_text("schedutil", None), 0o644)
    assert not persisted(state(own, ENABLED), "powersave", None)
    assert persisted(state(file_of(unit_text("powersave", None)), ENABLED), "powersave", None)


def test_an_unread_host_has_no_lasting_setting() -> None:
    assert not persisted(state_of({}), "schedutil", None)
    own = {"files": {UNIT_PATH: file_of(unit_text("schedutil", None))}}
    assert not persisted(state_of(own), "schedutil", None)


@pytest.mark.parametrize("want", ["schedutil", "powersave"])
def test_the_boot_unit_sets_the_governor_that_is_wanted_and_no_other(want: str) -> None:
    text = unit_text(want, None).decode()
    assert f'do echo {want} > "$p"' in text
    assert "@" not in text
    assert want == "schedutil" or "schedutil" not in text


def test_the_boot_unit_comes_after_every_known_owner_and_after_the_target_they_wait_for() -> None:
    text = unit_text("schedutil", None).decode()
    after = {word for line in text.splitlines() for word in line.partition("After=")[2].split()}
    assert after >= {*shipped().governor_owners, "multi-user.target"}


# Caps


def capped(**policies: dict[str, Any]) -> Cpufreq:
    """policy -> what differs from a large core of a Spark, which has no cap of its own."""
    return parse(
        {
            "policies": {name: policy("0") | changes for name, changes in policies.items()},
            "writers": {"units": {}, "triggers": {}},
            "left_alone": [],
            "profile": None,
        }
    )


def test_a_policy_above_or_below_the_wanted_cap_has_a_wrong_one() -> None:
    found = capped(policy0={}, policy1={"cap_khz": 3300000}, policy2={"cap_khz": 1000000})
    assert wrong_caps(found, 3300) == {"policy0": 3300000, "policy2": 3300000}


def test_small_cores_that_never_run_that_fast_are_left_alone() -> None:
    small = {"cap_khz": 2808000, "top_khz": 2808000}
    assert wrong_caps(capped(policy0=small, policy10={}), 3300) == {"policy10": 3300000}
    assert wrong_caps(capped(policy0={}), 3900) == {}, "a cap is never above what the CPU can do"


def test_a_driver_with_steps_comes_to_the_step_below_the_cap() -> None:
    steps = {"steps_khz": [338000, 1976000, 3900000]}
    assert wrong_caps(capped(policy0=steps), 3300) == {"policy0": 1976000}
    assert wrong_caps(capped(policy0=steps | {"cap_khz": 1976000}), 3300) == {}


def test_a_cap_that_is_not_asked_for_any_more_is_to_be_given_back() -> None:
    ours = {"cap_khz": 3300000, "back_khz": 3900000}
    small = {"cap_khz": 3300000, "top_khz": 3500000, "back_khz": 3500000}
    found = capped(policy0=ours, policy1={"cap_khz": 3300000}, policy2=small)
    assert left_caps(found, None) == {"policy0": 3900000, "policy2": 3500000}
    assert left_caps(found, 3600) == {"policy2": 3500000}, "raised beyond what it can do"
    assert left_caps(found, 3300) == {}
    assert left_caps(capped(policy0=ours | {"online_cpus": ""}), None) == {}


def test_c05_a_policy_that_is_offline_has_no_wrong_cap_and_is_named() -> None:
    found = capped(policy0={"cap_khz": 3300000}, policy1={"online_cpus": "", "cap_khz": None})
    assert wrong_caps(found, 3300) == {}
    assert offline_note(found) == "skipped, all CPUs offline: policy1"
    assert offline_note(capped(policy0={})) is None


def test_a_cap_below_what_the_cpu_can_do_is_said() -> None:
    assert not_cappable(capped(policy0={}), 300) == [
        "policy0 runs at 338 MHz at least, above clocks.cpu_max_mhz 300"
    ]
    assert not_cappable(capped(policy0={}), 338) == []


def test_a_boot_unit_for_another_cap_is_not_the_wanted_one() -> None:
    own = state(file_of(unit_text("schedutil", 3300), 0o644), ENABLED)
    assert persisted(own, "schedutil", 3300)
    assert not persisted(own, "schedutil", 3000)
    assert not persisted(own, "schedutil", None)


@pytest.mark.parametrize(
    ("cap_mhz", "limits"), [(None, ["3900000", "2808000"]), (3300, ["3300000", "2808000"])]
)
def test_the_boot_unit_sets_governor_and_cap_of_the_policies_that_take_them(
    tmp_path: Path, cap_mhz: int | None, limits: list[str]
) -> None:
    """Its own commands on a folder that stands for sysfs; policy2 has its CPUs offline."""
    for name, top in (("policy0", "3900000"), ("policy1", "2808000")):
        (tmp_path / name).mkdir()
        for file, text in (("scaling_governor", "performance"), ("cpuinfo_max_freq", top)):
            (tmp_path / name / file).write_text(text + "\n")
        (tmp_path / name / "scaling_max_freq").write_text(top + "\n")
    (tmp_path / "policy2" / "scaling_governor").mkdir(parents=True)
    text = unit_text("schedutil", cap_mhz).decode().replace("/sys/devices/system/cpu/cpufreq", "{}")
    for command in re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE):
        subprocess.run(
            shlex.split(command.replace("{}", str(tmp_path))), check=True, capture_output=True
        )
    found = [tmp_path / name for name in ("policy0", "policy1")]
    assert [(p / "scaling_governor").read_text() for p in found] == ["schedutil\n"] * 2
    assert [(p / "scaling_max_freq").read_text().strip() for p in found] == limits

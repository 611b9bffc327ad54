"""Owners of the governor, caps and locks of clocks over @fake hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from operations.clocks.gpu import UNIT
from tests.plan.conftest import Pair
from tests.plan.made_pair import PROFILES, bare, unit
from tests.unit.look.test_verify_items import MACHINE

Make = Callable[..., Pair]
CLOCKS = {"cpu_max_mhz": 3300, "gpu_mhz": [300, 2450]}
BOTH = ("spark1", "spark2")


def converge(pair: Pair, **parts: Any) -> Pair:
    """All hosts converged, nothing running; parts: more of what they answer."""
    for rank in range(len(pair.names)):
        pair.snapshots[rank] = bare(pair.cluster, rank, pair.lab, pair.dsf) | parts
    return pair


def test_limits_are_set_after_the_other_owners_are_down(pair: Make) -> None:
    made = pair(clocks=CLOCKS)
    for snapshot in made.snapshots:
        snapshot["services"]["units"][PROFILES] = unit(PROFILES, "active", "enabled")
        snapshot["cpufreq"]["profile"] = "power-saver"
    run = made.plan("prepare")
    assert run.status == 0, run.err
    names = [name for name, _ in run.changes]
    first = names.index("Nothing else sets the CPU governor")
    assert run.changes[first : first + 4] == [
        ("Nothing else sets the CPU governor", BOTH),
        ("CPU governor on every policy", BOTH),
        ("CPU clock cap on every policy", BOTH),
        ("GPU clocks locked", BOTH),
    ]
    assert run.err.count(f"sets the CPU governor, too: {PROFILES} is active/enabled") == 2
    assert run.err.count("power profile in force: power-saver") == 2


def test_converged_limits_are_no_change(pair: Make) -> None:
    run = converge(pair(clocks=CLOCKS)).plan("prepare")
    assert (run.status, run.changes) == (0, [])


def test_limits_that_the_owner_took_out_again_are_taken_back(pair: Make) -> None:
    made = converge(pair(clocks=CLOCKS))
    made.data["clocks"] = {}
    for snapshot in made.snapshots:
        for policy in snapshot["cpufreq"]["policies"].values():
            policy["back_khz"] = 3900000  # as the host's journal has it
    assert made.plan("prepare").changes == [
        ("CPU governor on every policy", BOTH),  # the boot unit, without the cap
        ("CPU clock cap on every policy", BOTH),
        ("GPU clocks locked", BOTH),
    ]
    found = verdicts(made.run("verify").state_home)
    told = ", ".join(f"policy{n} 3300 MHz, of an earlier owner's file" for n in (0, 1))
    assert found["spark1"]["CPU clock cap"] == ("drift", told)
    for snapshot in made.snapshots:
        snapshot["services"]["units"][UNIT] = unit(UNIT, "inactive", "disabled")
    assert "GPU clocks locked" not in dict(made.plan("prepare").changes)


def test_a_host_without_nvidia_smi_is_said_and_left_alone(pair: Make) -> None:
    made = converge(pair(clocks=CLOCKS))
    made.snapshots[1]["gpu"] = {"gpus": None}
    run = made.plan("prepare")
    assert (run.status, run.changes) == (0, [])
    assert run.err.count("unsupported: no nvidia-smi here") == 1


def test_clocks_that_a_host_cannot_run_at_refuse_before_any_change(pair: Make) -> None:
    made = pair(clocks={"cpu_max_mhz": 300, "gpu_mhz": [3100, 3200]})
    made.snapshots[0]["cpufreq"]["policies"]["policy0"]["bottom_khz"] = None
    run = made.run("prepare", "-y", "--debug")
    assert run.status == 1
    assert run.refusal() == [
        "spark1: policy1 runs at 338 MHz at least, above clocks.cpu_max_mhz 300",
        "spark1: NVIDIA GB10 runs at 3003 MHz at most, below clocks.gpu_mhz 3100",
        "spark2: policy0 runs at 338 MHz at least, above clocks.cpu_max_mhz 300",
        "spark2: policy1 runs at 338 MHz at least, above clocks.cpu_max_mhz 300",
        "spark2: NVIDIA GB10 runs at 3003 MHz at most, below clocks.gpu_mhz 3100",
    ]


def test_c03_a_governor_that_one_host_does_not_offer_leaves_both_as_they_are(pair: Make) -> None:
    made = pair()
    for policy in made.snapshots[1]["cpufreq"]["policies"].values():
        policy["offered"] = ["performance", "powersave"]
    run = made.run("prepare", "-y", "--debug")
    assert run.status == 1
    assert run.refusal() == [
        f"spark2: policy{n} offers performance powersave, not schedutil" for n in (0, 1)
    ]
    assert [line for name in made.names for line in run.acts(name)] == []


def test_a_governor_that_cannot_be_read_is_neither_journalled_nor_set(pair: Make) -> None:
    made = converge(pair())
    made.snapshots[1]["cpufreq"]["policies"]["policy1"]["governor"] = None
    run = made.run("prepare", "-y", "--debug")
    assert run.status == 1
    assert "the governor of policy1 cannot be read" in run.out + run.err
    assert not [line for line in run.commands("spark2") if "scaling_governor" in line]


def test_c01_what_is_left_alone_is_said_and_is_drift(pair: Make) -> None:
    made = converge(pair(), machine=MACHINE)
    cron = "/var/spool/cron/crontabs/root line 2"
    made.snapshots[0]["cpufreq"]["left_alone"] = ["engine.service (runs an engine)", cron]
    run = made.plan("prepare")
    assert (run.status, run.changes) == (0, [])
    assert run.err.count("also sets the CPU governor; it is left as it is") == 2
    run = made.run("verify")
    assert run.status == 1
    found = verdicts(run.state_home)
    assert found["spark2"]["other governor owners"][0] == "ok"
    assert found["spark1"]["other governor owners"] == (
        "drift",
        f"engine.service (runs an engine) also sets the governor; {cron} also sets the governor",
    )


def verdicts(run_state_home: Any) -> dict[str, dict[str, tuple[str, str]]]:
    (path,) = run_state_home.glob("spark-converge/*-verify/verify.json")
    found = json.loads(path.read_text())["hosts"]
    return {
        host: {item["name"]: (item["verdict"], item["found"]) for item in column["items"]}
        for host, column in found.items()
    }


def test_verify_says_what_drifted_and_what_the_host_does_not_have(pair: Make) -> None:
    made = converge(pair(clocks=CLOCKS), machine=MACHINE)
    first, second = made.snapshots
    first["cpufreq"]["policies"]["policy1"]["cap_khz"] = 3900000
    second["cpufreq"]["policies"]["policy1"] |= {"top_khz": 2808000, "cap_khz": 2808000}
    second["machine"] = MACHINE | {"gpus": None}
    run = made.run("verify")
    assert run.status == 1
    found = verdicts(run.state_home)
    assert found["spark1"]["CPU clock cap"] == ("drift", "policy1 3900 MHz")
    assert found["spark1"]["GPU clock lock"] == ("ok", "set by spark-converge-gpu-clocks.service")
    assert found["spark2"]["CPU clock cap"] == ("ok", "on 1 policies, 1 never run that fast")
    assert found["spark2"]["GPU clock lock"] == ("unsupported", "no nvidia-smi here")
    assert found["spark1"]["other governor owners"] == ("ok", f"{PROFILES} inactive/masked")


def test_without_limits_in_the_owners_file_there_are_no_lines_of_them(pair: Make) -> None:
    found = verdicts(converge(pair(), machine=MACHINE).run("verify").state_home)
    assert not {"CPU clock cap", "GPU clock lock"} & set(found["spark1"])

"""Programs that end others for want of memory, against what a loaded stack leaves (F05)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from facts.memory.memory import Memory
from facts.memory.oom import Killer, parse
from facts.state import state_of
from operations.memory.oom import advice, fires, refusals, told
from stacks.definition import Stack, load
from tests.plan.made_pair import Snapshot, bare, cluster, locked

DEFAULTS = """\
# Default settings for earlyoom.

EARLYOOM_ARGS="-r 3600 -M 2097152 -s 100"
# EARLYOOM_ARGS="-m 5"
"""
NOHANG = """\
## soft_threshold_min_mem = 50 %
soft_threshold_min_mem  = 5 %
soft_threshold_min_swap = 512 M
"""
# As oomctl of systemd 255 prints it.
OOMCTL = """\
Dry Run: no
Swap Used Limit: 90.00%
Default Memory Pressure Limit: 60.00%
Default Memory Pressure Duration: 30s
System Context:
        Memory: Used: 110.3G Total: 119.6G
        Swap: Used: 198.0M Total: 16.0G
Swap Monitored CGroups:
        Path: {group}
                Swap Usage: (see System Context)
Memory Pressure Monitored CGroups:
        Path: /user.slice/user-1000.slice/user@1000.service
                Memory Pressure Limit: 50.00%
"""
SPARK = Memory(122507, 1000, 9000, 500, 16384, 16186, ())  # of 16 GiB of swap 198 MiB used


def found(name: str, *argv: str, text: str | None = None, state: str | None = None) -> Any:
    file = {"earlyoom": "/etc/default/earlyoom", "nohang": "/etc/nohang/nohang.conf"}
    rest = {"file": file.get(name, "/etc/systemd/oomd.conf"), "text": text, "state": state}
    return {"killers": [{"name": name, "pid": 812, "argv": list(argv), **rest}]}


def killer(*words: Any, **more: Any) -> Killer:
    (one,) = parse(found(*words, **more)).killers
    return one


def stack(steady_mib: int | None) -> Stack:
    one = load("glm53-sglang-nvfp4")
    memory = one.memory.model_copy(update={"steady_available_mib": steady_mib})
    return one.model_copy(update={"memory": memory})


@pytest.mark.parametrize(
    ("argv", "memory_mib", "swap_mib"),
    [
        ((), 12250, 1638),
        (("-m", "5"), 6125, 1638),
        (("-m5,2", "-s", "100"), 6125, 16384),
        (("-M", "2097152"), 2048, 1638),
        (("-M", "2097152,1048576", "-S", "1048576"), 2048, 1024),
        (("-m", "10", "-M", "2097152"), 2048, 1638),  # the lower of both counts
        (("-r", "3600", "--avoid", "(^|/)(init|sshd)$", "-n", "-m", "1"), 1225, 1638),
    ],
)
def test_the_thresholds_of_earlyoom(argv: tuple[str, ...], memory_mib: int, swap_mib: int) -> None:
    one = killer("earlyoom", *argv)
    assert int(one.memory.of(SPARK.total_mib)) == memory_mib
    assert int(one.swap.of(SPARK.swap_mib)) == swap_mib


def test_f05_a_floor_above_what_the_stack_leaves_fires_once_swap_is_no_condition() -> None:
    """earlyoom -M 2097152, 16 GiB of swap free, 1.5 to 1.9 GiB expected to be available."""
    for steady_mib in (1536, 1945):
        assert not fires(killer("earlyoom", "-M", "2097152"), SPARK, stack(steady_mib))
        assert fires(killer("earlyoom", "-M", "2097152", "-s", "100"), SPARK, stack(steady_mib))
    assert not fires(killer("earlyoom", "-M", "2097152", "-s", "100"), SPARK, stack(9277))
    assert not fires(killer("earlyoom", "-M", "2097152", "-s", "100"), SPARK, stack(None))


def test_f05_the_refusal_names_the_line_to_change(tmp_path: Path) -> None:
    snapshot = spark(tmp_path)
    words = ("-r", "3600", "-M", "2097152", "-s", "100")
    snapshot["oom"] = found("earlyoom", *words, text=DEFAULTS)
    assert refusals(state_of(snapshot), stack(1700)) == [
        "earlyoom (pid 812) would end glm53-sglang-nvfp4: it acts below 2048 MiB available, the "
        "loaded stack leaves about 1700 MiB; lower -M in /etc/default/earlyoom line 3 and restart "
        "earlyoom"
    ]
    assert refusals(state_of(snapshot), stack(9277)) == []


def spark(folder: Path) -> Snapshot:
    made = bare(cluster(), 0, locked("lab", folder), locked("dsf-lab", folder))
    kib = {"MemTotal": 122507 * 1024, "SwapTotal": 16384 * 1024, "SwapFree": 16186 * 1024}
    made["memory"]["meminfo_kib"] |= kib
    return made


def test_words_that_are_not_in_the_file_are_looked_for_in_the_unit() -> None:
    assert killer("earlyoom", "-m", "3", text=DEFAULTS).where == "`systemctl cat earlyoom`"
    assert killer("earlyoom", text=None).where == "`systemctl cat earlyoom`"


def test_without_swap_only_memory_counts() -> None:
    swapless = Memory(122507, 1000, 9000, 500, 0, 0, ())
    assert fires(killer("earlyoom", "-m", "10"), swapless, stack(9277))
    assert fires(killer("nohang", text=NOHANG), swapless, stack(6000))
    oomd = killer("systemd-oomd", state=OOMCTL.format(group="/"))
    assert not fires(oomd, swapless, stack(9277))
    assert "never on a host without swap" in told(oomd, swapless, stack(9277))


def test_the_oomd_of_a_desktop_lets_a_spark_with_free_swap_alone() -> None:
    one = killer("systemd-oomd", state=OOMCTL.format(group="/"))
    assert not fires(one, SPARK, stack(9277))
    assert "held back while more than 1638 MiB of swap are free" in told(one, SPARK, stack(9277))
    full = Memory(122507, 1000, 9000, 500, 16384, 1000, ())
    assert fires(one, full, stack(9277))


@pytest.mark.parametrize(
    "group", ["/user.slice/user-1000.slice", "/system.slice/cups.service", "/docker2"]
)
def test_an_oomd_that_watches_other_groups_is_no_danger(group: str) -> None:
    one = killer("systemd-oomd", state=OOMCTL.format(group=group))
    assert one.spares == "it watches no engine's control group for swap"


@pytest.mark.parametrize("group", ["/", "/system.slice", "/docker"])
def test_an_oomd_that_watches_dockers_groups_is_judged(group: str) -> None:
    assert killer("systemd-oomd", state=OOMCTL.format(group=group)).spares is None


@pytest.mark.parametrize(
    ("group", "told_too"), [("/system.slice", True), ("/", True), ("/user.slice", False)]
)
def test_an_oomd_that_acts_for_pressure_on_engines_is_said(
    tmp_path: Path, group: str, told_too: bool
) -> None:
    """No figure says whether a load reaches it, so it refuses nothing."""
    users = "/user.slice/user-1000.slice/user@1000.service"
    snapshot = spark(tmp_path)
    state = OOMCTL.format(group="/user.slice").replace(users, group)
    snapshot["oom"] = found("systemd-oomd", state=state)
    (one,) = parse(snapshot["oom"]).killers
    assert one.pressure == (f"50.00% in {group}" if told_too else None)
    assert (f"above a memory pressure of 50.00% in {group}" in told(one, SPARK, stack(9))) is (
        told_too
    )
    assert [f"50.00% in {group}" in line for line in advice(state_of(snapshot))] == [
        True
    ] * told_too
    assert refusals(state_of(snapshot), stack(9)) == []
    snapshot["oom"] = found("systemd-oomd", state=state.replace("Run: no", "Run: yes"))
    assert advice(state_of(snapshot)) == []


@pytest.mark.parametrize("word", ["--dryrun", "--ignore-root-user"])
def test_an_earlyoom_that_would_not_end_an_engine_is_said_to_spare_it(word: str) -> None:
    one = killer("earlyoom", "-m", "10", "-s", "100", word)
    assert not fires(one, SPARK, stack(9277))
    assert one.spares
    assert one.spares in told(one, SPARK, stack(9277))


def test_nohang_by_its_own_file() -> None:
    one = killer("nohang", "--monitor", text=NOHANG)
    assert one.where == "/etc/nohang/nohang.conf line 2"
    assert int(one.memory.of(SPARK.total_mib)) == 6125
    assert one.swap.of(SPARK.swap_mib) == 512


@pytest.mark.parametrize(
    "words",
    [("--sort-by-rss",), ("--kernel-oom",), ("-P", "/usr/local/bin/before"), ("-k", "-i", "-g")],
)
def test_options_that_set_no_threshold_are_no_reason_to_refuse(words: tuple[str, ...]) -> None:
    one = killer("earlyoom", *words, "-m", "5")
    assert int(one.memory.of(SPARK.total_mib)) == 6125
    assert one.spares is None


@pytest.mark.parametrize(
    "odd",
    [
        found("earlyoom", "-m", "ten"),
        found("earlyoom", "--no-such-option"),
        found("nohang", text="soft_threshold_min_mem = 5\n"),
        found("nohang"),
        found("systemd-oomd", state="Failed to connect to bus"),
    ],
)
def test_thresholds_that_cannot_be_made_out_are_unknown_and_refuse(
    tmp_path: Path, odd: Any
) -> None:
    parsed = parse(odd)
    assert parsed.killers == ()
    assert len(parsed.unread) == 1
    state = state_of(spark(tmp_path) | {"oom": odd})
    (said,) = refusals(state, stack(9277))
    assert said.startswith(
        f"{odd['killers'][0]['name']} (pid 812) ends programs when memory is short, "
    )
    assert "could not be read (unknown" in said
    assert said.endswith("while the stack is served")
    assert refusals(state, stack(None)) == [], "without an expected figure nothing is judged"

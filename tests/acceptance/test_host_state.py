"""Boot target, desktop services, CPU governor, shared memory."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from testinfra.host import Host

from tests.acceptance.look import properties, read

# Written out here and not taken from files/units: what an owner would look for on the host.
GOVERNOR_UNIT = "spark-converge-governor.service"
# Names that NCCL, PyTorch and vLLM leave behind.
SEGMENTS = ("psm_*", "sem.*", "torch_*", "mp-*", "vllm*")


def test_host_boots_into_the_wanted_target(host: Host, settings: dict[str, Any]) -> None:
    assert read(host, "systemctl get-default").strip() == settings["boot_target"]


def test_service_is_down_and_nothing_can_start_it(host: Host, service: str) -> None:
    """Not is_enabled: it counts a static unit, which D-Bus can start at any time, as enabled."""
    unit = properties(host, service)
    triggers = [properties(host, name) for name in unit.get("TriggeredBy", "").split()]
    for one in (unit, *triggers):
        if one["LoadState"] == "not-found":
            continue
        seen = f"{one['Id']} is {one['ActiveState']}, {one['UnitFileState']}"
        assert one["ActiveState"] in ("inactive", "failed"), seen
        assert one["UnitFileState"] in ("disabled", "masked"), seen


def test_every_cpu_policy_runs_under_the_wanted_governor(
    host: Host, settings: dict[str, Any]
) -> None:
    folder = "/sys/devices/system/cpu/cpufreq"
    # A policy whose CPUs are all offline has no readable governor: -s.
    text = read(host, f"grep -sH . {folder}/policy*/scaling_governor || true")
    governors = dict(line.split(":", 1) for line in text.splitlines())
    if not governors:
        pytest.skip("unsupported: this host has no CPU frequency policies")
    wrong = {path: seen for path, seen in governors.items() if seen != settings["governor"]}
    assert not wrong


def test_governor_is_set_again_at_every_boot(host: Host) -> None:
    assert properties(host, GOVERNOR_UNIT)["UnitFileState"] == "enabled"


def test_shared_memory_holds_no_segment_of_a_dead_engine(host: Host) -> None:
    names = read(host, "ls -A /dev/shm").split()
    suspects = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in SEGMENTS)]
    in_use = read(
        host,
        "cat /proc/[0-9]*/maps 2>/dev/null | grep -o '/dev/shm/.*'; "
        "find /proc/[0-9]*/fd -lname '/dev/shm/*' -printf '%l\\n' 2>/dev/null; true",
    ).splitlines()
    used = {path.rsplit("/", 1)[-1] for path in in_use}
    assert sorted(set(suspects) - used) == []

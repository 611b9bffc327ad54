"""Boot target, desktop services, CPU governor, kernel settings, shared memory."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

import pytest
from testinfra.host import Host

from inventory.schema import Cluster
from stacks.definition import Stack
from tests.acceptance.look import cannot_start, held_down, read, units

# Written out here and not taken from files/units: what an owner would look for on the host.
GOVERNOR_UNIT = "spark-converge-governor.service"
GPU_UNIT = "spark-converge-gpu-clocks.service"
# Names that NCCL, PyTorch and vLLM leave behind.
SEGMENTS = ("psm_*", "sem.*", "torch_*", "mp-*", "vllm*")


def test_host_boots_into_the_wanted_target(host: Host, settings: dict[str, Any]) -> None:
    wanted = settings["boot_target"]
    assert read(host, "systemctl get-default").strip() == wanted
    link = read(host, "readlink -e /etc/systemd/system/default.target || true").strip()
    assert link in ("", f"/usr/lib/systemd/system/{wanted}")
    words = read(host, "cat /proc/cmdline").split()
    assert not [w for w in words if w.startswith("systemd.unit=") and not w.endswith(f"={wanted}")]


def test_service_is_down_and_nothing_can_start_it(
    host: Host, service: str, settings: dict[str, Any]
) -> None:
    """Not is_enabled: it counts a static unit, which D-Bus can start at any time, as enabled."""
    found = units(host, tuple(settings["services_down"]))
    triggers = [found[name] for name in found[service].triggers]
    for one in (found[service], *triggers):
        if one.load == "not-found":
            continue
        seen = f"{one.name} is {one.active}, {one.file}"
        assert one.active in ("inactive", "failed"), seen
        assert cannot_start(host, one), seen


def test_no_display_manager_runs(host: Host) -> None:
    """By its real names: an alias of a masked unit counts as one of its own that never runs."""
    names = "gdm.service lightdm.service sddm.service"
    states = read(host, f"systemctl is-active {names} || true").split()
    assert not {*states} - {"inactive", "failed"}


def test_desktop_units_of_users_are_masked_for_everybody_with_linger(
    host: Host, settings: dict[str, Any]
) -> None:
    for name in settings["user_units_down"]:
        if not host.file(f"/usr/lib/systemd/user/{name}").exists:
            continue
        script = (
            "for user in $(ls /var/lib/systemd/linger 2>/dev/null); do "
            'home=$(getent passwd "$user" | cut -d: -f6); '
            f'readlink "$home/.config/systemd/user/{name}" || echo "$user"; done'
        )
        assert {*read(host, script).split()} <= {"/dev/null"}, name


def policies(host: Host) -> list[str]:
    """Folders of all CPU frequency policies; none: unsupported, which is not unreadable."""
    return read(host, "ls -d /sys/devices/system/cpu/cpufreq/policy* 2> /dev/null || true").split()


def test_every_cpu_policy_runs_under_the_wanted_governor(
    host: Host, settings: dict[str, Any]
) -> None:
    folder = "/sys/devices/system/cpu/cpufreq"
    # A policy whose CPUs are all offline has no readable governor: -s.
    text = read(host, f"grep -sH . {folder}/policy*/scaling_governor || true")
    governors = dict(line.split(":", 1) for line in text.splitlines())
    if not policies(host):
        pytest.skip("unsupported: this host has no CPU frequency policies")
    assert governors, "no policy's governor could be read"
    wrong = {path: seen for path, seen in governors.items() if seen != settings["governor"]}
    assert not wrong


def test_governor_is_set_again_at_every_boot(host: Host) -> None:
    assert units(host, (GOVERNOR_UNIT,))[GOVERNOR_UNIT].file == "enabled"


def test_no_cpu_may_run_faster_than_the_owner_allows(host: Host, cluster: Cluster) -> None:
    cap_mhz = cluster.clocks.cpu_max_mhz
    if cap_mhz is None:
        pytest.skip("no clocks.cpu_max_mhz in the owner's file")
    files = "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq"
    limits = dict(
        line.split(":", 1) for line in read(host, f"grep -sH . {files} || true").splitlines()
    )
    if not policies(host):
        pytest.skip("unsupported: this host has no CPU frequency policies")
    assert limits, "no policy's limit could be read"
    assert {path: khz for path, khz in limits.items() if int(khz) > cap_mhz * 1000} == {}


def test_gpu_clocks_were_locked_since_the_start(host: Host, cluster: Cluster) -> None:
    """What a GPU is locked to cannot be read; what set it can."""
    if cluster.clocks.gpu_mhz is None:
        pytest.skip("no clocks.gpu_mhz in the owner's file")
    if not host.exists("nvidia-smi"):
        pytest.skip("unsupported: no nvidia-smi on this host")
    found = units(host, (GPU_UNIT,))[GPU_UNIT]
    assert (found.file, found.active) == ("enabled", "active")
    low, high = cluster.clocks.gpu_mhz
    assert f"--lock-gpu-clocks={low},{high} " in read(host, f"systemctl cat {GPU_UNIT}")


def test_nothing_else_can_set_the_governor(host: Host, settings: dict[str, Any]) -> None:
    owners = settings["governor_owners"]
    found = units(host, tuple(owners))
    for one in (found[name] for name in (*owners, *(t for o in owners for t in found[o].triggers))):
        if one.load == "not-found":
            continue
        seen = f"{one.name} is {one.active}, {one.file}"
        assert one.active in ("inactive", "failed"), seen
        assert cannot_start(host, one), seen
    started = read(
        host, "grep -hs ^SystemdService= /usr/share/dbus-1/system-services/*.service || true"
    )
    by_bus = {line.partition("=")[2] for line in started.splitlines()} & set(owners)
    bare = {name for name in by_bus if found[name].file != "masked"}
    assert {name for name in bare if not held_down(host, found[name])} == set()


def test_kernel_settings_are_as_wanted_now_and_at_boot(
    host: Host, settings: dict[str, Any]
) -> None:
    for key, value in settings["sysctl"].items():
        text = read(host, f"sysctl -n {key} 2>/dev/null || true").strip()
        assert text in (str(value), ""), f"{key} is {text}"  # a kernel may lack it
        # systemd's own reading of the files: the last line that names the setting counts.
        lines = read(host, "systemd-analyze cat-config sysctl.d --no-pager").splitlines()
        named = [re.sub(r"^-|\s", "", line) for line in lines]
        set_at_boot = [line for line in named if line.startswith(f"{key}=")]
        assert set_at_boot[-1:] == [f"{key}={value}"]


def test_logind_leaves_the_segments_of_users_who_log_out(host: Host) -> None:
    where = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
    assert read(host, f"busctl get-property {where} RemoveIPC").strip() == "b false"
    text = read(host, "systemd-analyze cat-config systemd/logind.conf --no-pager")
    assert re.findall(r"^RemoveIPC=(.*)$", text, re.MULTILINE)[-1:] == ["no"]


def test_programs_outside_of_docker_leave_the_memory_that_a_bind_wants(
    host: Host, stack: Stack
) -> None:
    """Through the GPU too: on a unified host that is the same memory, and ps does not count it."""
    total_kib = int(read(host, "awk '/^MemTotal:/ {print $2}' /proc/meminfo"))
    held_mib = {}
    for line in read(host, "ps -e -o pid=,rss=,cgroup:999=").splitlines():
        pid, rss_kib, group = line.split(None, 2)
        if not re.search(r"/docker[-/]", group):
            held_mib[pid] = int(rss_kib) / 1024
    asks = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits"
    for line in read(host, f"! command -v nvidia-smi > /dev/null || {asks}").splitlines():
        pid, mib = line.split(", ")
        if pid in held_mib:
            held_mib[pid] = max(held_mib[pid], float(mib))
    assert total_kib / 1024 - sum(held_mib.values()) >= stack.memory.floor_mib, held_mib


def test_shared_memory_holds_no_segment_of_a_dead_engine(host: Host) -> None:
    found, _, held = read(
        host,
        "ls -A /dev/shm; echo ==; "
        "cat /proc/[0-9]*/maps 2>/dev/null | grep -o '/dev/shm/.*'; "
        "find /proc/[0-9]*/fd -lname '/dev/shm/*' -printf '%l\\n' 2>/dev/null; true",
    ).partition("==\n")
    in_use = {path.rsplit("/", 1)[-1] for path in held.splitlines()}
    suspects = [n for n in found.split() if any(fnmatch.fnmatchcase(n, p) for p in SEGMENTS)]
    assert sorted(set(suspects) - in_use) == []

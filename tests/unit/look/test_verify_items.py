"""Verify's lines for one host: one deliberate drift at a time, and each part unread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from facts.look.machine import Machine, Sensor, gpu, parse
from facts.state import HostState, state_of, unread
from inventory.host_settings import shipped
from operations.clocks import cpufreq
from operations.look.machine import graphics, heat, hottest
from operations.look.parts import findings
from operations.memory import sysctl
from operations.network.netplan import PATH
from operations.run.findings import Finding, Look
from operations.systemd import maintenance
from stacks.definition import Stack
from tests.plan.made_pair import (
    GPU,
    PORTS,
    UPDATES,
    WATCHDOG,
    Snapshot,
    absent_unit,
    bare,
    bond_text,
    cluster,
    container,
    dirty,
    file_of,
    listener,
    locked,
    table_of,
    unit,
)

SERVICES = (*shipped().services_down, *shipped().maintenance_held)
MACHINE: dict[str, Any] = {
    "os": "Ubuntu 24.04.3 LTS",
    "product": "NVIDIA_DGX_Spark",
    "bios": "5.36_0ACUM018",
    "cpus": 20,
    "docker_limits": {"memlock": "8388608", "nofile": "1048576"},
    "docker": {"version": "28.3.3", "driver": "overlay2", "store": "docker"},
    "gpus": [dict(GPU)],
    "nic_firmware": {"rocep1s0f0": "28.45.4028"},
    "zones": [
        {"name": "acpitz", "celsius": 55.0, "passive_celsius": None, "critical_celsius": 104.0},
        {"name": "acpitz", "celsius": 61.5, "passive_celsius": None, "critical_celsius": 104.0},
    ],
    "hwmon": [{"name": "nvme Composite", "celsius": 41.9, "critical_celsius": 84.9}],
    "clocks": {"policy0": {"now_mhz": 2808, "cap_mhz": 3300, "top_mhz": 3900}},
}


@pytest.fixture
def lab(tmp_path: Path) -> Stack:
    return locked("lab", tmp_path)


@pytest.fixture
def dsf(tmp_path: Path) -> Stack:
    return locked("dsf-lab", tmp_path)


def items(state: HostState, stack: Stack, known: tuple[Stack, ...]) -> list[Finding]:
    """The page's lines for the head."""
    found = findings(Look(cluster(), 0, (state,), stack, known, shipped()))
    return [one for one in found if one.name]


@pytest.fixture
def look(lab: Stack, dsf: Stack) -> Callable[[Snapshot], dict[str, Finding]]:
    """Items of the head by name, from a snapshot."""

    def look_at(snapshot: Snapshot) -> dict[str, Finding]:
        state = state_of(snapshot | {"machine": snapshot.get("machine", MACHINE)})
        found = items(state, lab, (lab, dsf))
        assert len({i.name for i in found}) == len(found), "two lines of one name"
        return {item.name: item for item in found}

    return look_at


LookAt = Callable[[Snapshot], dict[str, Finding]]


def test_a_converged_host_is_ok_in_every_line(look: LookAt, lab: Stack, dsf: Stack) -> None:
    found = look(bare(cluster(), 0, lab, dsf))
    assert {item.verdict for item in found.values()} == {"ok"}


def test_the_seeds_host_drifts_where_it_is_dirty(look: LookAt, lab: Stack, dsf: Stack) -> None:
    found = look(dirty(cluster(), 0, lab, dsf))
    drifted = {name for name, item in found.items() if item.verdict == "drift"}
    assert drifted == {
        *("boots into", "on-host program", "governor", "governor at boot", "fabric"),
        *("shared memory", "image", "cron lines", "restart policies", "other governor owners"),
        *("sysctl vm.swappiness", "sysctl at boot", "RemoveIPC of logind"),
        *shipped().services_down,
        *UPDATES,
        *("needrestart", "rank"),
    }
    assert found["model files"].verdict == "unknown"
    assert "policy0 performance" in found["governor"].found
    assert WATCHDOG not in found["cron lines"].found


def test_a_host_that_cannot_be_read_is_unknown_in_every_line(lab: Stack, dsf: Stack) -> None:
    state = unread("cannot be reached")
    found = items(state, lab, (lab, dsf))
    assert {item.verdict for item in found} == {"unknown"}


def governor(snapshot: Snapshot) -> None:
    snapshot["cpufreq"]["policies"]["policy1"]["governor"] = "performance"


def boot_unit(snapshot: Snapshot) -> None:
    snapshot["services"]["units"][cpufreq.UNIT] = unit(cpufreq.UNIT, "inactive", "disabled")


def changed_unit(snapshot: Snapshot) -> None:
    snapshot["files"][cpufreq.UNIT_PATH] = file_of("[Service]\n", 0o644)


def socket(snapshot: Snapshot) -> None:
    snapshot["services"]["triggers"]["cups.socket"] = unit("cups.socket", "active", "enabled")


def update(snapshot: Snapshot) -> None:
    snapshot["services"]["units"]["apt-daily-upgrade.timer"] = unit(
        "apt-daily-upgrade.timer", "active", "enabled"
    )


def miner(snapshot: Snapshot) -> None:
    one = {"user": "nvidia", "name": "localsearch-3.service", "masked": False, "active": "active"}
    snapshot["userunits"]["units"] = [one, one | {"user": "root", "masked": True}]


def restarts(snapshot: Snapshot) -> None:
    snapshot["files"][maintenance.NEEDRESTART] = None


def override(snapshot: Snapshot) -> None:
    snapshot["boot"]["override"] = "systemd.unit=graphical.target"


def cable(snapshot: Snapshot) -> None:
    snapshot["fabric"]["interfaces"][PORTS[1]]["carrier"] = False


def member(snapshot: Snapshot) -> None:
    snapshot["fabric"]["bonds"]["bond0"] = bond_text({PORTS[0]: "up", PORTS[1]: "down"})


def frames(snapshot: Snapshot) -> None:
    snapshot["fabric"]["interfaces"][PORTS[1]]["mtu"] = 1500


def document(snapshot: Snapshot) -> None:
    snapshot["fabric"]["netplan"][PATH]["mode"] = 0o644


def route(snapshot: Snapshot) -> None:
    snapshot["fabric"]["default_interfaces"] = ["bond0"]


def small(snapshot: Snapshot) -> None:
    snapshot["memory"]["meminfo_kib"]["MemTotal"] = 100000


def gid(snapshot: Snapshot) -> None:
    del snapshot["fabric"]["rdma"]["rocep1s0f0"]["gids"]["1"]


def device(snapshot: Snapshot) -> None:
    snapshot["fabric"]["rdma"]["rocep1s0f0"]["state"] = "1: DOWN"


def segment(snapshot: Snapshot) -> None:
    snapshot["memory"]["shm"] = [{"name": "psm_x", "bytes": 5 << 20, "verdict": "leftover"}]


def image(snapshot: Snapshot) -> None:
    snapshot["images"] = dict.fromkeys(snapshot["images"])


def shards(snapshot: Snapshot) -> None:
    snapshot["shards"] = dict.fromkeys(snapshot["shards"], "changed")


def stranger(snapshot: Snapshot) -> None:
    snapshot["containers"]["containers"] = [container("ollama", "ollama/ollama", {})]


def watchdog(snapshot: Snapshot) -> None:
    snapshot["crontab"]["users"]["root"] |= table_of(WATCHDOG + "\n")


def timer(snapshot: Snapshot) -> None:
    snapshot["starters"]["units"] = [
        {
            **{"scope": "milo", "uid": 1000, "name": "up.service", "path": "/home/milo/x"},
            **{"weight": "starts", "direct": True, "scripts": [], "active": "inactive"},
            **{"file_state": "enabled", "wanted_by": [], "triggers": [], "held": False},
        }
    ]


def at_job(snapshot: Snapshot) -> None:
    snapshot["starters"]["at_jobs"] = [{"number": 3, "uid": 0, "when_s": 1796000000}]


def port_taken(snapshot: Snapshot) -> None:
    snapshot["listeners"]["listeners"] = [listener(8888)]


def trains(snapshot: Snapshot) -> None:
    one = {"name": "python3", "pid": 77, "user": "milo", "unit": "", "user_unit": ""}
    snapshot["outside"]["programs"] = [one | {"signs": ["has the GPU open"]}]


def swappiness(snapshot: Snapshot) -> None:
    snapshot["sysctl"]["values"]["vm.swappiness"] = "60"


def late_file(snapshot: Snapshot) -> None:
    path = "/etc/sysctl.d/zzz-mine.conf"
    snapshot["sysctl"]["files"] = [{"path": path, "values": {"vm.swappiness": "10"}}]


def own_sysctls(snapshot: Snapshot) -> None:
    snapshot["files"][sysctl.PATH] = file_of("vm.swappiness = 0\n", 0o644)


def logind_live(snapshot: Snapshot) -> None:
    snapshot["logind"]["remove_ipc"] = True


def earlyoom(snapshot: Snapshot) -> None:
    argv = ["-M", str(1450 * 1024)]
    found = {"name": "earlyoom", "pid": 7, "argv": argv, "text": None, "state": None}
    snapshot["oom"]["killers"] = [found | {"file": "/etc/default/earlyoom"}]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (governor, {"governor"}),
        (boot_unit, {"governor at boot"}),
        (changed_unit, {"governor at boot"}),
        (socket, {"cups.service"}),
        (override, {"boots into"}),
        (update, {"apt-daily-upgrade.timer"}),
        (restarts, {"needrestart"}),
        (miner, {"user unit localsearch-3.service"}),
        (cable, {f"link {PORTS[1]}"}),
        (member, {f"link {PORTS[1]}"}),
        (frames, {"fabric"}),
        (document, {"fabric"}),
        (route, {"fabric"}),
        (small, {"memory"}),
        (gid, {"RDMA"}),
        (device, {"RDMA"}),
        (segment, {"shared memory"}),
        (swappiness, {"sysctl vm.swappiness"}),
        (late_file, {"sysctl vm.swappiness"}),
        (own_sysctls, {"sysctl at boot"}),
        (logind_live, {"RemoveIPC of logind"}),
        (earlyoom, {"OOM killers"}),
        (image, {"image"}),
        (port_taken, {"ports", "other programs"}),
        (trains, {"other programs"}),
        (shards, {"model files"}),
        (stranger, {"other containers"}),
        (watchdog, {"cron lines"}),
        (timer, {"user units"}),
        (at_job, {"at jobs"}),
    ],
)
def test_one_drift_is_one_line(
    look: LookAt, lab: Stack, dsf: Stack, change: Callable[[Snapshot], None], names: set[str]
) -> None:
    snapshot = bare(cluster(), 0, lab, dsf)
    change(snapshot)
    found = look(snapshot)
    assert {name for name, item in found.items() if item.verdict != "ok"} == names
    assert {found[name].verdict for name in names} == {"drift"}


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("boot", {"boots into", "kernel"}),
        ("program", {"on-host program"}),
        ("services", {"governor at boot", "other governor owners", *SERVICES}),
        ("maintenance", {"needrestart"}),
        ("userunits", {f"user unit {name}" for name in shipped().user_units_down}),
        ("cpufreq", {"governor", "other governor owners"}),
        ("files", {"governor at boot", "sysctl at boot", "needrestart"}),
        ("fabric", {"fabric", *(f"link {port}" for port in PORTS)}),
        (
            "memory",
            {"memory", "memory outside of docker", "shared memory", "OOM killers", "kernel"},
        ),
        ("holders", {"memory outside of docker"}),
        ("sysctl", {"sysctl vm.swappiness"}),
        ("logind", {"RemoveIPC of logind"}),
        ("oom", {"OOM killers"}),
        ("listeners", {"ports"}),
        ("images", {"image"}),
        ("shards", {"model files"}),
        ("containers", {"other containers", "restart policies", "rank"}),
        ("crontab", {"cron lines"}),
        (
            "starters",
            {"cron folders", "network hooks", "at jobs", "system units", "user units"},
        ),
    ],
)
def test_a_part_that_was_not_read_is_unknown_and_never_ok(
    look: LookAt, lab: Stack, dsf: Stack, part: str, names: set[str]
) -> None:
    snapshot = bare(cluster(), 0, lab, dsf) | {part: {"unknown": "permission denied"}}
    found = look(snapshot)
    unknown = {name for name, item in found.items() if item.verdict == "unknown"}
    # A fabric that was not read has no line for its RDMA devices either.
    assert unknown == names
    assert all("permission denied" in found[n].found for n in names - {"governor at boot"})


def test_memory_that_no_teardown_gives_back_is_on_the_page(
    look: LookAt, lab: Stack, dsf: Stack
) -> None:
    snapshot = bare(cluster(), 0, lab, dsf)
    ollama = {"name": "ollama", "pid": 7, "user": "root", "unit": "ollama.service"}
    ollama |= {"user_unit": "", "screen": False, "mib": 300, "gpu_mib": 1000}
    snapshot["holders"] |= {"programs": [ollama], "gpu_unread": "no answer in 10 s"}
    item = look(snapshot)["memory outside of docker"]
    told = "1090 MiB (ollama.service (pid 7 of root) 1000 MiB); GPU not read: no answer in 10 s"
    assert (item.wanted, item.found, item.verdict) == ("leaves 200 MiB", told, "unknown")
    snapshot["holders"]["gpu_unread"] = None
    assert look(snapshot)["memory outside of docker"].verdict == "ok"
    ollama["gpu_mib"] = 1300
    assert look(snapshot)["memory outside of docker"].verdict == "drift"


def test_a_member_that_is_down_with_its_cable_in_is_told_apart(
    look: LookAt, lab: Stack, dsf: Stack
) -> None:
    snapshot = bare(cluster(), 0, lab, dsf)
    member(snapshot)
    found = look(snapshot)
    assert found[f"link {PORTS[0]}"].found == "up, active in bond0"
    assert found[f"link {PORTS[1]}"].found == "up, down in bond0"


def test_absent_services_are_fine(look: LookAt, lab: Stack, dsf: Stack) -> None:
    """Field case B09: a host without ModemManager and gnome-remote-desktop."""
    snapshot = bare(cluster(), 0, lab, dsf)
    for name in ("ModemManager.service", "gnome-remote-desktop.service"):
        snapshot["services"]["units"][name] = absent_unit(name)
    found = look(snapshot)
    assert (found["ModemManager.service"].verdict, found["ModemManager.service"].found) == (
        "ok",
        "absent",
    )


def test_a_host_without_policies_or_sensors_or_gpu_is_unsupported_there(
    look: LookAt, lab: Stack, dsf: Stack
) -> None:
    none: dict[str, Any] = {"gpus": None, "zones": [], "hwmon": [], "clocks": {}}
    snapshot = bare(cluster(), 0, lab, dsf) | {"machine": MACHINE | none}
    snapshot["cpufreq"]["policies"] = {}
    snapshot["fabric"]["rdma"] = {}
    found = look(snapshot)
    assert {n for n, i in found.items() if i.verdict == "unsupported"} == {
        *("governor", "governor at boot", "other governor owners"),
        *("RDMA", "temperature", "CPU clock", "GPU"),
    }


def test_what_a_kernel_or_a_host_lacks_is_unsupported(look: LookAt, lab: Stack, dsf: Stack) -> None:
    snapshot = bare(cluster(), 0, lab, dsf) | {"logind": {"absent": True}}
    snapshot["sysctl"]["values"]["vm.swappiness"] = None
    found = look(snapshot)
    assert {n for n, i in found.items() if i.verdict == "unsupported"} == {
        *("sysctl vm.swappiness", "RemoveIPC of logind")
    }


def test_an_offline_policy_is_said(look: LookAt, lab: Stack, dsf: Stack) -> None:
    """Field case C05."""
    snapshot = bare(cluster(), 0, lab, dsf)
    snapshot["cpufreq"]["policies"]["policy1"] |= {"governor": None, "online_cpus": ""}
    found = look(snapshot)["governor"]
    assert (found.verdict, found.found) == ("ok", "schedutil on 1 policies, policy1 offline")


def test_the_owners_own_stack_has_its_watchdogs_back(lab: Stack, dsf: Stack) -> None:
    """After rollback_dsf, looked at with --data stack=dsf-lab."""
    snapshot = bare(cluster(), 0, lab, dsf) | {"machine": MACHINE}

    def lines() -> Finding:
        state = state_of(snapshot)
        found = items(state, dsf, (lab, dsf))
        return next(item for item in found if item.name == "cron lines")

    assert (lines().verdict, lines().wanted) == ("drift", "none held")
    watchdog(snapshot)
    assert lines().verdict == "ok"


def test_an_unlocked_stack_cannot_be_told(tmp_path: Path, lab: Stack, dsf: Stack) -> None:
    unlocked = lab.model_copy(update={"lock": None})
    state = state_of(bare(cluster(), 0, lab, dsf) | {"machine": MACHINE})
    found = {i.name: i for i in items(state, unlocked, ())}
    assert (found["image"].verdict, found["model files"].verdict) == ("unknown", "unknown")


def test_what_lies_beside_a_model_is_told_with_its_size_and_is_no_drift(
    look: Callable[[Snapshot], dict[str, Finding]], lab: Stack, dsf: Stack
) -> None:
    left = [
        {"what": "unfinished download", "path": "/m/blobs/abc.incomplete", "bytes": 3 << 30},
        {"what": "ref to 0123456789ab", "path": "/m/refs/main", "bytes": 0},
    ]
    snapshot = bare(cluster(), 0, lab, dsf)
    assert "beside the model" not in look(snapshot)
    item = look(snapshot | {"leftovers": {"/srv/models/lab": left}})["beside the model"]
    assert item.verdict == "ok"
    assert item.found == ("unfinished download abc.incomplete, 3.00 GiB; ref to 0123456789ab main")
    odd = look(snapshot | {"leftovers": {"unknown": "OSError"}})["beside the model"]
    assert odd.verdict == "unknown"


# The machine


def gpu_line(**answers: str) -> Finding:
    row = MACHINE["gpus"][0] | {name.replace("__", "."): text for name, text in answers.items()}
    (line,) = graphics(parse(MACHINE | {"gpus": [row]}))
    return line


def test_f07_gpu_answers_that_are_not_available_are_no_error() -> None:
    """Field case F07: GB10 says [N/A] for some fields."""
    line = gpu_line(temperature__gpu="[N/A]", clocks__sm="Not Supported", driver_version="")
    assert line.found == "NVIDIA GB10 N/A, N/A, memory of the host"
    assert line.verdict == "ok"
    assert gpu_line(clocks_event_reasons__active="[N/A]").verdict == "unsupported"


@pytest.mark.parametrize(
    ("bits", "verdict"), [("0x1", "ok"), ("0x20", "drift"), ("0x41", "drift"), ("0x4", "drift")]
)
def test_a_gpu_that_slows_down_is_a_drift_and_an_idle_one_is_not(bits: str, verdict: str) -> None:
    assert gpu_line(clocks_event_reasons__active=bits).verdict == verdict


def test_a_gpu_tool_that_fails_is_unknown() -> None:
    (line,) = graphics(parse(MACHINE | {"gpus": {"unread": "couldn't communicate"}}))
    assert (line.verdict, line.found) == ("unknown", "couldn't communicate")


def test_nothing_of_a_gpu_row_has_to_be_there() -> None:
    assert gpu({}).driver is None


def test_of_sensors_that_share_a_name_the_hottest_counts() -> None:
    found: Machine = parse(MACHINE)
    line = heat(hottest(found.sensors)[0])
    assert line is not None
    assert (line.name, line.wanted, line.found) == ("acpitz", "below 104 °C", "62 °C")


def test_a_sensor_at_its_limit_is_a_drift_and_one_without_a_figure_says_nothing() -> None:
    hot = heat(Sensor("acpitz", 104.0, 104.0))
    assert hot is not None
    assert hot.verdict == "drift"
    assert heat(Sensor("acpitz", None, 104.0)) is None


def test_a_cap_on_the_cpu_clock_is_told(look: LookAt, lab: Stack, dsf: Stack) -> None:
    found = look(bare(cluster(), 0, lab, dsf))["CPU clock"]
    assert found.found == "2808 MHz, capped at 3300"

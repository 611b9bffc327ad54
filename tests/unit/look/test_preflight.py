"""Everything that forbids a job, on every host, said at once."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from facts.state import HostState, state_of
from inventory.host_settings import shipped
from operations.look.parts import must_be_read
from operations.look.preflight import complaints
from operations.run.findings import Look
from stacks.definition import Stack, load
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import (
    Snapshot,
    cluster,
    cluster_data,
    container,
    dirty,
    locked,
    running,
)

GRAFANA = container("grafana", "grafana/grafana:12", {})


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stack, Stack]:
    folder: Path = tmp_path_factory.mktemp("locks")
    return locked("lab", folder), locked("dsf-lab", folder)


@pytest.fixture
def pair(stacks: tuple[Stack, Stack]) -> list[Snapshot]:
    return [dirty(cluster(), rank, *stacks) for rank in range(2)]


def said(
    stacks: tuple[Stack, Stack],
    pair: list[Snapshot],
    launches: bool = True,
    stack: Stack | None = None,
    **changes: Any,
) -> list[str]:
    job = made_job(cluster(**changes), pair, stack or stacks[0], (*stacks,))
    job.launches = launches
    return complaints(job)


def test_a_dirty_pair_is_no_reason_to_refuse(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    assert said(stacks, pair) == said(stacks, pair, launches=False) == []


def test_what_forbids_a_host_is_said_for_every_host_in_one_go(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["containers"]["containers"].append(GRAFANA)
    pair[0]["fabric"]["default_interfaces"] = ["enp1s0f0np0"]
    pair[1]["containers"] = {"unknown": "Failed: Cannot connect to the Docker daemon"}
    pair[1]["cpufreq"]["policies"]["policy1"]["offered"] = ["performance", "powersave"]
    found = said(stacks, pair)
    assert [line.split(":")[0] for line in found] == ["spark1", "spark1", "spark2", "spark2"]
    assert "default route goes over the fabric" in found[0]
    assert "grafana of no known stack runs" in found[1]
    assert found[2].endswith("containers unknown (Failed: Cannot connect to the Docker daemon)")
    assert found[3] == "spark2: policy1 offers performance powersave, not schedutil"


def test_strangers_may_be_stopped_where_the_owner_says_so(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[1]["containers"]["containers"].append(GRAFANA)
    assert len(said(stacks, pair)) == 1
    assert said(stacks, pair, policy={"foreign_containers": "stop"}) == []
    assert said(stacks, pair, launches=False) == []


def test_what_podman_runs_is_named_and_an_engine_of_it_never_passes(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    engine = {"name": "dsf-lab-engine_1", "image": "localhost/x", "user": "milo", "signs": []}
    exporter = {"name": "exporter", "image": "", "user": "root", "signs": []}
    pair[0]["containers"]["podman"] = [engine, exporter]
    refused = (
        "spark1: dsf-lab-engine_1 (podman of milo) is an engine (of stack dsf-lab), and only "
        "docker's are taken down from here; stop it: podman stop dsf-lab-engine_1 as milo"
    )
    first, second = said(stacks, pair)
    assert first == refused
    assert second.startswith("spark1: exporter (podman of root) of no known stack runs")
    assert said(stacks, pair, policy={"foreign_containers": "stop"}) == [refused]
    assert said(stacks, pair, launches=False) == []


def test_a_small_shared_memory_forbids_a_launch_only(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["memory"]["shm_kib"] = 16 * 1024
    (found,) = said(stacks, pair)
    assert found.startswith("spark1: /dev/shm holds 16 MiB at most, lab uses the host's and wants")
    assert said(stacks, pair, launches=False) == []


def test_memory_that_is_reserved_for_huge_pages_is_not_there_for_a_launch(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[1]["memory"]["meminfo_kib"] |= {"MemTotal": 250 * 1024, "Hugetlb": 60 * 1024}
    assert said(stacks, pair) == [
        "spark2: 250 MiB of memory in all, 60 of them reserved for huge pages, lab wants 200 MiB "
        "available; set vm.nr_hugepages to 0, and take it out of sysctl.d"
    ]
    pair[1]["memory"]["meminfo_kib"]["Hugetlb"] = 0
    assert said(stacks, pair) == []


def program(name: str, mib: float, **more: Any) -> dict[str, Any]:
    usual = {"user": "milo", "unit": "", "user_unit": "", "screen": False, "gpu_mib": 0}
    return {"name": name, "pid": 4711, "mib": mib, **usual, **more}


def test_programs_outside_of_docker_that_keep_the_memory_are_named_before_any_teardown(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    total = pair[1]["memory"]["meminfo_kib"]["MemTotal"] // 1024
    ollama = program("ollama", 500, unit="ollama.service", gpu_mib=total - 300, user="root")
    named = [ollama, program("python3 train.py", 80)]
    pair[1]["holders"] = {"programs": named, "rest_mib": 30, "gpu_unread": None}
    assert said(stacks, pair) == [
        f"spark2: at most 190 MiB could be available, lab wants 200 MiB: programs that run outside "
        f"of docker hold {total - 190} of {total} MiB; stop what you can do without: "
        f"ollama.service (pid 4711 of root) holds {total - 300} MiB: sudo systemctl stop "
        "ollama.service; python3 train.py (pid 4711 of milo) holds 80 MiB: sudo kill 4711"
    ]
    assert said(stacks, pair, launches=False) == []
    named[1]["mib"] = 70
    assert said(stacks, pair) == []


def test_nobody_is_told_to_stop_what_would_give_back_next_to_nothing(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    floor = stacks[0].memory.model_copy(update={"floor_mib": 112000})
    stack = stacks[0].model_copy(update={"memory": floor})
    for one in pair:
        one["memory"]["meminfo_kib"]["MemTotal"] = 122500 * 1024
    network = program("tailscaled", 60, unit="tailscaled.service")
    pair[0]["holders"]["programs"] = [program("llama", 30000), network]
    (found,) = said(stacks, pair, stack=stack)
    assert found.endswith("without: llama (pid 4711 of milo) holds 30000 MiB: sudo kill 4711")
    pair[0]["holders"]["programs"] = [program(f"part{n}", 60) for n in range(1000)]
    (found,) = said(stacks, pair, stack=stack)
    assert found.endswith("without: part0 (pid 4711 of milo) holds 60 MiB: sudo kill 4711")


def test_ranks_that_run_as_wanted_need_no_room_for_a_load(stacks: tuple[Stack, Stack]) -> None:
    pair = running(cluster(), *stacks)
    pair[1]["holders"]["programs"] = [program("llama", 10**6)]
    assert said(stacks, pair) == []
    pair[0]["containers"]["containers"] = []
    assert len(said(stacks, pair)) == 1


@pytest.mark.parametrize("more", [{"screen": True}, {"unit": "gdm.service"}])
def test_what_goes_with_the_desktop_is_no_reason_to_refuse(
    stacks: tuple[Stack, Stack], pair: list[Snapshot], more: dict[str, Any]
) -> None:
    small, large = program("bash", 40), program("gnome-shell", 10**6, **more)
    pair[0]["holders"] = {"programs": [large, small], "rest_mib": 30, "gpu_unread": None}
    assert said(stacks, pair) == []
    large.update(screen=False, unit="user.service")
    (found,) = said(stacks, pair)
    assert "user.service (pid 4711 of milo) holds 1000000 MiB" in found


@pytest.mark.parametrize(
    ("scope", "name", "more"),
    [
        ("system", "llm.service", {"unit": "llm.service"}),
        ("system", "llm@.service", {"unit": "llm@1.2.service"}),
        ("milo", "llm.service", {"user_unit": "llm.service"}),
    ],
)
def test_what_a_held_watchdog_runs_is_no_reason_to_refuse_where_the_hold_stops_it(
    stacks: tuple[Stack, Stack], pair: list[Snapshot], scope: str, name: str, more: dict[str, Any]
) -> None:
    one = {"scope": scope, "uid": 1000, "name": name, "path": f"/etc/systemd/system/{name}"}
    one |= {"weight": "starts", "direct": False, "scripts": ["/srv/llm.sh"], "active": "active"}
    one |= {"file_state": "enabled", "wanted_by": [], "triggers": [], "held": False}
    pair[0]["starters"]["units"] = [one]
    large = program("python3 -m vllm", 10**6, **more)
    pair[0]["holders"] = {"programs": [large], "rest_mib": 30, "gpu_unread": None}
    assert said(stacks, pair) == []
    one["direct"] = True  # an engine's own command is no container, and no hold stops it
    assert len(said(stacks, pair)) == 1
    one["direct"], large["user"] = False, "another"
    found = said(stacks, pair)
    assert len(found) == (scope != "system")
    assert all(one.endswith("systemctl --user stop llm.service as another") for one in found)


def test_a_holder_that_could_not_be_read_refuses_nothing(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["holders"] = {"programs": [{"odd": 1}], "rest_mib": 30, "gpu_unread": None}
    assert said(stacks, pair) == []


def test_what_a_job_must_have_read_are_parts_of_a_hosts_state() -> None:
    look = Look(cluster(), 0, (state_of({}),), None, (), shipped(), settles=True)
    parts = {one.name for one in fields(HostState)}
    assert must_be_read(replace(look, settles=False)) < must_be_read(look) < parts


@pytest.mark.parametrize("part", ["boot", "services", "cpufreq", "fabric", "memory", "crontab"])
def test_a_part_that_could_not_be_read_forbids_the_job(
    stacks: tuple[Stack, Stack], pair: list[Snapshot], part: str
) -> None:
    pair[1][part] = {"unknown": "no answer"}
    assert said(stacks, pair) == [f"spark2: {part} unknown (no answer)"]


def test_a_host_that_could_not_be_read_is_one_sentence(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[1] = {name: {"unknown": "python3: not found"} for name in pair[1]}
    assert said(stacks, pair) == ["spark2: its state could not be read (python3: not found)"]


def test_a_host_without_docker_is_not_a_daemon_that_is_down(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["containers"] = {"installed": False, "containers": []}
    assert said(stacks, pair) == ["spark1: docker is not installed"]


def test_no_frequency_scaling_is_no_reason_to_refuse(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["cpufreq"]["policies"] = {}
    assert said(stacks, pair) == []


def test_a_missing_model_directory_and_too_little_memory_forbid_a_launch_only(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["shards"]["/srv/models/lab"] = "absent"
    pair[1]["memory"]["meminfo_kib"]["MemTotal"] = 150 * 1024
    assert said(stacks, pair) == [
        "spark1: no model directory /srv/models/lab (model_dir in the owner's file)",
        "spark2: 150 MiB of memory in all, lab wants 200 MiB available",
    ]
    assert said(stacks, pair, launches=False) == []


def test_an_unlocked_stack_is_refused_beside_all_other_reasons(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    pair[0]["cpufreq"]["policies"]["policy0"]["offered"] = []
    unlocked = load("glm53-sglang-nvfp4")
    found = said(stacks, pair, stack=unlocked)
    assert any(line.startswith("unlocked: ") for line in found)
    assert "spark1: policy0 offers nothing, not schedutil" in found
    names_lock = [line for line in found if "glm53-sglang-nvfp4.lock.yaml" in line]
    assert len(names_lock) == len(unlocked.unlocked)
    assert not any("unlocked" in line for line in said(stacks, pair, False, stack=unlocked))


def test_ranks_that_differ_in_gid_are_refused_before_the_launch(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    second = dict(pair[0]["fabric"]["rdma"]["rocep1s0f0"])
    gids = second["gids"]
    pair[0]["fabric"]["rdma"]["roceP2p1s0f0"] = {"state": "4: ACTIVE", "gids": {"7": gids["1"]}}
    (found,) = said(stacks, pair)
    assert found.startswith("spark1: GID indexes of 192.168.100.1 differ")


def test_a_host_that_is_gone_is_said_and_no_other_is_read(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    job = made_job(cluster(), pair, stacks[0], stacks)
    job.state.active_hosts.discard(job.hosts[1])
    assert complaints(job) == [
        "@fake/spark2: cannot be reached; nothing was changed on the other hosts"
    ]
    assert not any(" snapshot " in c for c in commands(job.hosts[0]))


def test_a_host_left_out_by_limit_is_said(
    stacks: tuple[Stack, Stack], pair: list[Snapshot]
) -> None:
    job = made_job(cluster(), pair, stacks[0], stacks)
    job.state.limit_hosts = [job.hosts[0]]
    (found,) = complaints(job)
    assert found.startswith("@fake/spark2: left out by --limit or --exclude")


def test_every_host_is_read_once(stacks: tuple[Stack, Stack], pair: list[Snapshot]) -> None:
    job = made_job(cluster(), pair, stacks[0], stacks)
    complaints(job)
    complaints(job)
    for host in job.hosts:
        assert sum(" snapshot " in c for c in commands(host)) == 1


def test_the_made_owners_file_is_one_that_the_schema_takes() -> None:
    assert cluster(8).nodes[7].fabric_address == cluster_data(8)["workers"][6]["fabric_address"]

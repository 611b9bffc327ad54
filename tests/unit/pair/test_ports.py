"""Ports of a stack: who holds one, and whether chance may (field case H05)."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from facts.network.listeners import parse
from facts.state import HostState, state_of
from inventory.host_settings import shipped
from operations.pair import ports
from operations.run.findings import Finding, Look
from stacks.definition import Stack
from tests.plan.made_pair import Snapshot, bare, cluster, container, listener, locked, old_rank
from tests.unit.on_host import module

listeners, places = module("network.listeners"), module("run.places")
PROXY = {"process": "docker-proxy", "pid": 900, "container": None}


@pytest.fixture
def lab(tmp_path: Path) -> Stack:
    return locked("lab", tmp_path)


@pytest.fixture
def dsf(tmp_path: Path) -> Stack:
    return locked("dsf-lab", tmp_path)


@pytest.fixture
def host(lab: Stack, dsf: Stack) -> Snapshot:
    return bare(cluster(), 0, lab, dsf)


def listening(host: Snapshot, port: int, **words: Any) -> None:
    host["listeners"]["listeners"].append(listener(port, **words))


def refusals(host: Snapshot, lab: Stack, dsf: Stack, rank: int = 0, **changes: Any) -> list[str]:
    return ports.refusals(cluster(**changes), rank, state_of(host), lab, (lab, dsf))


def line(state: HostState, lab: Stack, dsf: Stack) -> Finding:
    """The page's line."""
    look = Look(cluster(), 0, (state,), lab, (lab, dsf), shipped())
    return next(found for found in ports.assess(look) if found.name)


def test_a_listener_of_this_machine_is_found_with_its_process() -> None:
    with socket.socket() as one, socket.socket(socket.AF_INET6) as six, socket.socket() as idle:
        for open_here, address in ((one, "127.0.0.1"), (six, "::1"), (idle, "127.0.0.1")):
            open_here.bind((address, 0))
        one.listen()
        six.listen()
        names = [s.getsockname()[1] for s in (one, six, idle)]
        found = listeners.section({"ports": names})["listeners"]
    mine = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert {(f["port"], f["process"], f["pid"]) for f in found} == {
        (names[0], mine, os.getpid()),
        (names[1], mine, os.getpid()),
    }
    assert parse({"listeners": found}).all[0].container is None


def test_no_process_is_looked_at_while_the_ports_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "holders", None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert listeners.section({"ports": [free.getsockname()[1]]}) == {"listeners": []}


@pytest.mark.parametrize(
    "group", ["0::/system.slice/docker-{}.scope", "12:memory:/docker/{}\n0::/docker/{}"]
)
def test_a_container_is_known_by_its_control_group(group: str) -> None:
    found = places.CONTAINER.search(group.replace("{}", "ab" * 32))
    assert found[1] == "ab" * 32
    assert places.CONTAINER.search("0::/system.slice/docker.service") is None


def test_h05_a_leftover_process_is_named_with_pid_and_what_the_port_is_for(
    host: Snapshot, lab: Stack, dsf: Stack
) -> None:
    listening(host, 25000)
    listening(host, 25000)  # for IPv6
    assert refusals(host, lab, dsf) == [
        "port 25000 (rendezvous of lab) is held by python3 (pid 4711 of milo); end that, or "
        "give one of the two another port"
    ]


def test_only_the_head_needs_them(host: Snapshot, lab: Stack, dsf: Stack) -> None:
    listening(host, 8888)
    assert refusals(host, lab, dsf, rank=1) == []
    assert len(refusals(host, lab, dsf)) == 1


def test_other_ports_are_nobodys_business(host: Snapshot, lab: Stack, dsf: Stack) -> None:
    listening(host, 22)
    assert refusals(host, lab, dsf) == []


def test_a_socket_of_the_kernels_own_is_said_so(host: Snapshot, lab: Stack, dsf: Stack) -> None:
    listening(host, 8888, process=None, pid=None)
    (said,) = refusals(host, lab, dsf)
    assert "held by the kernel (no process has the socket)" in said


def test_engines_of_known_stacks_are_taken_down_by_the_launch(
    host: Snapshot, lab: Stack, dsf: Stack
) -> None:
    old = old_rank(dsf) | {"Published": [25000]}
    host["containers"]["containers"] = [old]
    listening(host, 8888, container=old["Id"])
    listening(host, 25000, **PROXY)
    assert refusals(host, lab, dsf) == []
    found = line(state_of(host), lab, dsf)
    assert found.verdict == "ok"
    assert "8888 container dsf-lab-engine-1" in found.found


def test_a_container_of_no_known_stack_is_in_the_way_unless_it_may_be_stopped(
    host: Snapshot, lab: Stack, dsf: Stack
) -> None:
    other = container("grafana", "grafana/grafana:12", {}) | {"Published": [8888]}
    host["containers"]["containers"] = [other]
    listening(host, 8888, **PROXY)
    (said,) = refusals(host, lab, dsf)
    assert "port 8888 (API of lab) is held by container grafana" in said
    assert refusals(host, lab, dsf, policy={"foreign_containers": "stop"}) == []


def test_a_proxy_of_no_container_that_runs_is_named_as_it_is(
    host: Snapshot, lab: Stack, dsf: Stack
) -> None:
    listening(host, 8888, **PROXY)
    (said,) = refusals(host, lab, dsf)
    assert "docker-proxy (pid 900 of milo)" in said


@pytest.mark.parametrize(
    ("limits", "reserved", "ports_said"),
    [
        ("32768 60999", "", []),
        ("10000 61000", "", [25000]),
        ("1024 65535", "", [8888, 25000]),
        ("1024 65535", "8888,25000-25010", []),
        ("1024 65535", "8880-8889", [25000]),
        (None, "", []),
        ("odd", "", []),
    ],
)
def test_h05_ports_that_chance_may_take_are_advised_to_be_reserved(
    host: Snapshot, lab: Stack, limits: str | None, reserved: str, ports_said: list[int]
) -> None:
    host["sysctl"]["values"] |= {ports.RANGE: limits, ports.RESERVED: reserved}
    said = ports.by_chance(0, state_of(host), lab)
    assert [int(line.split()[1]) for line in said] == ports_said
    assert all(line.endswith(f"add it to {ports.RESERVED}") for line in said)
    assert ports.by_chance(1, state_of(host), lab) == []


def test_what_could_not_be_read_is_unknown(host: Snapshot, lab: Stack, dsf: Stack) -> None:
    state = state_of(host | {"listeners": {"unknown": "permission denied"}})
    assert line(state, lab, dsf).verdict == "unknown"

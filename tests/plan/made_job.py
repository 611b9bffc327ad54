"""A Job over @fake hosts of pyinfra's own API, for tests of what decides across hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.connectors.fake import FakeConnector

from facts.run.program import END
from facts.snapshot import Ask, Reader
from inventory.hosts import fail_percent, groups
from inventory.schema import Cluster
from operations.run.job import Job
from stacks.definition import Stack
from tests.plan.made_pair import Snapshot


def made_job(
    cluster: Cluster,
    snapshots: list[Snapshot],
    stack: Stack | None,
    known: tuple[Stack, ...],
    name: str = "serve",
    responses: Mapping[int, Mapping[str, Any]] | None = None,
) -> Job:
    """A run of `name` over connected hosts that answer with these snapshots.

    responses: rank -> part of a command -> what @fake answers to it, before the snapshot.
    """
    made = groups(cluster, connector="@fake/")
    hosts: list[tuple[str, dict[str, Any]]] = [*made.head, *made.workers]
    for rank, ((_, data), snapshot) in enumerate(zip(hosts, snapshots, strict=True)):
        data |= {"fake_delay": 0, "fake_delay_jitter": 0}
        data["fake_responses"] = {
            **(responses or {}).get(rank, {}),
            " snapshot ": [json.dumps(snapshot), END],
        }
    inventory = Inventory((hosts, {}))  # type: ignore[no-untyped-call]
    state = State(inventory, Config(FAIL_PERCENT=fail_percent(cluster)))  # type: ignore[no-untyped-call]
    connect_all(state)
    ranked = tuple(inventory.get_host(host_name) for host_name, _ in hosts)
    return Job(
        name, cluster, stack, known, ranked, Reader(Ask()),
        settles=name in ("serve", "prepare"), launches=name in ("serve", "rollback_dsf"),
    )  # fmt: skip


def commands(host: Host) -> list[str]:
    """Every command line that the host was given."""
    assert isinstance(host.connector, FakeConnector)
    return host.connector.executed_commands

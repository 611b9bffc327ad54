"""From a cluster to what pyinfra calls hosts and groups."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from inventory.schema import Cluster, InventoryError, Node, load

Host = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Groups:
    """Hosts of the groups `head` and `workers`, each (pyinfra's name, data)."""

    head: list[Host]
    workers: list[Host]


def groups(cluster: Cluster, connector: str = "") -> Groups:
    """The cluster's hosts for pyinfra, in rank order.

    Names are those of the nodes; the control machine's own is `@local`. `connector` goes before
    every name (`@fake/` for plan tests, which connect to nothing).
    """
    head, *workers = [_host(cluster, node, connector) for node in cluster.nodes]
    return Groups([head], workers)


def fail_percent(cluster: Cluster) -> int:
    """The FAIL_PERCENT that lets all hosts but one fail to connect.

    pyinfra would end such a run before the deploy is loaded, and with it the barrier of this
    project that refuses, takes the other rank down and says why.
    """
    count = len(cluster.nodes)
    return math.ceil(100 * (count - 1) / count)


def refuse_unordered() -> None:
    """Exit when pyinfra was told to give up the order between hosts, which a launch lives by."""
    context = click.get_current_context(silent=True)
    given = context.params if context else {}
    flags = [f"--{name.replace('_', '-')}" for name in ("serial", "no_wait") if given.get(name)]
    if flags:
        told = f"{' '.join(flags)} found; the ranks are started and stopped in step on all hosts: "
        print(told + "run it without", file=sys.stderr)
        raise SystemExit(1)


def load_or_exit(path: Path, overrides: Mapping[str, str] | None = None) -> Cluster:
    """The cluster of `path`; on mistakes their lines on standard error and exit status 1."""
    refuse_unordered()
    # Its tracebacks for a dropped greeting or a closed port; pyinfra and the jobs say it in a line.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
    try:
        return load(path, overrides)
    except InventoryError as error:
        print(*error.lines, sep="\n", file=sys.stderr)
        raise SystemExit(1) from None


def _host(cluster: Cluster, node: Node, connector: str) -> Host:
    data: dict[str, Any] = {
        "cluster": cluster,
        "node": node,
        "rank": node.rank,
        "stack": cluster.stack,
        "rollback_stack": cluster.rollback_stack,
    }
    if connector:
        return f"{connector}{node.name}", data
    if node.is_local:
        return "@local", data | {"_sudo": os.geteuid() != 0}
    ssh = cluster.ssh
    data |= {"ssh_hostname": node.address, "ssh_user": ssh.user}
    if ssh.user != "root":
        data["_sudo"] = True
    # A port that the owner did not write is left to the ssh_config, which may have its own.
    if "port" in ssh.model_fields_set:
        data["ssh_port"] = ssh.port
    if ssh.key:
        data["ssh_key"] = ssh.key
    if ssh.config_file:
        data["ssh_config_file"] = ssh.config_file
    return node.name, data

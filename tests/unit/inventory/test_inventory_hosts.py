"""Clusters as pyinfra's hosts, and the inventory files as pyinfra runs them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inventory.hosts import fail_percent, groups
from inventory.schema import Cluster

ROOT = Path(__file__).resolve().parents[3]


def cluster(*, workers: int = 1, **changes: Any) -> Cluster:
    """A cluster of 1 + `workers` hosts with `changes` to its top-level keys."""
    data: dict[str, Any] = {
        "ssh": {"user": "milo"},
        "head": {"name": "spark1", "address": "192.0.2.11", "fabric_address": "10.0.0.1"},
        "workers": [
            {
                "name": f"spark{rank + 1}",
                "address": f"192.0.2.{11 + rank}",
                "fabric_address": f"10.0.0.{1 + rank}",
            }
            for rank in range(1, workers + 1)
        ],
        "fabric": {"interfaces": ["enp1s0f0np0", "enp1s0f1np1"]},
        "stack": "lab",
        "model_dir": "/srv/models",
    }
    return Cluster.model_validate(data | changes)


def test_hosts_come_in_rank_order_with_what_the_connector_needs() -> None:
    made = groups(cluster(workers=3))
    assert [name for name, _ in made.head] == ["spark1"]
    assert [(name, data["rank"]) for name, data in made.workers] == [
        ("spark2", 1),
        ("spark3", 2),
        ("spark4", 3),
    ]
    data = made.workers[0][1]
    assert (data["ssh_hostname"], data["ssh_user"]) == ("192.0.2.12", "milo")
    assert data["_sudo"] is True
    assert data["node"].name == "spark2"
    assert (data["stack"], data["rollback_stack"]) == ("lab", None)


def test_a_port_that_the_owner_did_not_write_is_left_to_ssh_config() -> None:
    assert "ssh_port" not in groups(cluster()).head[0][1]
    written = cluster(ssh={"user": "milo", "port": 2201})
    assert groups(written).head[0][1]["ssh_port"] == 2201


def test_ssh_files_are_handed_to_the_connector(tmp_path: Path) -> None:
    for name in ("key", "config"):
        (tmp_path / name).touch()
    key, config = str(tmp_path / "key"), str(tmp_path / "config")
    made = groups(cluster(ssh={"user": "milo", "key": key, "config_file": config}))
    data = made.head[0][1]
    assert (data["ssh_key"], data["ssh_config_file"]) == (key, config)


def test_root_needs_no_sudo() -> None:
    assert "_sudo" not in groups(cluster(ssh={"user": "root"})).head[0][1]


def test_this_machine_is_reached_without_ssh() -> None:
    head = {"name": "spark1", "address": "local", "fabric_address": "10.0.0.1"}
    name, data = groups(cluster(head=head)).head[0]
    assert name == "@local"
    assert not [key for key in data if key.startswith("ssh_")]
    assert data["_sudo"] is (os.geteuid() != 0)


def test_a_connector_replaces_every_way_to_a_host() -> None:
    head = {"name": "spark1", "address": "local", "fabric_address": "10.0.0.1"}
    made = groups(cluster(head=head), connector="@fake/")
    assert [made.head[0][0], made.workers[0][0]] == ["@fake/spark1", "@fake/spark2"]
    assert not [key for key in made.head[0][1] if key.startswith(("ssh_", "_sudo"))]


@pytest.mark.parametrize("workers", range(1, 8))
def test_all_hosts_but_one_may_fail_to_connect(workers: int) -> None:
    made = cluster(workers=workers)
    hosts = workers + 1
    limit = fail_percent(made)
    # pyinfra ends a run when (1 - active / all) * 100 > FAIL_PERCENT.
    assert (1 - 1 / hosts) * 100 <= limit < 100


@contextmanager
def listening() -> Iterator[tuple[int, list[object]]]:
    """A loopback port and the list of the connections that came in on it."""
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, peer = server.accept()
                except OSError:
                    return
                came.append(peer)
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], came


def run_pyinfra(inventory: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyinfra", str(ROOT / "inventory" / inventory), *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
        env=os.environ | {"PYINFRA_PROGRESS": "off"} | env,
    )


PAIR = """\
ssh: {{user: milo, port: {port}}}
head: {{name: spark1, address: 127.0.0.1, fabric_address: 10.0.0.1}}
workers:
  - {{name: spark2, address: {worker}, fabric_address: 10.0.0.2}}
fabric: {{interfaces: [{interfaces}], mtu: {mtu}}}
stack: {stack}
model_dir: {model_dir}
"""
RIGHT = {
    "worker": "localhost",
    "interfaces": "enp1s0f0np0, enp1s0f1np1",
    "mtu": "9000",
    "stack": "lab",
    "model_dir": "/srv/models",
}
WRONG = {
    "worker": "spark2.local",
    "interfaces": "enp1s0f0np0",
    "mtu": "90000",
    "stack": "glm",
    "model_dir": "models",
}


@pytest.mark.parametrize(("settings", "mistakes"), [(RIGHT, 0), (WRONG, 5)])
def test_five_mistakes_are_five_lines_and_no_connection(
    tmp_path: Path, settings: dict[str, str], mistakes: int
) -> None:
    path = tmp_path / "sparks.yaml"
    with listening() as (port, came):
        path.write_text(PAIR.format(port=port, **settings), encoding="utf-8")
        ran = run_pyinfra("sparks.py", "exec", "--", "true", SPARK_INVENTORY=str(path))
    # The right file shows that a connection would have been seen; nothing answers it there.
    assert (len(came) > 0) is (mistakes == 0)
    assert ran.returncode == 1
    # (paramiko itself logs a traceback of the refused greeting, so only the wrong file is asked.)
    assert not mistakes or "Traceback" not in ran.stderr
    lines = [line for line in ran.stderr.splitlines() if line.startswith(str(path))]
    assert len(lines) == mistakes


def test_the_shipped_inventory_has_only_the_groups_of_the_tool() -> None:
    ran = run_pyinfra("sparks.py", "debug-inventory", "--json")
    assert ran.returncode == 0
    hosts = json.loads(ran.stdout)
    assert [set(host["groups"]) for host in hosts] == [{"head", "sparks"}, {"workers", "sparks"}]


def test_without_a_running_lab_its_inventory_says_how_to_start_one(tmp_path: Path) -> None:
    ran = run_pyinfra("lab.py", "debug-inventory", SPARK_LAB_HOME=str(tmp_path))
    assert ran.returncode == 1
    said = ran.stderr.splitlines()[-1]
    assert said == f"no lab is running ({tmp_path}/ssh_config not found): python -m lab up"


def test_the_lab_inventory_takes_ssh_settings_and_locks_from_the_lab(tmp_path: Path) -> None:
    (tmp_path / "ssh_config").touch()
    ran = run_pyinfra("lab.py", "debug-inventory", "--json", SPARK_LAB_HOME=str(tmp_path))
    data = [host["data"] for host in json.loads(ran.stdout)]
    assert [host["ssh_config_file"] for host in data] == [f"{tmp_path}/ssh_config"] * 2
    assert data[0]["cluster"]["lock_dir"] == f"{tmp_path}/locks"

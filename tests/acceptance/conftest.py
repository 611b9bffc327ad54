"""Is the cluster as its owner's file says? Read-only; on the lab or on a real pair.

    pytest tests/acceptance --hosts=spark1,spark2 --sudo --cluster=inventory/sparks.yaml

What is expected comes from the owner's file, the stack and its lock, and files/host.yaml. What is
seen comes from commands run here, never from this project's own facts. `--hosts` takes the names
(or addresses) of the owner's file; `ssh://NAME` uses ssh with its shared connections and checks
host keys, a bare name uses paramiko.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import testinfra
import yaml
from testinfra.host import Host

from inventory.schema import Cluster, InventoryError, Node, load
from lab.common.paths import lab_home
from stacks import definition
from stacks.definition import Stack, StackError
from tests.acceptance.look import read

HOST_SETTINGS = Path(__file__).parents[2] / "files" / "host.yaml"

_CLUSTER = pytest.StashKey[Cluster]()
_STACK = pytest.StashKey[Stack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("spark-converge")
    group.addoption("--cluster", type=Path, help="the owner's file (inventory/sparks.yaml)")
    group.addoption(
        "--locks", type=Path, help="folder of lock files (default: files/stacks, or the lab's own)"
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--cluster", default=None)
    if path is None or not config.getoption("--hosts"):
        raise pytest.UsageError(
            "tests/acceptance needs --cluster=inventory/sparks.yaml (the owner's file) and "
            "--hosts=NAME,NAME (its hosts)"
        )
    try:
        cluster = load(path)
        locks = config.getoption("--locks") or _locks(cluster)
        config.stash[_CLUSTER] = cluster
        config.stash[_STACK] = definition.load(cluster.stack, locks)
    except (InventoryError, StackError) as error:
        raise pytest.UsageError(*error.lines) from None


def _locks(cluster: Cluster) -> Path | None:
    if cluster.lock_dir:
        return Path(cluster.lock_dir)
    return lab_home().locks if cluster.name == "lab" else None


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return request.config.stash[_CLUSTER]


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Stack:
    return request.config.stash[_STACK]


@pytest.fixture(scope="session")
def settings() -> dict[str, Any]:
    """What every host is brought to: boot_target, governor, services_down, maintenance_held."""
    return cast(dict[str, Any], yaml.safe_load(HOST_SETTINGS.read_text()))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "service" in metafunc.fixturenames:
        services = yaml.safe_load(HOST_SETTINGS.read_text())["services_down"]
        metafunc.parametrize("service", services)
    if "update" in metafunc.fixturenames:
        held = yaml.safe_load(HOST_SETTINGS.read_text())["maintenance_held"]
        metafunc.parametrize("update", held)


@pytest.fixture(scope="session")
def asked(request: pytest.FixtureRequest, cluster: Cluster) -> list[tuple[Node, Host]]:
    """The hosts of `--hosts` with the nodes they are, in rank order."""
    option = request.config.option
    # The same words as testinfra's own plugin, so that it hands out the same connections.
    hosts = testinfra.get_hosts(
        option.hosts.split(","),
        connection=option.connection,
        ssh_config=option.ssh_config,
        ssh_identity_file=option.ssh_identity_file,
        sudo=option.sudo,
        sudo_user=option.sudo_user,
        ansible_inventory=option.ansible_inventory,
        force_ansible=option.force_ansible,
    )
    return sorted(((node_of(one, cluster), one) for one in hosts), key=lambda pair: pair[0].rank)


@pytest.fixture
def pair(asked: list[tuple[Node, Host]], cluster: Cluster) -> list[tuple[Node, Host]]:
    """All hosts of the cluster; skips when --hosts leaves one out."""
    if len(asked) < len(cluster.nodes):
        pytest.skip("needs every host of the cluster in --hosts")
    return asked


@pytest.fixture
def head(asked: list[tuple[Node, Host]]) -> Host:
    """The host of rank 0; skips when --hosts leaves it out."""
    node, host = asked[0]
    if node.rank != 0:
        pytest.skip("needs the head in --hosts")
    return host


@pytest.fixture
def node(host: Host, cluster: Cluster) -> Node:
    """The entry of the owner's file for the host under test."""
    return node_of(host, cluster)


def node_of(host: Host, cluster: Cluster) -> Node:
    """By the name or address given in --hosts, else by the name that the host gives itself."""
    given = getattr(host.backend, "hostname", None)
    names = {given} & {name for node in cluster.nodes for name in (node.name, node.address)}
    name = given if names else read(host, "hostname -s").strip()
    for node in cluster.nodes:
        if name in (node.name, node.address):
            return node
    known = ", ".join(node.name for node in cluster.nodes)
    pytest.fail(f"{given or name} is no host of this cluster ({known})", pytrace=False)

"""The pair of seed 002, whose engine no stack file knows: left alone, taken over, brought back.

The owner's file names no rollback stack; nothing is written by hand.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.stacks import found
from tests.running_lab import HOSTS, INVENTORY, REPOSITORY, completion, job, lab, on, snapshots

pytestmark = pytest.mark.long

# New with every start, and where docker keeps what belongs to one id.
OF_ONE_START = {
    *("Created", "StartedAt", "FinishedAt", "Pid", "SandboxID", "SandboxKey", "EndpointID"),
    *("GraphDriver", "Storage"),
}
LINK = """
sha256sum /etc/netplan/*
ip -o addr show | awk '{print $2, $3, $4}' | grep -v ' fe80' | grep -v '^veth' | sort
ls /sys/class/net | grep -v '^veth'
cat /sys/class/net/enp1s0f0np0/mtu
"""


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    """The pair at `found`, and an owner's file for it without a rollback stack."""
    if "found" not in snapshots():
        lab("found")
    lab("restore", "found")
    shutil.copy(REPOSITORY / INVENTORY, tmp_path / "lab.py")
    data = yaml.safe_load((REPOSITORY / INVENTORY).with_suffix(".yaml").read_text())
    del data["rollback_stack"]
    # The engine names its one link (NCCL_SOCKET_IFNAME); as a member of a bond that would have no
    # address, and rollback_dsf refuses what cannot come up.
    data["fabric"] |= {"mode": "single", "interfaces": ["enp1s0f0np0"]}
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return str(tmp_path / "lab.py")


def running(host: str) -> list[str]:
    return sorted(on(host, "docker ps --format '{{.Names}}'").split())


def inspected(host: str) -> str:
    """`docker inspect` of the engine of `found`, as text."""
    return on(host, f"docker inspect {found.CONTAINERS[HOSTS.index(host)]}")


def but_for_ids_and_times(text: str) -> Any:
    (document,) = json.loads(text)
    whole = document["Id"]
    return without(json.loads(text.replace(whole, "ID").replace(whole[:12], "ID")))


def without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without(one) for key, one in value.items() if key not in OF_ONE_START}
    return [without(one) for one in value] if isinstance(value, list) else value


def crontab() -> str:
    return on("spark1", f"stat -c '%a %U %G' {found.CRONTAB}; sha256sum {found.CRONTAB}")


def test_found_is_the_pair_of_seed_002(inventory: str) -> None:
    assert [running(host) for host in HOSTS] == [[name] for name in found.CONTAINERS]
    assert "391" in completion(found.MODEL)
    head, worker = (json.loads(inspected(host))[0] for host in HOSTS)
    assert head["Config"]["Labels"]["com.docker.compose.project"] == "night-lane"
    assert not worker["Config"]["Labels"]
    for one in (head, worker):
        assert one["Config"]["Image"] == found.IMAGE
        assert one["Config"]["Cmd"][:2] == ["vllm", "serve"]
        assert one["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
        assert (one["HostConfig"]["NetworkMode"], one["HostConfig"]["IpcMode"]) == ("host", "host")
    for host in HOSTS:
        assert "lab-engine" not in on(host, "docker image ls --format '{{.Repository}}'")
        assert "bond0" not in on(host, "ls /sys/class/net")
    assert found.WATCHDOG in on("spark1", "crontab -l")


@pytest.mark.parametrize("deleted", [False, True], ids=["as found", "its files deleted"])
def test_the_unknown_engine_is_left_alone_taken_over_and_brought_back(
    deleted: bool, inventory: str, state_home: Path
) -> None:
    engines = {host: inspected(host) for host in HOSTS}
    links = {host: on(host, LINK) for host in HOSTS}
    cron = crontab()

    prepared = job("prepare", state_home, inventory=inventory)
    assert prepared.status == 0, prepared.text
    assert all(name in prepared.text for name in found.CONTAINERS), prepared.text
    assert {host: inspected(host) for host in HOSTS} == engines
    assert {host: on(host, LINK) for host in HOSTS} == links
    assert "391" in completion(found.MODEL)

    stopped = job("stop", state_home, inventory=inventory)
    assert stopped.status == 1, stopped.text
    assert all(name in stopped.text for name in found.CONTAINERS), stopped.text
    assert {host: inspected(host) for host in HOSTS} == engines

    forth = job("serve", state_home, inventory=inventory)
    assert forth.status == 0, forth.text
    assert "391" in completion("lab-model")
    assert [running(host) for host in HOSTS] == [["spark-lab-0"], ["spark-lab-1"]]
    if deleted:
        on("spark1", f"rm -r {found.DIRECTORY}")

    back = job("rollback_dsf", state_home, inventory=inventory)
    assert back.status == 0, back.text
    assert "391" in completion(found.MODEL)
    assert [running(host) for host in HOSTS] == [[name] for name in found.CONTAINERS]
    for host in HOSTS:
        now = but_for_ids_and_times(inspected(host))
        assert now == but_for_ids_and_times(engines[host]), host
    assert crontab() == cron

    again = job("serve", state_home, inventory=inventory)
    assert again.status == 0, again.text
    assert "391" in completion("lab-model")
    for title, run in (("serve", forth), ("rollback_dsf", back), ("serve again", again)):
        assert all(stage["seconds"] is not None for stage in run.receipt["stages"])
        print(f"{title}: {run.seconds:.0f} s")


def test_its_secret_reaches_neither_log_nor_receipt(inventory: str, state_home: Path) -> None:
    secret = on("spark1", f"sed -n 's/^API_TOKEN=//p' {found.DIRECTORY}/.env.lane").strip()
    assert secret
    served = job("serve", state_home, inventory=inventory)
    assert served.status == 0, served.text
    assert secret not in served.text
    assert served.folder is not None
    for path in served.folder.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path

"""The lab's pair for tests of the fabric: converged but for its links, nothing running, and owner's
files that want other links."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.running_lab import HOSTS, INVENTORY, REPOSITORY, lab, on, ran, remove_ranks

QUIET = "quiet"
_taken: list[str] = []  # by this run: one of an earlier run has an older program on its hosts
FABRIC = "Fabric as the owner's file says"
EVERYWHERE = [f"{FABRIC} on {host}" for host in HOSTS]
SPARK_HOST = "python3 -I /usr/local/lib/spark-converge/spark_host"


def restore_quiet(folder: Path, state_home: Path) -> None:
    """Both hosts converged but for the fabric, without any container or watchdog.

    folder: for the owner's file of the job that does it the first time
    """
    if _taken:
        lab("restore", QUIET)
        return
    lab("restore", "fresh")
    ran("prepare", state_home, inventory=owner(folder))  # the old engine serves: the fabric waits
    on(HOSTS[0], "crontab -r")
    remove_ranks()
    lab("snapshot", QUIET)
    _taken.append(QUIET)


def owner(folder: Path, policy: dict[str, str] | None = None, **fabric: Any) -> str:
    """Inventory of the lab with another fabric; rails get 192.168.101.0/24 as their second net.

    Its stack is an unlocked one, so that a job passes over images and model files.
    """
    folder.mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / INVENTORY, folder / "lab.py")
    data = yaml.safe_load((REPOSITORY / INVENTORY).with_suffix(".yaml").read_text())
    data["fabric"] |= fabric
    data["policy"] = policy or {}
    data["stack"] = "glm53-sglang-nvfp4"
    if fabric.get("mode") == "dual-rail":
        for number, node in enumerate((data["head"], *data["workers"]), start=1):
            node["rail2_address"] = f"192.168.101.{number}"
    (folder / "lab.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return str(folder / "lab.py")


def full_frames(address: str) -> None:
    """From the head, unfragmented."""
    on(HOSTS[0], f"ping -M do -s 8972 -c 3 -i 0.3 -W 3 -q {address}")

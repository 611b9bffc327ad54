"""The running lab for pyinfra: lab.yaml beside this file and the lab's SSH settings and locks."""

import os
import sys
from pathlib import Path

from pyinfra.context import config

# This project's modules, from whatever folder pyinfra is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from inventory.hosts import fail_percent, groups, load_or_exit

_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_home = Path(os.environ.get("SPARK_LAB_HOME") or _cache / "spark-converge" / "lab")
_ssh_config = _home / "ssh_config"
if not _ssh_config.is_file():
    print(f"no lab is running ({_ssh_config} not found): python -m lab up", file=sys.stderr)
    raise SystemExit(1)

_cluster = load_or_exit(
    Path(__file__).with_name("lab.yaml"),
    {"ssh.config_file": str(_ssh_config), "lock_dir": str(_home / "locks")},
)
_groups = groups(_cluster)

config.FAIL_PERCENT = fail_percent(_cluster)
head = _groups.head
workers = _groups.workers

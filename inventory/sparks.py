"""Your cluster for pyinfra, as sparks.yaml beside this file (or $SPARK_INVENTORY) describes it."""

import os
import sys
from pathlib import Path

from pyinfra.context import config

# This project's modules, from whatever folder pyinfra is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from inventory.hosts import fail_percent, groups, load_or_exit

# Names with an underscore: pyinfra takes every other list of this file for a group of hosts.
_path = Path(os.environ.get("SPARK_INVENTORY") or Path(__file__).with_name("sparks.yaml"))
_cluster = load_or_exit(_path)
_groups = groups(_cluster)

config.FAIL_PERCENT = fail_percent(_cluster)
head = _groups.head
workers = _groups.workers

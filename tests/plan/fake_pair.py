"""Inventory of @fake hosts: the shipped cluster, answering snapshots from $FAKE_STATES (JSON)."""

import json
import os
from pathlib import Path

from pyinfra.context import config

from facts.snapshot import END
from inventory.hosts import fail_percent, groups
from inventory.schema import load

_cluster = load(Path(os.environ["FAKE_CLUSTER"]))
_states = json.loads(Path(os.environ["FAKE_STATES"]).read_text())
_groups = groups(_cluster, connector="@fake/")
for _name, _data in [*_groups.head, *_groups.workers]:
    _data["fake_delay"] = _data["fake_delay_jitter"] = 0
    _data["fake_responses"] = {" snapshot ": [json.dumps(_states[_data["node"].name]), END]}

config.FAIL_PERCENT = fail_percent(_cluster)
head = _groups.head
workers = _groups.workers

"""Inventory of @fake hosts: the cluster of $FAKE_CLUSTER, answering snapshots from $FAKE_STATES.

What it has under "answers" (part of a command line -> answer of spark-host) is said by all hosts.
$FAKE_GONE names a host that does not answer: nothing listens on port 1 of the loopback.
"""

import json
import os
from pathlib import Path
from typing import Any

from pyinfra.context import config

from facts.run.program import END
from inventory.hosts import Host, fail_percent, groups
from inventory.schema import load

_cluster = load(Path(os.environ["FAKE_CLUSTER"]))
_states = json.loads(Path(os.environ["FAKE_STATES"]).read_text())
_groups = groups(_cluster, connector="@fake/")


def _faked(name: str, data: dict[str, Any]) -> Host:
    node = data["node"].name
    if node == os.environ.get("FAKE_GONE"):
        return node, data | {"ssh_hostname": "127.0.0.1", "ssh_port": 1}
    answers = {" snapshot ": _states[node], **_states["answers"]}
    said = {words: [json.dumps(answer), END] for words, answer in answers.items()}
    return name, data | {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": said}


config.FAIL_PERCENT = fail_percent(_cluster)
head = [_faked(*_host) for _host in _groups.head]
workers = [_faked(*_host) for _host in _groups.workers]

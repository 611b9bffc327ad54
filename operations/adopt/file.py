"""Where the stack `previous` lies on the control machine, and writing it whole."""

from __future__ import annotations

from pathlib import Path

import yaml

from inventory.schema import Cluster
from operations.run.start import receipts_folder
from stacks.definition import PREVIOUS, Stack, load_adopted

HEAD = """\
# What ran on {cluster} before, taken on by a run; deploys/rollback_dsf.py brings it back.
# Everything else about it (environments, arguments, files) is kept on the hosts themselves, in
# /var/lib/spark-converge/adopted. memory.floor_mib 1: no floor is known.
"""


def path_of(cluster: Cluster) -> Path:
    return receipts_folder() / "stacks" / cluster.name / f"{PREVIOUS}.yaml"


def read(cluster: Cluster) -> Stack | None:
    """None when nothing was taken on; raises StackError."""
    return load_adopted(path_of(cluster))


def text(cluster: Cluster, stack: Stack) -> str:
    plain = stack.model_dump(mode="json", exclude_defaults=True)
    plain["ports"] = stack.ports.model_dump()
    plain["log"] = stack.log.model_dump(mode="json")  # null is said: it was looked for
    return HEAD.format(cluster=cluster.name) + yaml.safe_dump(plain, sort_keys=False, width=100)


def write(cluster: Cluster, stack: Stack) -> Path:
    """Put the file in place at once, readable by its owner alone."""
    path = path_of(cluster)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.touch(mode=0o600)
    draft.write_text(text(cluster, stack), encoding="utf-8")
    draft.replace(path)
    return path

"""What the ranks of the shipped default stack run, word for word.

After a wanted change to the stack or its rendering, write the files anew and read the diff:

    python tests/unit/stacks/test_stacks_golden.py
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from inventory.schema import Cluster
from stacks import definition
from stacks.render import FabricFacts, RankSpec, check_pair, rank_spec

GOLDEN = Path(__file__).parent / "golden"
STACK = "glm53-sglang-nvfp4"
# The seeds' pair: bond0 of both functions of the ConnectX-7, 10.0.0.0/24.
PAIR = Cluster.model_validate(
    {
        "ssh": {"user": "milo"},
        "head": {"name": "spark1", "address": "192.0.2.11", "fabric_address": "10.0.0.1"},
        "workers": [{"name": "spark2", "address": "192.0.2.12", "fabric_address": "10.0.0.2"}],
        "fabric": {"interfaces": ["enp1s0f0np0", "enp1s0f1np1"]},
        "stack": STACK,
        "model_dir": "/srv/models",
    }
)


def fabric(rank: int) -> FabricFacts:
    """The fabric as the seeds' host of `rank` has it."""
    return FabricFacts(
        interface="bond0",
        address=f"10.0.0.{rank + 1}",
        cidr="10.0.0.0/24",
        hcas=("rocep1s0f0", "rocep1s0f1"),
        gid_indexes={"rocep1s0f0": 3, "rocep1s0f1": 3},
    )


def rendered(rank: int) -> RankSpec:
    return rank_spec(definition.load(STACK), PAIR, rank, fabric(rank))


def plain(spec: RankSpec) -> dict[str, Any]:
    """The specification with lists for tuples, as YAML has it."""
    listed = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in asdict(spec).items()
    }
    return listed | {"env": dict(spec.env), "labels": dict(spec.labels)}


def golden(rank: int) -> Path:
    return GOLDEN / f"{STACK}.rank{rank}.yaml"


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_is_rendered_as_recorded(rank: int) -> None:
    assert plain(rendered(rank)) == yaml.safe_load(golden(rank).read_text(encoding="utf-8"))


def test_the_ranks_may_run_together() -> None:
    assert check_pair([rendered(0), rendered(1)]) == []


def test_only_what_must_differ_between_the_ranks_does() -> None:
    pairs = zip(rendered(0).create_argv, rendered(1).create_argv, strict=True)
    different = [(one, two) for one, two in pairs if one != two]
    assert [(one.split("=")[0], two.split("=")[0]) for one, two in different[:3]] == [
        ("glm53-sglang-0", "glm53-sglang-1"),
        ("io.spark-converge.rank", "io.spark-converge.rank"),
        ("io.spark-converge.spec", "io.spark-converge.spec"),
    ]
    ((one, two),) = different[3:]
    assert one.replace("--node-rank 0", "--node-rank 1") == two


if __name__ == "__main__":
    for each in (0, 1):
        text = yaml.safe_dump(plain(rendered(each)), sort_keys=False, width=100)
        golden(each).write_text(text, encoding="utf-8")

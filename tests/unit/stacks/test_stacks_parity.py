"""The rules for ranks that are to serve together: each broken alone gives its one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from inventory.schema import Cluster
from stacks import definition
from stacks.render import FabricFacts, RankSpec, check_pair, rank_spec

PAIR = Cluster.model_validate(
    {
        "ssh": {"user": "milo"},
        "head": {"name": "spark1", "address": "192.0.2.11", "fabric_address": "10.0.0.1"},
        "workers": [{"name": "spark2", "address": "192.0.2.12", "fabric_address": "10.0.0.2"}],
        "fabric": {"interfaces": ["enp1s0f0np0", "enp1s0f1np1"]},
        "stack": "lab",
        "model_dir": "/srv/models",
    }
)


def good(name: str = "glm53-sglang-nvfp4") -> list[RankSpec]:
    stack = definition.load(name)
    return [
        rank_spec(
            stack,
            PAIR,
            rank,
            FabricFacts("bond0", f"10.0.0.{rank + 1}", "10.0.0.0/24", ("roce0",), {"roce0": 3}),
        )
        for rank in (0, 1)
    ]


def worker(**changes: Any) -> list[RankSpec]:
    """The good pair with `changes` to its worker."""
    head, second = good()
    return [head, replace(second, **changes)]


def worker_env(**variables: str | None) -> list[RankSpec]:
    env = {key: value for key, value in {**good()[1].env, **variables}.items() if value is not None}
    return worker(env=env)


def worker_without(*words: str) -> list[RankSpec]:
    argv = " ".join(good()[1].create_argv).replace(" ".join(words) + " ", "")
    return worker(create_argv=tuple(argv.split()))


def worker_command(*words: str) -> list[RankSpec]:
    return worker(command=words)


@pytest.mark.parametrize("name", definition.names())
def test_the_shipped_stacks_pass(name: str) -> None:
    assert check_pair(good(name)) == []


BROKEN: list[tuple[str, Callable[[], list[RankSpec]], str]] = [
    (
        "digest",
        lambda: worker(image="r@sha256:b"),
        "image differs between the ranks (spark1 ghcr.io/0xsero/glm-5.3-flash-sglang-sm121@",
    ),
    ("revision", lambda: worker(revision="b"), "model revision differs between the ranks ("),
    ("stack", lambda: worker(stack="b"), "stack differs between the ranks ("),
    ("rendezvous", lambda: worker(rendezvous="b"), "rendezvous differs between the ranks ("),
    ("name", lambda: worker(model_name="b"), "model name differs between the ranks ("),
    ("world", lambda: worker(world=3), "world size differs between the ranks (spark1 2, spark2 3"),
    ("twice", lambda: worker(rank=0), "ranks 0, 0 found; each of 0 to 1 exactly once expected"),
    ("alone", lambda: good()[:1], "ranks 0 found; each of 0 to 1 exactly once expected"),
    ("nobody", list, "ranks none found; each of 0 to 0 exactly once expected"),
    (
        "empty",
        lambda: worker_env(NCCL_IB_MERGE_NICS=""),
        "spark2 (rank 1): NCCL_IB_MERGE_NICS is empty; a value expected",
    ),
    (
        "list",
        lambda: worker_env(NCCL_SOCKET_IFNAME="bond0,enP7s7"),
        "spark2 (rank 1): NCCL_SOCKET_IFNAME=bond0,enP7s7 found; the name of one interface",
    ),
    (
        "exclusion",
        lambda: worker_env(GLOO_SOCKET_IFNAME="^lo"),
        "spark2 (rank 1): GLOO_SOCKET_IFNAME=^lo found; the name of one interface expected",
    ),
    (
        "gid",
        lambda: worker_env(NCCL_IB_GID_INDEX="3"),
        "spark2 (rank 1): NCCL_IB_GID_INDEX=3 found beside NCCL_IB_ADDR_RANGE",
    ),
    (
        "hca",
        lambda: worker_env(NCCL_IB_HCA=None),
        "spark2 (rank 1): NCCL_NET=IB without NCCL_IB_HCA",
    ),
    (
        "device",
        lambda: worker_without("--device", "/dev/infiniband"),
        "spark2 (rank 1): NCCL_NET=IB without --device /dev/infiniband",
    ),
    (
        "memlock",
        lambda: worker_without("--ulimit", "memlock=-1"),
        "spark2 (rank 1): NCCL_NET=IB without --ulimit memlock=-1",
    ),
    (
        "lock",
        lambda: worker_without("--cap-add", "IPC_LOCK"),
        "spark2 (rank 1): NCCL_NET=IB without --cap-add IPC_LOCK",
    ),
    (
        "page",
        lambda: worker_command("--quantization", "exl3", "--max-num-batched-tokens", "4096"),
        "spark2 (rank 1): --max-num-batched-tokens 4096 found; a multiple of 3584 expected",
    ),
    (
        "page=",
        lambda: worker_command("--quantization=exl3", "--max-num-batched-tokens=0"),
        "spark2 (rank 1): --max-num-batched-tokens 0 found; a multiple of 3584 expected",
    ),
    (
        "mtp",
        lambda: worker_command(
            "--gpu-memory-utilization", "0.85", "--speculative-config", '{"method": "mtp"}'
        ),
        "spark2 (rank 1): --gpu-memory-utilization 0.85 found with MTP; below 0.85, or the KV",
    ),
    (
        "unreadable",
        lambda: worker_command("--gpu-memory-utilization=0.9", "--speculative-config={mtp"),
        "spark2 (rank 1): --gpu-memory-utilization 0.9 found with MTP",
    ),
]


@pytest.mark.parametrize(
    ("specs", "sentence"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_a_broken_rule_is_one_sentence(specs: Callable[[], list[RankSpec]], sentence: str) -> None:
    (line,) = check_pair(specs())
    assert line.startswith(sentence)


@pytest.mark.parametrize(
    "command",
    [
        ("--quantization", "exl3", "--max-num-batched-tokens", "7168"),
        ("--quantization", "modelopt", "--max-num-batched-tokens", "4096"),
        ("--gpu-memory-utilization=0.84", '--speculative-config={"method": "mtp"}'),
        # DFlash brings a small model of its own; seed 000's pair ran it at 0.87.
        ("--gpu-memory-utilization=0.87", '--speculative-config={"method": "dflash"}'),
        (
            "--gpu-memory-utilization=0.9",
            '--speculative-config={"method": "mtp"}',
            "--kv-cache-memory-bytes=3G",
        ),
        ("--gpu-memory-utilization=0.9",),
    ],
    ids=["page", "not exl3", "low", "dflash", "pinned", "no draft"],
)
def test_a_kept_rule_is_silent(command: tuple[str, ...]) -> None:
    assert check_pair(worker_command(*command)) == []

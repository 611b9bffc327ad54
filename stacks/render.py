"""From a stack, a cluster and the fabric found on a host to what one rank runs. Pure; no I/O."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Mapping
from typing import Any

from inventory.schema import Cluster
from stacks import template
from stacks.definition import StackError
from stacks.parity import check_pair
from stacks.schema import Adopted, Container, Stack
from stacks.spec import LABEL_PREFIX, ComposeSpec, FabricFacts, KeptSpec, RankSpec

__all__ = ["ComposeSpec", "FabricFacts", "KeptSpec", "RankSpec", "check_pair", "mount", "rank_spec"]

GID_INDEX = "NCCL_IB_GID_INDEX"
CROSS_NIC = "NCCL_CROSS_NIC"


def rank_spec(stack: Stack, cluster: Cluster, rank: int, fabric: FabricFacts) -> RankSpec:
    """What rank `rank` of `cluster` runs of `stack`, on a host whose fabric is `fabric`.

    Raises StackError for a placeholder that cannot be filled and for a fabric that the stack's
    GID rule cannot use.
    """
    if stack.adopted is not None:
        return _adopted(stack, stack.adopted, cluster, rank)
    values = _values(stack, cluster, rank, fabric)
    name = _fill(stack, stack.container.name, values) if stack.container else ""
    env = _env(stack, cluster, rank, fabric, values)
    command = tuple(_fill(stack, word, values) for word in stack.command)
    compose = None
    if stack.compose is not None:
        name = stack.compose.container
        found = stack.compose
        compose = ComposeSpec(found.project, found.directory, found.file, found.env_file)
    settings = _settings(stack.container, stack, values) if stack.container else ()
    revision = stack.lock.model.revision if stack.lock else None
    rendezvous = f"{cluster.head.fabric_address}:{stack.ports.rendezvous}"
    matters = {
        "stack": stack.name,
        "rank": rank,
        "world": len(cluster.nodes),
        "image": stack.image_reference,
        "revision": revision,
        "files": _files_digest(stack),
        "rendezvous": rendezvous,
        "name": name,
        "settings": settings,
        # The kernel may renumber GIDs under a rank that runs well; that matters to the next launch
        # only, and must not make this one look different.
        "env": {name: value for name, value in env.items() if name != GID_INDEX},
        "command": command,
        "compose": vars(compose) if compose else None,
    }
    spec = hashlib.sha256(_canonical(matters)).hexdigest()
    labels = {
        f"{LABEL_PREFIX}stack": stack.name,
        f"{LABEL_PREFIX}rank": str(rank),
        f"{LABEL_PREFIX}world": str(len(cluster.nodes)),
        f"{LABEL_PREFIX}spec": spec,
    }
    argv: tuple[str, ...] = ()
    if stack.container is not None:
        options = [("--name", name), *settings, *_pairs("--label", labels), *_pairs("--env", env)]
        words = [word for option in options for word in option]
        tail = _after_image(stack.container, command)
        argv = ("docker", "create", *words, stack.image_reference, *tail)
    return RankSpec(
        host=cluster.nodes[rank].name,
        rank=rank,
        world=len(cluster.nodes),
        stack=stack.name,
        container_name=name,
        image=stack.image_reference,
        revision=revision,
        rendezvous=rendezvous,
        model_name=stack.serve.model_name,
        create_argv=argv,
        compose=compose,
        env=env,
        command=command,
        labels=labels,
        spec=spec,
    )


def _adopted(stack: Stack, adopted: Adopted, cluster: Cluster, rank: int) -> RankSpec:
    """A rank that ran before: its host has all that it was made from."""
    node = cluster.nodes[rank]
    if [one.host for one in adopted.ranks] != [one.name for one in cluster.nodes]:
        told = ", ".join(one.host for one in adopted.ranks)
        raise StackError([f"stack {stack.name} ran on {told}, and the owner's file names others"])
    found = adopted.ranks[rank]
    return RankSpec(
        host=node.name,
        rank=rank,
        world=len(cluster.nodes),
        stack=stack.name,
        container_name=found.container,
        image=stack.image_reference,
        revision=None,
        rendezvous=f"{cluster.head.fabric_address}:{stack.ports.rendezvous}",
        model_name=stack.serve.model_name,
        create_argv=(),
        compose=None,
        env={},
        command=(),
        labels={},
        spec=found.kept,
        kept=KeptSpec(found.kept, found.containers),
    )


def _values(stack: Stack, cluster: Cluster, rank: int, fabric: FabricFacts) -> dict[str, Any]:
    """The names that placeholders in a definition may use."""
    return {
        "stack": stack.name,
        "rank": rank,
        "world": len(cluster.nodes),
        "head_fabric_address": cluster.head.fabric_address,
        "fabric": {
            "interface": fabric.interface,
            "address": fabric.address,
            "cidr": fabric.cidr,
            "hcas": list(fabric.hcas),
            # As UCX_NET_DEVICES names them, with their port.
            "ucx": [f"{hca}:1" for hca in fabric.hcas],
        },
        "model_dir": cluster.model_dir,
        "model": {"directory": stack.model_path},
        "ports": {"api": stack.ports.api, "rendezvous": stack.ports.rendezvous},
        "serve": {"model_name": stack.serve.model_name},
    }


def mount(stack: Stack, model_dir: str) -> tuple[str, str] | None:
    """(folder on the host, its name in the container) through which the engine sees its model.

    None for a stack whose volumes are not this project's (launcher: compose).
    """
    path = f"{model_dir}/{stack.model_path}"
    values = {
        "stack": stack.name,
        "model_dir": model_dir,
        "model": {"directory": stack.model_path},
    }
    for volume in stack.container.volumes if stack.container else ():
        with contextlib.suppress(ValueError):  # needs what only a rank's host knows
            outside, inside, *_ = template.fill(volume, values).split(":")
            if f"{path}/".startswith(f"{outside}/"):
                return outside, inside
    return None


def _fill(stack: Stack, text: str, values: Mapping[str, Any]) -> str:
    try:
        return template.fill(text, values)
    except ValueError as error:
        raise StackError([f"files/stacks/{stack.name}.yaml: {error}"]) from None


def _env(
    stack: Stack, cluster: Cluster, rank: int, fabric: FabricFacts, values: Mapping[str, Any]
) -> dict[str, str]:
    env = dict(stack.env)
    if cluster.fabric.mode == "dual-rail" and CROSS_NIC in env:
        # A NIC of one rail has no way to a NIC of the other: they are two cables and two subnets.
        env[CROSS_NIC] = "0"
    if stack.env_fabric is None:
        return env
    for name, text in stack.env_fabric.values.items():
        value = _fill(stack, text, values)
        # NCCL takes an empty variable for a setting, so "not set" must really be absent.
        if value or name not in stack.env_fabric.absent_when_empty:
            env[name] = value
    if stack.env_fabric.gid == "index-by-address":
        indexes = {fabric.gid_indexes[hca] for hca in fabric.hcas if hca in fabric.gid_indexes}
        if len(indexes) > 1:
            told = ", ".join(f"{hca} {index}" for hca, index in sorted(fabric.gid_indexes.items()))
            raise StackError(
                [
                    f"{cluster.nodes[rank].name}: GID indexes of {fabric.address} differ ({told}); "
                    f"stack {stack.name} can name only one index for all devices"
                ]
            )
        if indexes:
            env[GID_INDEX] = str(indexes.pop())
    return env


def _settings(
    container: Container, stack: Stack, values: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """Options of `docker create` for the container, as (option, value)."""
    options = [
        ("--network", container.network),
        ("--ipc", container.ipc),
        ("--shm-size", container.shm_size),
    ]
    if container.memory:
        # The same figure twice: no swap for the rank, which would hide that memory ran out.
        options += [("--memory", container.memory), ("--memory-swap", container.memory)]
    options += [
        ("--restart", container.restart),
        ("--stop-timeout", str(container.stop_grace_s)),
    ]
    options += [("--ulimit", f"{name}={value}") for name, value in container.ulimits.items()]
    options += [("--cap-add", capability) for capability in container.cap_add]
    options += [("--device", device) for device in container.devices]
    if container.gpus:
        options.append(("--gpus", container.gpus))
    options += [("--volume", _fill(stack, volume, values)) for volume in container.volumes]
    options += [("--env-file", path) for path in container.env_files]
    if container.entrypoint:
        options.append(("--entrypoint", container.entrypoint[0]))
    return tuple(options)


def _pairs(option: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(option, f"{key}={value}") for key, value in values.items()]


def _after_image(container: Container, command: tuple[str, ...]) -> tuple[str, ...]:
    """The words behind the image: docker's --entrypoint takes only the first of its words."""
    if container.shell_command:
        command = (f"exec {shlex.join(command)}",)
    return (*container.entrypoint[1:], *command)


def _files_digest(stack: Stack) -> str | None:
    if stack.lock is None:
        return None
    files = [[file.name, file.size, file.sha256] for file in stack.lock.model.files]
    return hashlib.sha256(_canonical(sorted(files))).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

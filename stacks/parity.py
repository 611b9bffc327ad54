"""Whether a set of ranks can serve together: the rules that the seeds and the field paid for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence

from stacks.spec import RankSpec

# EXL3 keeps prefixes in pages of 3584 tokens; other batch sizes never hit, without an error.
_EXL3_PAGE_TOKENS = 3584
# From here on vLLM's MTP head (about 5 GB) tips unified memory into a driver-level OOM.
_MTP_UTILISATION = 0.85
_SOCKET_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_GID_VARIABLE = "NCCL_IB_GID_INDEX"
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")

_SHARED: dict[str, Callable[[RankSpec], str | int | None]] = {
    "stack": lambda spec: spec.stack,
    "image": lambda spec: spec.image,
    "model revision": lambda spec: spec.revision,
    "world size": lambda spec: spec.world,
    "rendezvous": lambda spec: spec.rendezvous,
    "model name": lambda spec: spec.model_name,
}


def check_pair(specs: Sequence[RankSpec]) -> list[str]:
    """Why these ranks must not be started together, in sentences; empty when they may."""
    return [*_differences(specs), *_ranks(specs), *(line for spec in specs for line in _one(spec))]


def _differences(specs: Sequence[RankSpec]) -> Iterator[str]:
    for what, read in _SHARED.items():
        values = [(spec, read(spec)) for spec in specs]
        if len({value for _, value in values}) > 1:
            told = ", ".join(f"{spec.host} {value}" for spec, value in values)
            yield f"{what} differs between the ranks ({told}); the same on all expected"


def _ranks(specs: Sequence[RankSpec]) -> Iterator[str]:
    found = sorted(spec.rank for spec in specs)
    world = specs[0].world if specs else 0
    if not specs or found != list(range(world)):
        told = ", ".join(map(str, found)) or "none"
        yield f"ranks {told} found; each of 0 to {max(world, 1) - 1} exactly once expected"


def _one(spec: RankSpec) -> Iterator[str]:
    for line in (*_environment(spec), *_memory(spec), *_rdma(spec)):
        yield f"{spec.host} (rank {spec.rank}): {line}"


def _environment(spec: RankSpec) -> Iterator[str]:
    for name, value in spec.env.items():
        if not value:
            yield f"{name} is empty; a value expected (an empty variable is not an unset one)"
    for name in _SOCKET_VARIABLES:
        interface = spec.env.get(name)
        if interface and not _INTERFACE.fullmatch(interface):
            yield (
                f"{name}={interface} found; the name of one interface expected "
                "(no list, no ^ or = before it: gloo knows neither)"
            )
    index = spec.env.get(_GID_VARIABLE)
    if index is not None and spec.env.get("NCCL_IB_ADDR_RANGE"):
        yield (
            f"{_GID_VARIABLE}={index} found beside NCCL_IB_ADDR_RANGE; one of the two expected "
            "(a fixed index overrules the range)"
        )


def _memory(spec: RankSpec) -> Iterator[str]:
    tokens = _option(spec.command, "--max-num-batched-tokens")
    exl3 = _option(spec.command, "--quantization") == "exl3"
    if exl3 and tokens is not None and not _whole_pages(tokens):
        yield (
            f"--max-num-batched-tokens {tokens} found; a multiple of {_EXL3_PAGE_TOKENS} "
            "expected with exl3 (else no prefix is ever found in its cache)"
        )
    utilisation = _option(spec.command, "--gpu-memory-utilization")
    pinned = _option(spec.command, "--kv-cache-memory-bytes") or _option(
        spec.command, "--kv-cache-memory"
    )
    if utilisation is None or pinned or not _drafts_with_mtp(spec.command):
        return
    if not _below(utilisation, _MTP_UTILISATION):
        yield (
            f"--gpu-memory-utilization {utilisation} found with MTP; below {_MTP_UTILISATION}, "
            "or the KV cache pinned with --kv-cache-memory-bytes, expected "
            "(the draft head tips unified memory into a driver OOM)"
        )


def _rdma(spec: RankSpec) -> Iterator[str]:
    if spec.env.get("NCCL_NET") != "IB" or not spec.create_argv:
        return
    needed = (
        ("--device", "/dev/infiniband"),
        ("--ulimit", "memlock=-1"),
        ("--cap-add", "IPC_LOCK"),
    )
    given = set(zip(spec.create_argv, spec.create_argv[1:], strict=False))
    for option, value in needed:
        if (option, value) not in given:
            yield f"NCCL_NET=IB without {option} {value}; RDMA needs it"
    if "NCCL_IB_HCA" not in spec.env:
        yield "NCCL_NET=IB without NCCL_IB_HCA; no RDMA device was found on the fabric"


def _drafts_with_mtp(command: Sequence[str]) -> bool:
    """True for vLLM's MTP; DFlash brings its own small model and is not meant."""
    text = _option(command, "--speculative-config")
    if text is None:
        return False
    try:
        method = json.loads(text).get("method")
    except (ValueError, AttributeError, RecursionError):
        return True  # unreadable: the careful answer
    return method is None or "mtp" in str(method)


def _whole_pages(text: str) -> bool:
    return text.isdecimal() and int(text) > 0 and int(text) % _EXL3_PAGE_TOKENS == 0


def _below(text: str, limit: float) -> bool:
    try:
        return float(text) < limit
    except ValueError:
        return False


def _option(command: Sequence[str], name: str) -> str | None:
    """The value of `--name value` or `--name=value`; the last one counts, as in argparse."""
    found = None
    for index, word in enumerate(command):
        if word == name and index + 1 < len(command):
            found = command[index + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found

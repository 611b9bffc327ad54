"""Loading of a model: one log line per shard, at the pace asked for, with the faults of a test."""

from __future__ import annotations

import os
import signal
import time

from . import faults, log, tensors
from .options import Options

_LOOK_AGAIN_S = 1.0


class LoadError(Exception):
    """One sentence: why this rank cannot go on."""


def load(options: Options) -> tensors.Held:
    """Read all shards in about ``options.load_seconds``; the slice of this rank.

    Raises tensors.ModelError for a broken file and LoadError for the fault ``exit-at-shard``.
    """
    paths = tensors.shards(options.model_path)
    held = tensors.Held()
    started = time.monotonic()
    for number, path in enumerate(paths, 1):
        _misbehave(options, number, f"{number}/{len(paths)}")
        log.line(f"loading shard {number}/{len(paths)} {path.name}")
        tensors.load_shard(path, options.rank, options.nnodes, held)
        seconds = faults.read(options.faults_file).get("slow-load", options.load_seconds)
        time.sleep(max(0.0, started + seconds * number / len(paths) - time.monotonic()))
    held_bytes = sum(len(values) * values.itemsize for values in held.values.values())
    log.line(
        f"loaded {len(paths)} shards in {time.monotonic() - started:.1f} s, "
        f"{held_bytes / 2**20:.1f} MiB held"
    )
    return held


def _misbehave(options: Options, number: int, place: str) -> None:
    wanted = faults.read(options.faults_file)
    if wanted.get("die-at-shard") == number:
        os.kill(os.getpid(), signal.SIGKILL)
    if wanted.get("exit-at-shard") == number:
        raise LoadError(f"RuntimeError: shard {place}: NV_ERR_NO_MEMORY (fault exit-at-shard)")
    began = time.monotonic()
    while "stall-at-shard" in wanted or "chatter-at-shard" in wanted:
        chatters = wanted.get("chatter-at-shard") == number
        if not chatters and wanted.get("stall-at-shard") != number:
            return
        if chatters:
            log.line(
                f"loading shard {place} still reading, {time.monotonic() - began:.1f} s elapsed"
            )
        time.sleep(_LOOK_AGAIN_S)
        wanted = faults.read(options.faults_file)

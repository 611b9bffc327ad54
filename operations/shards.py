"""Model files proven to be the pinned bytes, by a full read on the host itself."""

from __future__ import annotations

import hashlib
import json

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State

from facts.unknown import Unknown
from operations.job import Commands, Job, fail, refuse
from operations.remote import RemoteError, call
from stacks.definition import Stack

# 181 GiB at a slow disk's 200 MB/s is a quarter of an hour; four times that is a hang.
READ_LIMIT_S = 3600


def entries(stack: Stack) -> list[dict[str, object]]:
    """The manifest for spark-host: name, size in bytes, sha256."""
    files = stack.lock.model.files if stack.lock else ()
    return [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in files]


def lock_id(stack: Stack) -> str:
    """Names a manifest, so that a proof for one set of hashes is none for another."""
    return hashlib.sha256(json.dumps(entries(stack), sort_keys=True).encode()).hexdigest()


def directory(stack: Stack, model_dir: str) -> str:
    return f"{model_dir}/{stack.model.directory}"


def volume(size_bytes: int) -> str:
    """Bytes for a person: GiB of a real model, MiB of a small one."""
    gib = size_bytes / 2**30
    return f"{gib:.2f} GiB" if gib >= 1 else f"{size_bytes / 2**20:.1f} MiB"


def _verify(state: State, host: Host, job: Job, stack: Stack) -> bool:
    where = directory(stack, job.cluster.model_dir)
    manifest = entries(stack)
    try:
        answer = call(
            host, "shards", "verify", where, lock_id(stack), stdin=manifest, timeout_s=READ_LIMIT_S
        )
    except RemoteError as error:
        return fail(state, host, job, str(error))
    if answer["faults"]:
        told = "\n    - ".join(answer["faults"][:20])
        more = len(answer["faults"]) - 20
        tail = f"\n    - and {more} more" if more > 0 else ""
        return fail(
            state, host, job,
            f"{host.name}: {len(answer['faults'])} of the model's files in {where} are not what "
            f"the lock of {stack.name} names; nothing is launched:\n    - {told}{tail}",
        )  # fmt: skip
    host.log(
        f"{answer['files']} files, {volume(answer['bytes'])} read and right "
        f"in {answer['seconds']} s",
        log_func=logger.info,
    )
    job.figures.setdefault("shards", {})[host.name] = answer
    for one in job.hosts:  # a long act: what was read before it is old, on every host
        job.changed(one)
    return True


@operation()
def verified(job: Job, rank: int, stack: Stack) -> Commands:
    """
    Hash every file of the model against the stack's lock, unless nothing changed since it passed.

    + job: the run
    + rank: of this host
    + stack: whose lock is the manifest

    Fails: names each file that is missing, extra, truncated or different, all in one pass.
    Leaves behind: a record of what was proven in /var/lib/spark-converge/shards.
    """
    host = job.hosts[rank]
    found = job.read(host).shards
    if isinstance(found, Unknown):
        yield refuse(job, f"{host.name}: shards {found}")
        return
    if found.state.get(directory(stack, job.cluster.model_dir)) == "verified":
        host.noop(f"model files of {stack.name} unchanged since their full read")
        return
    yield FunctionCommand(_verify, (job, stack), {})

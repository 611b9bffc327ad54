"""A stack's lock from a full read of its model on every host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State

from operations import shards
from operations.detached import done, volume
from operations.job import Commands, Job, fail
from operations.remote import RemoteError
from stacks.definition import Stack
from stacks.lock import ask, file, hosts, hub
from stacks.lock.errors import LockError
from stacks.schema import Lock, LockedImage

FIGURE = "survey"
SHOWN = 20


def _read(state: State, host: Host, job: Job, where: str) -> bool:
    try:
        answer = done(host, "survey", {"directory": where})
    except RemoteError as error:
        return fail(state, host, job, str(error))
    if answer["faults"]:
        return fail(state, host, job, f"{host.name}: " + "; ".join(answer["faults"][:SHOWN]))
    host.log(
        f"{len(answer['files'])} files, {volume(answer['bytes'])} read in {answer['seconds']} s",
        log_func=logger.info,
    )
    job.figures.setdefault(FIGURE, {})[host.name] = answer["files"]
    return True


@operation()
def surveyed(job: Job, rank: int, stack: Stack) -> Commands:
    """
    Hash every file of the model directory in full, whatever earlier reads have shown.

    + job: the run
    + rank: of this host
    + stack: whose model directory is read

    Changes nothing; the read runs on the host in a unit of its own, and the next run joins it.
    """
    where = shards.directory(stack, job.cluster.model_dir)
    if not job.executing:
        job.hosts[rank].log(f"would read all of {where}", log_func=logger.info)
    yield FunctionCommand(_read, (job, where), {})


def _settle(
    state: State, host: Host, job: Job, stack: Stack, model: tuple[str, str], yes: bool
) -> bool:
    """Compare what the hosts read, and write the lock; the first sentence of failure is shown."""
    surveys: Mapping[str, Mapping[str, Any]] = job.figures.pop(FIGURE, {})
    try:
        published = hub.read(*model)
    except LockError as error:
        return fail(state, host, job, str(error))
    said = hosts.disagreements(surveys, published)
    if said:
        more = f"\n    - and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
        told = "\n    - ".join(said[:SHOWN]) + more
        return fail(
            state, host, job,
            f"the hosts do not have {published.repository}@{published.revision}, or not alike; "
            f"the lock stays as it is:\n    - {told}",
        )  # fmt: skip
    image = stack.lock.image if stack.lock else LockedImage()
    new = Lock(stack=stack.name, image=image, model=hosts.locked(surveys, published))
    folder = Path(job.cluster.lock_dir) if job.cluster.lock_dir else None
    if ask.settle(file.path_of(stack.name, folder), stack.lock, new, yes):
        return fail(state, host, job, f"the lock of {stack.name} was not changed")
    return True


@operation()
def settled(job: Job, stack: Stack, model: tuple[str, str], yes: bool) -> Commands:
    """
    Write the lock of a stack from what all hosts read, when they and the revision agree.

    + job: the run
    + stack: whose lock it is
    + model: repository and revision on the Hub
    + yes: write it without asking
    """
    yield FunctionCommand(_settle, (job, stack, model, yes), {})

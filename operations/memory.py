"""Unified memory made free before a bind: dead segments, page cache, and the floor."""

from __future__ import annotations

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State

from facts.memory import Memory
from operations.job import Commands, Job, fail, refuse
from operations.pair import faults
from operations.remote import RemoteError, call


def _clean(state: State, host: Host, job: Job) -> bool:
    try:
        answer = call(host, "shm", "clean")
    except RemoteError as error:
        return fail(state, host, job, str(error))
    removed = answer["removed"]
    job.figures.setdefault("shm_removed", {})[host.name] = removed
    told = sum(s["bytes"] for s in removed) / 2**20
    host.log(f"{len(removed)} dead segments removed, {told:.1f} MiB", log_func=logger.info)
    left = [s["name"] for s in answer["left"] if s["verdict"] == "leftover"]
    if left:
        return fail(state, host, job, f"{host.name}: still in /dev/shm: {', '.join(left)}")
    return True


@operation()
def shm_clean(job: Job, rank: int) -> Commands:
    """
    Remove what dead engines left in /dev/shm; what a process still holds stays.

    + job: the run
    + rank: of this host
    """
    host = job.hosts[rank]
    memory = job.read(host).memory
    if not isinstance(memory, Memory):
        yield refuse(job, f"{host.name}: memory {memory}")
        return
    if not memory.leftovers:
        host.noop("no dead segments in /dev/shm")
        return
    yield FunctionCommand(_clean, (job,), {})


def _ritual(state: State, host: Host, job: Job, floor_mib: int) -> bool:
    try:
        answer = call(host, "memory", timeout_s=300)
    except RemoteError as error:
        return fail(state, host, job, str(error))
    job.figures.setdefault("memory", {})[host.name] = answer
    before, after = answer["before"], answer["after"]
    host.log(
        f"page cache {before['Cached_kib'] // 1024} -> {after['Cached_kib'] // 1024} MiB, "
        f"free {before['MemFree_kib'] // 1024} -> {after['MemFree_kib'] // 1024} MiB, "
        f"available {after['MemAvailable_kib'] // 1024} MiB",
        log_func=logger.info,
    )
    available = after["MemAvailable_kib"] // 1024
    if available < floor_mib:
        return fail(
            state, host, job,
            f"{host.name}: {available} MiB available after dropping the caches, {floor_mib} MiB "
            "wanted before a bind: see what else holds memory (ps aux --sort=-rss)",
        )  # fmt: skip
    return True


@operation()
def ritual(job: Job, floor_mib: int, fabric_too: bool) -> Commands:
    """
    Write back, drop the page cache and compact memory before a bind; then check the floor.

    + job: the run
    + floor_mib: MemAvailable that the stack wants before a rank is started
    + fabric_too: as for the bind that follows

    Runs before every launch and only then: it is an act, never a drift. Undo: none needed.
    """
    if not faults(job, fabric_too):
        return
    yield FunctionCommand(_ritual, (job, floor_mib), {})

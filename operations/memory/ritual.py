"""Unified memory made free before a bind: dead segments, page cache, and the floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.memory.holders import parse as parse_holders
from facts.memory.memory import Memory
from facts.run.unknown import Unknown, parsed
from operations.memory import holders
from operations.pair.identity import faults
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, Job, fail, step
from operations.run.remote import RemoteError, call
from stacks.definition import Stack

# A share of the memory: what running programs read again at once.
LITTLE_CACHE = 0.1
SHM = "/dev/shm"  # noqa: S108 - the host's own mount


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


@step
def shm_clean(here: Here) -> Commands:
    """
    Remove what dead engines left in /dev/shm; what a process still holds stays.

    + here: this host's share of the run
    """
    if not here.known(here.read().memory, "memory").leftovers:
        here.noop("no dead segments in /dev/shm")
        return
    yield FunctionCommand(_clean, (here.job,), {})


def size_mib(text: str) -> int:
    """Of a size as docker takes it: 64g, 512mb."""
    unit_kib = {"k": 1, "m": 1024, "g": 1024 * 1024}[text.rstrip("b")[-1]]
    return int(text.rstrip("kmgb")) * unit_kib // 1024


def shm_complaints(memory: Memory, stack: Stack) -> Iterator[str]:
    """A /dev/shm that somebody made smaller than the kernel does (half of the memory), and smaller
    than a stack wants that uses the host's."""
    container, usual = stack.container, memory.total_mib // 2
    if container is None or container.ipc != "host" or memory.shm_mib is None:
        return
    if memory.shm_mib < min(size_mib(container.shm_size), usual * 0.9):
        yield (
            f"{SHM} holds {memory.shm_mib} MiB at most, {stack.name} uses the host's and wants "
            f"{container.shm_size}; mount it larger (sudo mount -o remount,size=50% {SHM}) "
            "and take its size out of /etc/fstab"
        )


def too_little(memory: Memory, stack: Stack) -> Iterator[str]:
    """A host that has not enough memory in all."""
    floor, reserved = stack.memory.floor_mib, memory.hugepages_mib
    if memory.usable_mib < floor:
        lost = f", {reserved} of them reserved for huge pages" if reserved else ""
        mend = "; set vm.nr_hugepages to 0, and take it out of sysctl.d" if reserved else ""
        yield (
            f"{memory.total_mib} MiB of memory in all{lost}, {stack.name} wants {floor} MiB "
            f"available{mend}"
        )


def assess(look: Look) -> Iterator[Finding]:
    """MemFree beside MemAvailable: on unified memory page cache is not free for the GPU."""
    found, stack = look.state.memory, look.stack
    room = Wanted(
        "memory", "memory", f"{stack.memory.floor_mib} MiB in all, available before a bind"
    )
    dead = Wanted("memory", "shared memory", "no dead segments")
    if not isinstance(found, Memory):
        yield from (room.unread(found), dead.unread(found))
        return
    seen = f"{found.total_mib} MiB, {found.available_mib} available, {found.free_mib} free"
    seen += f", {found.hugepages_mib} reserved for huge pages" if found.hugepages_mib else ""
    why_not = list(too_little(found, stack))
    yield room.judged(seen, not why_not, look.named(why_not, look.launches))
    size_mib = sum(s.size_bytes for s in found.leftovers) / 2**20
    seen = f"{len(found.leftovers)} dead segments, {size_mib:.1f} MiB"
    small = look.named(shm_complaints(found, stack), look.launches)
    seen = seen if found.leftovers else "none"
    if found.unknown:
        most = sorted(found.unknown, key=lambda one: -one.size_bytes)[:5]
        told = ", ".join(f"{one.name} {one.size_bytes / 2**20:.1f} MiB" for one in most)
        more = f" and {len(found.unknown) - 5} more" if len(found.unknown) > 5 else ""
        seen += f"; held by nobody and not known, left alone: {told}{more}"
    yield dead.judged(seen, not found.leftovers, small)


def droppable_mib(figures: Mapping[str, int]) -> int:
    """Page cache that nothing maps; shared memory counts as cached and never goes."""
    kib = figures["Cached_kib"] - figures["Shmem_kib"] - figures["Mapped_kib"]
    return max(0, kib) // 1024


def kept_cache(before: Mapping[str, int], after: Mapping[str, int]) -> str | None:
    """Why the drop did not work, None when it did: half of it gone, or little of it left."""
    was, left = droppable_mib(before), droppable_mib(after)
    if left <= max(was / 2, LITTLE_CACHE * after["MemTotal_kib"] / 1024):
        return None
    return (
        f"{left} MiB of page cache are left after it was dropped ({was} before): something reads "
        "files at this moment, or this is no host of its own; stop that, then launch again"
    )


def largest(host: Host, missing_mib: int) -> str:
    """What holds the most memory outside of docker, for a sentence that fails."""
    try:
        found = parsed(call(host, "holders", timeout_s=60), parse_holders)
    except RemoteError:
        found = Unknown("no answer")
    programs = () if isinstance(found, Unknown) else found.programs
    named = holders.worth_stopping(programs, missing_mib)
    return holders.told(named) or "see what else holds memory (ps aux --sort=-rss)"


def _caches_dropped(state: State, host: Host, job: Job, floor_mib: int) -> bool:
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
    kept = kept_cache(before, after)
    if kept:
        return fail(state, host, job, f"{host.name}: {kept}")
    available = after["MemAvailable_kib"] // 1024
    if available < floor_mib:
        return fail(
            state, host, job,
            f"{host.name}: {available} MiB available after dropping the caches, {floor_mib} MiB "
            f"wanted before a bind: {largest(host, floor_mib - available)}",
        )  # fmt: skip
    return True


@step
def caches_dropped(here: Here) -> Commands:
    """
    Write back, drop the page cache and compact memory before a bind; then check the floor.

    + here: this host's share of the run

    Runs before every launch and only then: it is an act, never a drift. Undo: none needed.
    """
    if not faults(here.job):
        return
    yield FunctionCommand(_caches_dropped, (here.job, here.stack.memory.floor_mib), {})

"""Engines taken down: saved first, rank by rank, and watched for coming back."""

from __future__ import annotations

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State

from facts.run.unknown import Unknown
from operations.engines.recognise import by_podman, engines, foreign, podman_engines
from operations.pair.identity import faults
from operations.run.job import Commands, Job, fail, refuse
from operations.run.remote import RemoteError, call
from operations.watchdogs.resurrection import likely_origin

GRACE_S = 30  # the longest stop_grace of a known stack, but for what a stack says itself


def to_end(job: Job, rank: int, fabric_too: bool) -> list[str]:
    """Names of the engine containers to take down on one host; none while all serve as wanted."""
    if job.stack is not None and not faults(job, fabric_too):
        return []
    state = job.read(job.hosts[rank])
    return [found.container.name for found in engines(rank, state, job.known)]


def _end(state: State, host: Host, job: Job, names: list[str]) -> bool:
    try:
        saved = call(host, "ranks", "save", job.generation, *names, timeout_s=120)
        answer = call(host, "ranks", "end", str(GRACE_S), *names, timeout_s=GRACE_S + 240)
    except RemoteError as error:
        return fail(state, host, job, str(error))
    job.changed(host)
    if answer["left"]:
        left = ", ".join(answer["left"])
        return fail(
            state, host, job, f"{host.name}: {left} could not be removed: {answer['message']}"
        )
    job.figures.setdefault("taken_down", {})[host.name] = names
    host.log(f"{', '.join(names)} is down; saved in {saved['folder']}", log_func=logger.info)
    for one in saved["unread"]:
        host.log(f"not saved: {one}", log_func=logger.warning)
    return True


@operation()
def ended(job: Job, rank: int, fabric_too: bool) -> Commands:
    """
    Take the engine containers of this host down: inspect and log saved, policy off, stop, remove.

    + job: the run
    + rank: of this host
    + fabric_too: whether a fabric that is not as wanted is a reason

    Does nothing while the cluster serves the wanted stack. Containers are found by label, image
    and name, not by a folder. Undo: a compose stack by rollback; the inspect is kept on the host.
    """
    host = job.hosts[rank]
    state = job.read(host)
    if isinstance(state.containers, Unknown):
        yield refuse(job, f"{host.name}: containers {state.containers}")
        return
    names = to_end(job, rank, fabric_too)
    if names:
        yield FunctionCommand(_end, (job, names), {})
    beyond = podman_engines(state, job.known)
    if beyond:  # of docker's none stays up for it
        yield refuse(job, "; ".join(f"{host.name}: {sentence}" for sentence in beyond))
    elif not names:
        host.noop("no engine to take down")


def _stop_foreign(state: State, host: Host, job: Job, names: list[str]) -> bool:
    try:
        answer = call(host, "ranks", "stop", str(GRACE_S), *names, timeout_s=GRACE_S + 240)
    except RemoteError as error:
        return fail(state, host, job, str(error))
    job.changed(host)
    job.figures.setdefault("foreign_stopped", {})[host.name] = answer["policies"]
    host.log(f"stopped, not removed: {', '.join(names)}", log_func=logger.info)
    return True


@operation()
def foreign_stopped(job: Job, rank: int) -> Commands:
    """
    Stop containers that no known stack owns, where the owner's file allows it (foreign: stop).

    + job: the run
    + rank: of this host

    Never removed; their restart policies are in the journal.
    """
    host = job.hosts[rank]
    if job.cluster.policy.foreign_containers != "stop":
        return
    names = [c.name for c in foreign(job.read(host), job.known)]
    if names:
        yield FunctionCommand(_stop_foreign, (job, names), {})


def _quiet(state: State, host: Host, job: Job, seconds: int) -> bool:
    now = job.read(host)
    known = [c.name for c in foreign(now, job.known)]
    known += [one.title for one, stack in by_podman(now, job.known) if stack is None]
    try:
        answer = call(host, "ranks", "quiet", str(seconds), *known, timeout_s=seconds + 90)
    except RemoteError as error:
        return fail(state, host, job, str(error))
    if answer["back"]:
        job.changed(host)
        rank = job.hosts.index(host)
        tag = job.cluster.tags.hold
        origin = likely_origin(rank, job.read(host), tag, job.known, answer["back"])
        return fail(
            state, host, job,
            f"{host.name}: {', '.join(answer['back'])} came back within {seconds} s of the "
            f"teardown; likely origin: {origin}",
        )  # fmt: skip
    return True


@operation()
def stay_down(job: Job, seconds: int, fabric_too: bool) -> Commands:
    """
    Watch for a while that no container starts.

    + job: the run
    + seconds: how long
    + fabric_too: as for the teardown before

    Runs when something is to be launched, or when something was taken down.
    """
    went_down = bool(job.figures.get("taken_down"))
    planned = not job.executing and any(
        to_end(job, job.hosts.index(one), fabric_too) for one in job.reachable()
    )
    launching = job.stack is not None and bool(faults(job, fabric_too))
    if launching or went_down or planned:
        yield FunctionCommand(_quiet, (job, seconds), {})

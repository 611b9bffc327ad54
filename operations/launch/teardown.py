"""Engines taken down: saved first, rank by rank, and watched for coming back."""

from __future__ import annotations

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from operations.engines.recognise import (
    Engine,
    by_podman,
    deleted_by_a_stop,
    engines,
    engines_on,
    foreign,
    unknown,
)
from operations.pair.identity import faults
from operations.run.job import Commands, Here, Job, fail, step
from operations.run.remote import RemoteError, call
from operations.watchdogs.resurrection import likely_origin

GRACE_S = 30  # the longest stop_grace of a known stack, but for what a stack says itself


def to_end(job: Job, rank: int) -> list[str]:
    """Names of the engine containers to take down on one host; none while all serve as wanted."""
    if job.stack is not None and not faults(job):
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
    job.notes.taken_down[host.name] = names
    host.log(f"{', '.join(names)} is down; saved in {saved['folder']}", log_func=logger.info)
    for one in saved["unread"]:
        host.log(f"not saved: {one}", log_func=logger.warning)
    return True


@step
def ended(here: Here) -> Commands:
    """
    Take the engine containers of this host down: inspect and log saved, policy off, stop, remove.

    + here: this host's share of the run

    Does nothing while the cluster serves the wanted stack. Containers are found by label, image
    and name, not by a folder. Undo: a compose stack by rollback; the inspect is kept on the host.
    """
    state = here.read()
    here.known(state.containers, "containers")
    names = to_end(here.job, here.rank)
    if names:
        yield FunctionCommand(_end, (here.job, names), {})
    else:
        here.noop("no engine of a known stack to take down")


def _stop_foreign(state: State, host: Host, job: Job, names: list[str]) -> bool:
    try:
        answer = call(host, "ranks", "stop", str(GRACE_S), *names, timeout_s=GRACE_S + 240)
    except RemoteError as error:
        return fail(state, host, job, str(error))
    job.changed(host)
    job.figures.setdefault("foreign_stopped", {})[host.name] = answer["policies"]
    host.log(f"stopped, not removed: {', '.join(names)}", log_func=logger.info)
    return True


@step
def foreign_stopped(here: Here, engines_only: bool) -> Commands:
    """
    Stop containers that no known stack owns, where the owner's file allows it (foreign: stop).

    + here: this host's share of the run
    + engines_only: leave those running that are no engines

    Never removed; their restart policies are in the journal. One that docker would delete once it
    is stopped (--rm) is left, and said.
    """
    if here.cluster.policy.foreign_containers != "stop":
        return
    state = here.read()
    found = unknown(state, here.job.known) if engines_only else foreign(state, here.job.known)
    for one in found:
        if one.auto_remove:
            here.warn(deleted_by_a_stop(one))
    names = [one.name for one in found if not one.auto_remove]
    if names:
        yield FunctionCommand(_stop_foreign, (here.job, names), {})


@step
def none_left(here: Here) -> Commands:
    """
    Fail, with what a person does next, where an engine is left that this job does not take down.

    + here: this host's share of the run
    """
    state = here.read()
    here.known(state.outside, "programs outside of docker")
    left = [one for one in engines_on(state, here.job.known) if stays(here, one)]
    if left:
        told = "; ".join(f"{one.told}: {one.stop}" for one in left)
        yield here.refuse(f"of no known stack or not docker's, so yours to stop: {told}")


def stays(here: Here, one: Engine) -> bool:
    """Does an engine run on, whatever this job does? A plan is made before anything is stopped."""
    if one.container is None:
        return True
    stopped = here.cluster.policy.foreign_containers == "stop" and not one.container.auto_remove
    return one.kind == "unknown" and (here.executing or not stopped)


def _quiet(state: State, host: Host, job: Job, seconds: int) -> bool:
    now = job.read(host)
    known = [c.name for c in foreign(now, job.known)]
    known += [one.title for one, _ in by_podman(now, job.known)]
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


@step
def stay_down(here: Here, seconds: int) -> Commands:
    """
    Watch for a while that no container starts.

    + here: this host's share of the run
    + seconds: how long

    Runs when something is to be launched, or when something was taken down.
    """
    went_down = bool(here.job.notes.taken_down)
    planned = not here.executing and any(
        to_end(here.job, here.job.hosts.index(one)) for one in here.job.reachable()
    )
    launching = here.job.stack is not None and bool(faults(here.job))
    if launching or went_down or planned:
        yield FunctionCommand(_quiet, (here.job, seconds), {})

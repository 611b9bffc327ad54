"""The stack `previous`: recognised before anything is judged, kept before anything is torn down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.run.unknown import Unknown
from operations.adopt import file
from operations.adopt.plan import Adoption, adoption
from operations.run.job import Commands, Here, Job, fail, refuse_beforehand, step
from operations.run.remote import RemoteError, call
from operations.watchdogs.resurrection import stack_words
from stacks.definition import PREVIOUS, Stack

KEEP_S = 120


def shipped(known: Sequence[Stack]) -> tuple[Stack, ...]:
    return tuple(one for one in known if one.adopted is None)


def seen(job: Job) -> Adoption:
    """What runs on all hosts that this tool did not start, by their states."""
    return adoption(job.cluster, job.states(), shipped(job.known))


def settle(job: Job) -> Adoption:
    """Let the run know the stack that was recognised; all that judges engines goes by that list.

    What starts the engine by itself is known by its names, so the hosts are read once more. An
    engine that an earlier run took on, and that cannot be taken on as it is by now, is a stranger.
    """
    with job.lock:
        found = seen(job)
        known = shipped(job.known)
        if found.stack is not None:
            known = (*known, found.stack)
        elif not found.cannot:
            return found
        names = stack_words(known)
        job.known = known
        if names != job.reader.ask.words:
            job.reader.ask = replace(job.reader.ask, words=names)
            for host in job.hosts:
                job.changed(host)
            return seen(job)
        return found


@step
def recognised(here: Here) -> Commands:
    """
    Find out whether what runs here can be brought back, whoever started it, and say what cannot.

    + here: this host's share of the run

    Read-only. Before the preflight: an engine that can be brought back is no stranger to it.
    """
    job = here.job
    if job.absent():
        return
    found = settle(job)
    for sentence in found.cannot if here.rank == 0 and not here.executing else ():
        here.warn(f"cannot be taken on as {PREVIOUS}: {sentence}")
    yield from ()


@step
def allowed(here: Here) -> Commands:
    """
    Refuse on all hosts when there is nothing to adopt, or what runs cannot be brought back.

    + here: this host's share of the run
    """
    job = here.job
    said = job.absent()
    if not said:
        for node, state in zip(here.cluster.nodes, job.states(), strict=True):
            for part in (state.containers, state.adoptable):
                if isinstance(part, Unknown):
                    said.append(f"{node.name}: containers {part}")
    if not said:
        found = settle(job)
        said = list(found.cannot)
        if found.stack is None and not said:
            said = ["no engine runs that this tool did not start itself: nothing to adopt"]
    if said:
        yield refuse_beforehand(job, said)


def _keep(state: State, host: Host, job: Job, stack: Stack) -> bool:
    assert stack.adopted is not None  # noqa: S101 - of an adoption
    rank = stack.adopted.ranks[job.hosts.index(host)]
    try:
        answer = call(host, "adopt", "keep", rank.kept, *rank.containers, timeout_s=KEEP_S)
    except RemoteError as error:
        return fail(state, host, job, f"{error}; nothing was torn down")
    job.figures.setdefault("kept", {})[host.name] = answer
    told = ", ".join(rank.containers)
    host.log(
        f"{told} kept in {answer['folder']}, {answer['files']} files with it", log_func=logger.info
    )
    for tag in answer["tags"]:
        host.log(f"image {rank.reference} named {tag} too", log_func=logger.info)
    for one in answer["unread"]:
        host.log(f"not kept: {one}", log_func=logger.warning)
    return True


@step
def kept(here: Here) -> Commands:
    """
    Keep on this host all that brings its rank back: recipe, compose and environment files, scripts.

    + here: this host's share of the run

    The engine is only looked at. Readable by root alone, in /var/lib/spark-converge/adopted; an
    image of no registry gets one more name, which undo takes away again.
    """
    found = seen(here.job)
    if found.stack is None:
        here.noop("no engine to keep")
        return
    if not here.job.launches and file.read(here.cluster) == found.stack:
        here.noop(f"kept as {PREVIOUS} already")
        return
    yield FunctionCommand(_keep, (here.job, found.stack), {})


def _write(state: State, host: Host, job: Job, found: Adoption, stack: Stack) -> bool:
    path = file.write(job.cluster, stack)
    for line in file.text(job.cluster, stack).splitlines():
        if not line.startswith("#"):
            host.log(f"    {line}", log_func=logger.info)
    for note in found.notes:
        host.log(note, log_func=logger.warning)
    host.log(
        f"{stack.serve.model_name} taken on as {PREVIOUS}: {path}; deploys/rollback_dsf.py "
        "brings it back",
        log_func=logger.info,
    )
    return True


@step
def written(here: Here) -> Commands:
    """
    Write the stack `previous` on this machine, once every host has kept its rank.

    + here: this host's share of the run
    """
    found = seen(here.job)
    if here.executing:  # from here on nobody asks what else could be taken on, which costs time
        ask = here.job.reader.ask
        left = tuple(part for part in ask.extra if part != "adoptable")
        here.job.reader.ask = replace(ask, extra=left)
    if found.stack is None or file.read(here.cluster) == found.stack:
        here.noop("nothing to write")
        return
    yield FunctionCommand(_write, (here.job, found, found.stack), {})

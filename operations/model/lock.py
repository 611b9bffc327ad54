"""A stack's lock from a full read of its model on every host."""

from __future__ import annotations

from pathlib import Path

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import State

from operations.model import shards
from operations.run.detached import done, volume
from operations.run.job import Commands, Here, Job, fail, refuse_beforehand, step
from operations.run.remote import RemoteError
from stacks import definition
from stacks.definition import Stack
from stacks.lock import ask, file, hosts, hub
from stacks.lock.errors import LockError
from stacks.schema import Lock, LockedImage, LockedModel


def model_of(stack: Stack, repository: str | None, revision: str | None) -> tuple[str, str]:
    """(repository, revision): as asked for, else those of the lock; raises PyinfraError without."""
    known = stack.lock.model if stack.lock else None
    if known:
        repository = repository or known.repository
        revision = revision or (known.revision if known.repository == repository else None)
    if not repository or not revision:
        lacks = f"no revision of {repository}" if repository else "no lock"
        raise PyinfraError(f"{stack.name} has {lacks}: --data model=ORG/NAME --data revision=REV")
    return repository, revision


@step
def allowed(here: Here) -> Commands:
    """
    Refuse on every host while a host is missing: a lock is what all of them agree on.

    + here: this host's share of the run
    """
    said = here.job.absent()
    if not said:
        return
    yield refuse_beforehand(here.job, said)


def _ask(state: State, host: Host, job: Job, stack: Stack, model: tuple[str, str]) -> bool:
    """Before hours of reading, not after them."""
    try:
        published = hub.read(*model)
    except LockError as error:
        return fail(state, host, job, str(error))
    unfit = definition.unfit(stack, published)
    if unfit:
        return fail(state, host, job, "; ".join(unfit))
    job.notes.published = published
    size = volume(sum(one.size or 0 for one in published.files))
    host.log(
        f"{published.repository}@{published.revision}: {len(published.files)} files, {size}",
        log_func=logger.info,
    )
    return True


@step
def asked(here: Here, model: tuple[str, str]) -> Commands:
    """
    Ask the Hub which files and sizes the revision has, before anything is read on a host.

    + here: this host's share of the run
    + model: repository and revision on the Hub; a branch or a tag becomes the commit behind it
    """
    stack = here.stack
    yield FunctionCommand(_ask, (here.job, stack, model), {})


def _published(job: Job) -> LockedModel:
    if job.notes.published is None:
        raise LookupError("the Hub was not asked for the model's files")
    return job.notes.published


def _read(state: State, host: Host, job: Job, stack: Stack) -> bool:
    published = _published(job)
    wanted = stack.model_copy(
        update={"lock": Lock(stack=stack.name, image=LockedImage(), model=published)}
    )
    where = shards.directory(wanted, job.cluster.model_dir)
    request = {
        "directory": where,
        "revision": published.revision,
        "entries": shards.entries(wanted),
    }
    try:
        answer = done(host, "survey", request)
    except RemoteError as error:
        return fail(state, host, job, str(error))
    if answer["faults"]:
        return fail(
            state, host, job,
            f"{host.name}: {where} does not hold {published.repository}@{published.revision} "
            f"(`hf download {published.repository} --revision {published.revision}` brings it, "
            f"--data revision=REV names another one):\n    - {_told(answer['faults'])}",
        )  # fmt: skip
    host.log(
        f"{len(answer['files'])} files, {volume(answer['bytes'])} read in {answer['seconds']} s",
        log_func=logger.info,
    )
    if answer["missing"]:
        host.log(
            f"not there, with a hash of the Hub's: {', '.join(answer['missing'][:5])}"
            + (f" and {len(answer['missing']) - 5} more" if len(answer["missing"]) > 5 else "")
            + "; deploys/fetch.py brings them once the lock is written",
            log_func=logger.warning,
        )
    job.notes.survey[host.name] = answer["files"]
    return True


def _told(sentences: list[str]) -> str:
    more = len(sentences) - shards.SHOWN
    tail = [f"and {more} more"] if more > 0 else []
    return "\n    - ".join([*sentences[: shards.SHOWN], *tail])


@step
def surveyed(here: Here) -> Commands:
    """
    Hash every file of the revision in full, whatever earlier reads have shown.

    + here: this host's share of the run

    Changes nothing; the read runs on the host in a unit of its own, and the next run joins it.
    What is missing or of another size is said before a byte is read.
    """
    stack = here.stack
    if not here.executing:
        where = f"{here.cluster.model_dir}/{stack.files.directory}"
        here.say(f"would read all of the revision's files in {where}")
    yield FunctionCommand(_read, (here.job, stack), {})


def _settle(state: State, host: Host, job: Job, stack: Stack, yes: bool) -> bool:
    """Compare what the hosts read, and write the lock; the first sentence of failure is shown."""
    surveys = job.notes.survey
    published = _published(job)
    said = hosts.disagreements(surveys, published)
    if said:
        return fail(
            state, host, job,
            f"the hosts do not have {published.repository}@{published.revision}, or not alike; "
            "the lock stays as it is; put right what differs "
            f"(`hf download {published.repository} FILE --revision {published.revision}` brings "
            f"one file) and run this again:\n    - {_told(said)}",
        )  # fmt: skip
    image = stack.lock.image if stack.lock else LockedImage()
    new = Lock(stack=stack.name, image=image, model=hosts.locked(surveys, published))
    folder = Path(job.cluster.lock_dir) if job.cluster.lock_dir else None
    path = file.path_of(stack.name, folder)
    if ask.settle(path, stack.lock, new, yes, way="--data yes=yes"):
        return fail(state, host, job, f"the lock of {stack.name} was not changed")
    return True


@step
def settled(here: Here, yes: bool) -> Commands:
    """
    Write the lock of a stack from what all hosts read, when they and the revision agree.

    + here: this host's share of the run
    + yes: write it without asking
    """
    stack = here.stack
    yield FunctionCommand(_settle, (here.job, stack, yes), {})

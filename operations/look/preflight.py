"""Everything that would stop a job later, found before anything is changed; all at once."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra import logger

from operations.look.parts import findings, must_be_read
from operations.run.findings import Kind, Look
from operations.run.job import Commands, Here, Job, refuse_beforehand, step


def unread(look: Look) -> Iterator[str]:
    """What a job must have read of this host, and could not."""
    needed = must_be_read(look)
    missing = {part: why for part, why in look.state.unknowns().items() if part in needed}
    if (
        len(missing) == len(needed)
        and len(reasons := {why.reason for why in missing.values()}) == 1
    ):
        yield f"{look.node.name}: its state could not be read ({reasons.pop()})"
        return
    yield from (f"{look.node.name}: {part} {unknown}" for part, unknown in missing.items())


def said(look: Look, kind: Kind) -> Iterator[str]:
    for finding in findings(look):
        if finding.kind == kind:
            yield from finding.sentences


def complaints(job: Job) -> list[str]:
    """All complaints about all hosts; reads every reachable host once."""
    absent = job.absent()
    found = list(absent)
    if job.stack is not None and job.launches:
        lock = f"files/stacks/{job.stack.name}.lock.yaml"
        gaps = job.stack.unlocked
        found += [f"unlocked: {gap}; not launched before {lock} names them" for gap in gaps]
    for look in job.looks() if not absent else ():
        found += [*unread(look), *said(look, "refuse")]
    return list(dict.fromkeys(found))


def advise(job: Job) -> None:
    """Say once a run, and keep in its receipt, what is worth knowing and forbids nothing."""
    with job.lock:
        if job.notes.advice is not None:
            return
        told = [sentence for look in job.looks() for sentence in said(look, "advice")]
        job.notes.advice = list(dict.fromkeys(told))
    for line in job.notes.advice:
        logger.warning(f"    advice: {line}")


@step
def passed(here: Here) -> Commands:
    """
    Refuse the whole run, on every host, when anything about any host forbids it.

    + here: this host's share of the run
    """
    found = complaints(here.job)
    if not found:
        advise(here.job)
        return
    yield refuse_beforehand(here.job, found)

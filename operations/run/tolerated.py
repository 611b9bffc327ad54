"""Steps that may fail without taking their host out of the run, and still fail the run."""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra.api.operation import OperationMeta

from operations.run.job import Commands, Here, step


@step
def blamed(here: Here, steps: Mapping[str, OperationMeta]) -> Commands:
    """
    Have the last barrier stop on steps that failed with ``_ignore_errors``.

    + here: this host's share of the run
    + steps: title -> what pyinfra returned for the step on this host

    A refusal has given its own reason; a command that failed has not, and pyinfra then counts the
    host as sound.
    """
    if here.executing:
        for title, step in steps.items():
            if step.is_complete() and step.did_error():
                here.job.blame(
                    f'{here.host.name}: failed at "{title}" (what it said is printed above)'
                )
    yield from ()

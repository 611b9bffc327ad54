"""The pinned image on the host, by digest."""

from __future__ import annotations

import shlex

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State

from facts.unknown import Unknown
from operations.job import Commands, Job, fail, refuse
from operations.remote import RemoteError, run

PULL_LIMIT_S = 7200  # an engine image is some 30 GB; two hours is a slow home line


def _pull(state: State, host: Host, job: Job, reference: str) -> bool:
    try:
        run(host, f"docker pull --quiet {shlex.quote(reference)}", timeout_s=PULL_LIMIT_S)
    except RemoteError as error:
        return fail(state, host, job, f"image {reference} cannot be had on {error}")
    for one in job.hosts:  # a long act: what was read before it is old, on every host
        job.changed(one)
    return True


@operation()
def present(job: Job, rank: int, reference: str) -> Commands:
    """
    Pull an image by its digest unless the host has it; a tag never decides.

    + job: the run
    + rank: of this host
    + reference: ``repository@sha256:...``

    Fails with one sentence when the registry does not give it; nothing was stopped for it.
    """
    host = job.hosts[rank]
    found = job.read(host).images
    if isinstance(found, Unknown):
        yield refuse(job, f"{host.name}: images {found}; is the docker daemon up?")
        return
    if found.found.get(reference):
        host.noop(f"has {reference}")
        return
    yield FunctionCommand(_pull, (job, reference), {})
    now = job.read(host).images
    if isinstance(now, Unknown) or not now.found.get(reference):
        yield refuse(job, f"{host.name}: {reference} is not there after the pull")

"""The pinned image on the host, by digest."""

from __future__ import annotations

import shlex

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation

from facts.unknown import Unknown
from operations.job import Commands, Job, refuse

PULL_LIMIT_S = 7200  # an engine image is some 30 GB; two hours is a slow home line


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
    yield StringCommand(
        f"timeout {PULL_LIMIT_S} docker pull --quiet {shlex.quote(reference)} 2>&1 >/dev/null | "
        f"sed 's/^/image {reference} cannot be had: /' >&2; "
        f"docker image inspect {shlex.quote(reference)} > /dev/null"
    )
    job.changed(host)
    now = job.read(host).images
    if isinstance(now, Unknown) or not now.found.get(reference):
        yield refuse(job, f"{host.name}: {reference} is not there after the pull")

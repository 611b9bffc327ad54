"""The on-host program spark-host, installed so that a host can be undone from its own console."""

from __future__ import annotations

import shlex

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation

from facts.snapshot import INSTALLED, program_archive, program_sha256
from facts.unknown import Unknown
from operations.job import Commands, Job, refuse


def install_command() -> str:
    """Unpack beside the old copy, compile, then swap: an interrupted run leaves a whole program."""
    home = shlex.quote(INSTALLED)
    return (
        f"set -e; umask 022; n={home}.new; rm -rf $n; mkdir -p $n; base64 -d > $n.zip; "
        f"python3 -I -m zipfile -e $n.zip $n; rm -f $n.zip; python3 -I -m compileall -q $n; "
        f"echo {program_sha256()} > $n/SHA256; rm -rf {home}; mv $n {home}"
    )


@operation()
def installed(job: Job, rank: int) -> Commands:
    """
    Install this project's on-host program, or replace another version of it.

    + job: the run
    + rank: of this host

    Leaves behind: /usr/local/lib/spark-converge (a few KiB).
    """
    host = job.hosts[rank]
    found = job.read(host).program
    if isinstance(found, Unknown):
        yield refuse(job, f"{host.name}: on-host program {found}")
        return
    if found == program_sha256():
        host.noop("the on-host program is installed")
        return
    yield StringCommand(install_command(), _stdin=program_archive())
    job.changed(host)
    if job.read(host).program != program_sha256():
        yield refuse(job, f"{host.name}: {INSTALLED} is not what was sent; is /usr writable?")

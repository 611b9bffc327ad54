"""What the host boots into."""

from __future__ import annotations

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation

from facts.boot import Boot
from operations.job import Commands, Job, refuse
from operations.journal import quiet


@operation()
def default_target(job: Job, rank: int, target: str) -> Commands:
    """
    Make the host boot into a target; nothing is isolated, the running session stays.

    + job: the run
    + rank: of this host
    + target: e.g. ``multi-user.target``

    Undo: the link found is in the journal.
    """
    host = job.hosts[rank]
    boot = job.read(host).boot
    if not isinstance(boot, Boot):
        yield refuse(job, f"{host.name}: boot target {boot}")
        return
    if boot.default_target == target:
        host.noop(f"boots into {target}")
        return
    yield StringCommand(quiet("units", "default", target))
    job.changed(host)
    now = job.read(host).boot
    if not isinstance(now, Boot) or now.default_target != target:
        seen = now.default_target if isinstance(now, Boot) else now
        yield refuse(job, f"{host.name}: boots into {seen} after set-default {target}")

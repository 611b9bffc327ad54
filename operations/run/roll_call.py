"""The moment when every host of a run has been read, for jobs that only look."""

from __future__ import annotations

from collections.abc import Iterable

from pyinfra.api.host import Host

from operations.run.job import Job


class RollCall:
    """Hosts that have reported; pyinfra runs a deploy file once for each host, all at a time."""

    def __init__(self) -> None:
        self._present: set[str] = set()
        self._done = False

    def complete(self, host: Host, expected: Iterable[Host]) -> bool:
        """Note a host; True once, for the call after which none of the expected is missing."""
        self._present.add(host.name)
        if self._done or {one.name for one in expected} - self._present:
            return False
        self._done = True
        return True


def absent_hosts(job: Job) -> list[str]:
    """Sentences for hosts that this run does not reach; half a cluster is never converged."""
    said = []
    for host in job.hosts:
        if not job.state.is_host_in_limit(host):
            said.append(f"{host.name}: left out by --limit or --exclude; the ranks are one unit")
        elif host not in job.state.active_hosts:
            said.append(f"{host.name}: cannot be reached; nothing was changed on the other hosts")
    return said

"""Take the hashes of a stack's model from a full read on every host, where the Hub has none.

READ-ONLY on the hosts, but for the on-host program. Reads the whole model (181 GiB of a large one).
Needs: the Hub, for the files and sizes of the revision; all hosts alike. The lock that would change
is shown, and written to this machine when a person agrees (`--data yes=yes` without a terminal).
`--data model=ORG/NAME --data revision=REV` for a stack that has no lock yet.
"""

from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host

from deploys.steps.begin import begin, preflight_checks
from operations import job, lease, lock, program

run = begin("lock", host.data.stack)
rank = host.data.rank
stack = run.stack
assert stack is not None  # noqa: S101 - begin() refuses an unknown name
known = stack.lock.model if stack.lock else None
repository = host.data.get("model") or (known and known.repository)
revision = host.data.get("revision") or (known and known.revision)
if not repository or not revision:
    raise PyinfraError(f"{stack.name} has no lock: --data model=ORG/NAME --data revision=REV")

preflight_checks(run=run, launches=False)
program.installed(job=run, rank=rank, name="On-host program installed")
job.barrier(job=run, title="Full read", name="Stage: Full read")
lock.surveyed(job=run, rank=rank, stack=stack, name=f"Model files of {stack.name} read in full")
job.barrier(job=run, title="Lock", name="Stage: Lock")
if rank == 0:
    lock.settled(
        job=run,
        stack=stack,
        model=(str(repository), str(revision)),
        yes=host.data.get("yes") == "yes",
        name=f"Lock of {stack.name} written",
    )
lease.released(job=run, rank=rank, name="The next run may begin")

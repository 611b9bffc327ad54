"""Take the hashes of a stack's model from a full read on every host, where the Hub has none.

READ-ONLY on the hosts, but for the on-host program. Reads the whole model (181 GiB of a large one).
Needs: the Hub, for the files and sizes of the revision, asked before anything is read; all hosts
alike. The lock that would change is shown, and written to this machine when a person agrees
(`--data yes=yes` without a terminal).
`--data model=ORG/NAME --data revision=REV` for a stack that has no lock yet, or another model.
"""

from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host

from deploys.steps.begin import begin
from operations.model import lock
from operations.run import job, lease, program

run = begin("lock", host.data.stack)
rank = host.data.rank
stack = run.stack
assert stack is not None  # noqa: S101 - begin() refuses an unknown name
known = stack.lock.model if stack.lock else None
repository = host.data.get("model") or (known and known.repository)
same = known if known and known.repository == repository else None
revision = host.data.get("revision") or (same and same.revision)
if not repository or not revision:
    lacks = f"no revision of {repository}" if repository else "no lock"
    raise PyinfraError(f"{stack.name} has {lacks}: --data model=ORG/NAME --data revision=REV")

job.milestone(job=run, title="Preflight", name="Stage: Preflight")
lease.alone(job=run, name="No other run is at work on any host")
lock.allowed(job=run, name="All hosts are there")
job.barrier(job=run, title="Hub", name="Stage: Hub")
model = (str(repository), str(revision))
if rank == 0:
    lock.asked(job=run, stack=stack, model=model, name=f"Files of {repository} asked of the Hub")
job.barrier(job=run, title="Program", name="Stage: Program")
program.installed(job=run, rank=rank, name="On-host program installed")
job.barrier(job=run, title="Full read", name="Stage: Full read")
lock.surveyed(job=run, rank=rank, stack=stack, name=f"Model files of {stack.name} read in full")
job.barrier(job=run, title="Lock", name="Stage: Lock")
if rank == 0:
    yes = host.data.get("yes") == "yes"
    lock.settled(job=run, stack=stack, yes=yes, name=f"Lock of {stack.name} written")
job.barrier(job=run, title="Lock", name="Lock is written")
lease.released(job=run, rank=rank, name="The next run may begin")

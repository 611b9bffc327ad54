"""Bring the hosts to their known state without launching anything.

MUTATES HOST, never a running engine: while a rank runs, the fabric waits and is named.
Model files go on being read at the hosts when this run is cut off; the next run joins that.
`--data verify=full`: read every byte of the model, whatever was proven before.
Undone by: undo.py, or `sudo spark-converge-undo` at the host itself.
"""

from pyinfra.context import host

from deploys.steps.begin import begin, preflight_checks
from deploys.steps.host_state import harmless, pinned
from operations.network import fabric
from operations.run import job, lease

run = begin("prepare", host.data.stack)
rank = host.data.rank

preflight_checks(run=run, launches=False)
harmless(run=run, rank=rank)
if run.stack is not None:
    pinned(run=run, rank=rank, stack=run.stack)
job.barrier(job=run, title="Fabric", name="Stage: Fabric")
fabric.converged(
    job=run, node=host.data.node, after_teardown=False, name="Fabric as the owner's file says"
)
job.barrier(job=run, title="Fabric", name="Done")
lease.released(job=run, rank=rank, name="The next run may begin")

"""Bring the cluster to its known state and serve the wanted stack on it.

STOPS SERVING when something else runs (or the same with other settings); else changes nothing.
Needs: a locked stack, its image in the registry or on the hosts, its files in model_dir.
Undone by: rollback_dsf.py (the stack), undo.py (the hosts).
"""

from pyinfra.context import host

from deploys.steps.begin import begin, preflight_checks, quiet_s
from deploys.steps.host_state import harmless, pinned
from deploys.steps.launch import launch
from deploys.steps.takeover import clean, hold_watchdogs, tear_down
from operations.network import fabric
from operations.run import job, lease

run = begin("serve", host.data.stack, extra=("holders",))
rank = host.data.rank
stack = run.stack
assert stack is not None  # noqa: S101 - begin() refuses an unknown name

preflight_checks(run=run, launches=True)
harmless(run=run, rank=rank)
pinned(run=run, rank=rank, stack=stack)
job.barrier(job=run, title="Fabric on paper", name="Stage: Fabric on paper")
fabric.mergeable(job=run, node=host.data.node, name="netplan takes the fabric's file")
hold_watchdogs(run=run, rank=rank, for_good=True)
tear_down(run=run, rank=rank, fabric_too=True)
job.barrier(job=run, title="Fabric", name="Stage: Fabric")
fabric.converged(
    job=run, node=host.data.node, after_teardown=True, name="Fabric as the owner's file says"
)
clean(run=run, rank=rank, quiet_s=quiet_s(stack.deadlines.quiet_s), fabric_too=True)
launch(run=run, rank=rank, stack=stack, fabric_too=True)
lease.released(job=run, rank=rank, name="The next run may begin")

"""Take the running stack down and bring the rollback stack back, timed, with its watchdog.

STOPS SERVING unless the rollback stack already serves.
Needs: the rollback stack's files where it was (a compose project on each host), its image.
Undone by: serve.py.
"""

from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host

from deploys.steps.begin import begin, preflight_checks, quiet_s
from deploys.steps.host_state import pinned
from deploys.steps.launch import launch
from deploys.steps.takeover import clean, hold_watchdogs, rearm_watchdogs, tear_down
from operations.run import lease, program

if not host.data.get("rollback_stack"):
    raise PyinfraError("the owner's file names no rollback_stack")
run = begin("rollback_dsf", host.data.rollback_stack, extra=("holders",))
rank = host.data.rank
stack = run.stack
assert stack is not None  # noqa: S101 - begin() refuses an unknown name

preflight_checks(run=run, launches=True, settles=False)
program.installed(job=run, rank=rank, name="On-host program installed")
pinned(run=run, rank=rank, stack=stack)
hold_watchdogs(run=run, rank=rank, for_good=False)
tear_down(run=run, rank=rank, fabric_too=False)
clean(run=run, rank=rank, quiet_s=quiet_s(stack.deadlines.quiet_s), fabric_too=False)
launch(run=run, rank=rank, stack=stack, fabric_too=False)
rearm_watchdogs(run=run, rank=rank)
lease.released(job=run, rank=rank, name="The next run may begin")

"""Give every host back as it was before this project's first change to it, and prove it.

MUTATES HOST. Refused while a rank runs; deploys/stop.py takes them down.
Files that somebody edited since are left and named (exit status 1); `--data force=PATH,PATH` gives
those back too. Held cron lines come to life again, so a watchdog may start the old stack.
Undone by: prepare.py. Without this machine: `sudo spark-converge-undo` at the host's console.
"""

from pyinfra.context import host

from deploys.steps.begin import begin
from operations.run import job, lease
from operations.undo import undo

run = begin("undo", None, extra=("journal",))
force = [path for path in str(host.data.get("force") or "").split(",") if path]

job.milestone(job=run, title="Preflight", name="Stage: Preflight")
lease.alone(job=run, name="No other run is at work on any host")
undo.allowed(job=run, name="No rank runs on any host")
job.barrier(job=run, title="Undo", name="Stage: Undo")
undo.undone(job=run, rank=host.data.rank, force=force, name="Host given back as it was")
job.barrier(job=run, title="Undo", name="All hosts are as they were")
lease.released(job=run, rank=host.data.rank, name="The next run may begin")

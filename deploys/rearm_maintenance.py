"""Let updates run again as they did before the first serve or prepare; nothing else is touched.

MUTATES HOST: timers and services of unattended upgrades, fwupd and the like, and needrestart's
file. Never ends or starts an engine, upgrades nothing; what comes to life may do so at once.
Undone by: prepare.py or serve.py, which hold them again.
"""

from pyinfra.context import host

from deploys.steps.begin import begin, host_settings
from operations.run import job, lease
from operations.systemd import maintenance

run = begin("rearm_maintenance", None, extra=("journal",))

job.milestone(job=run, title="Updates let go", name="Stage: Updates let go")
lease.alone(job=run, name="No other run is at work on any host")
maintenance.rearmed(
    job=run,
    rank=host.data.rank,
    names=host_settings()["maintenance_held"],
    name="Held updates given back",
)
job.barrier(job=run, title="Updates let go", name="Done")
lease.released(job=run, rank=host.data.rank, name="The next run may begin")

"""Let updates run again as they did before the first serve or prepare; nothing else is touched.

MUTATES HOST: timers and services of unattended upgrades, fwupd and the like, and needrestart's
file. Never ends or starts an engine, upgrades nothing; what comes to life may do so at once.
Undone by: prepare.py or serve.py, which hold them again.
"""

from deploys.steps.begin import begin, ended
from operations.run import lease
from operations.run.job import stage_for_those_left
from operations.systemd import maintenance

here = begin("rearm_maintenance", None, extra=("journal",))

stage_for_those_left(here, "Updates let go")
lease.alone(here, name="No other run is at work on any host")
maintenance.rearmed(here, name="Held updates given back")
ended(here)

"""Give every host back as it was before this project's first change to it, and prove it.

MUTATES HOST. Refused while a rank runs; deploys/stop.py takes them down.
Files that somebody edited since are left and named (exit status 1); `--data force=PATH,PATH` gives
those back too. Held cron lines come to life again, so a watchdog may start the old stack.
Undone by: prepare.py. Without this machine: `sudo spark-converge-undo` at the host's console.
"""

from pyinfra.context import host

from deploys.steps.begin import begin, ended
from operations.run import lease
from operations.run.job import stage, stage_for_those_left
from operations.undo import undo

here = begin("undo", None, extra=("journal",))
force = [path for path in str(host.data.get("force") or "").split(",") if path]

stage_for_those_left(here, "Preflight")
lease.alone(here, name="No other run is at work on any host")
undo.allowed(here, name="No rank runs on any host")
stage(here, "Undo")
undo.undone(here, force=force, name="Host given back as it was")
ended(here)

"""Take the running stack down and bring the rollback stack back, timed, with its watchdog.

STOPS SERVING unless the rollback stack already serves.
Needs: the rollback stack's files where it was (a compose project on each host), its image.
Undone by: serve.py.
"""

from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host

from deploys.steps.begin import begin, checked, ended
from deploys.steps.host_state import pinned
from deploys.steps.launch import launched
from deploys.steps.takeover import cleaned, torn_down, watchdogs_held, watchdogs_rearmed
from operations.run import program

if not host.data.get("rollback_stack"):
    raise PyinfraError("the owner's file names no rollback_stack")
here = begin("rollback_dsf", host.data.rollback_stack, launches=True, extra=("holders",))

checked(here)
program.installed(here, name="On-host program installed")
pinned(here)
watchdogs_held(here, for_good=False)
torn_down(here)
cleaned(here)
launched(here)
watchdogs_rearmed(here)
ended(here)

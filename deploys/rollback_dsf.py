"""Take the running stack down and bring the rollback stack back, timed, with its watchdog.

STOPS SERVING unless the rollback stack already serves.
Needs: the owner's rollback_stack, its files where it was (a compose project on each host) and its
image; or, where none is named, what serve.py or adopt.py took on as the stack `previous`.
Undone by: serve.py.
"""

from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host

from deploys.steps.begin import begin, checked, ended, previous_name
from deploys.steps.host_state import pinned
from deploys.steps.launch import launched, needed
from deploys.steps.takeover import cleaned, torn_down, watchdogs_held, watchdogs_rearmed
from operations.run import program

name = host.data.get("rollback_stack") or previous_name(host.data.cluster)
if not name:
    raise PyinfraError(
        "the owner's file names no rollback_stack, and no engine was taken on; deploys/adopt.py "
        "takes on what runs now"
    )
here = begin("rollback_dsf", name, launches=True, extra=("holders",))

checked(here)
program.installed(here, name="On-host program installed")
pinned(here)
needed(here)
watchdogs_held(here, for_good=False)
torn_down(here)
cleaned(here)
launched(here)
watchdogs_rearmed(here)
ended(here)

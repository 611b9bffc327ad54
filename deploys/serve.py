"""Bring the cluster to its known state and serve the wanted stack on it.

STOPS SERVING when something else runs (or the same with other settings); else changes nothing.
Needs: a locked stack, its image in the registry or on the hosts, its files in model_dir.
Undone by: rollback_dsf.py (the stack), undo.py (the hosts).
"""

from pyinfra.context import host

from deploys.steps.adopt import taken_on
from deploys.steps.begin import begin, checked, ended
from deploys.steps.host_state import harmless, pinned
from deploys.steps.launch import launched, needed
from deploys.steps.takeover import cleaned, torn_down, watchdogs_held
from operations.network import fabric
from operations.run.job import stage

here = begin("serve", host.data.stack, settles=True, launches=True, extra=("holders", "adoptable"))

checked(here, adopts=True)
harmless(here)
pinned(here)
stage(here, "Fabric on paper")
fabric.mergeable(here, name="netplan takes the fabric's file")
needed(here)
taken_on(here)
watchdogs_held(here, for_good=True)
torn_down(here)
stage(here, "Fabric")
fabric.converged(here, after_teardown=True, name="Fabric as the owner's file says")
cleaned(here)
launched(here)
ended(here)

"""Bring the hosts to their known state without launching anything.

MUTATES HOST, never a running engine: while a rank runs, the fabric waits and is named.
Model files go on being read at the hosts when this run is cut off; the next run joins that.
`--data verify=full`: read every byte of the model, whatever was proven before.
Undone by: undo.py, or `sudo spark-converge-undo` at the host itself.
"""

from pyinfra.context import host

from deploys.steps.begin import begin, checked, ended
from deploys.steps.host_state import harmless, pinned
from operations.network import fabric
from operations.run.job import stage

here = begin("prepare", host.data.stack, settles=True)

checked(here)
harmless(here)
pinned(here)
stage(here, "Fabric")
fabric.converged(here, after_teardown=False, name="Fabric as the owner's file says")
ended(here)

"""Take every rank of any known stack down, head first, and prove that it stays down.

STOPS SERVING. A host that cannot be reached is said; the others are taken down all the same.
The proof takes 70 seconds; `--data quiet=SECONDS` makes it longer or shorter.
Undone by: serve.py, or rollback_dsf.py.
"""

from pyinfra.context import host

from deploys.steps.begin import begin, quiet_s
from deploys.steps.takeover import STOP_QUIET_S, stop_reachable

run = begin("stop", None)
stop_reachable(run=run, rank=host.data.rank, quiet_s=quiet_s(STOP_QUIET_S))

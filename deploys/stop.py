"""Take every rank of any known stack down, head first, and prove that it stays down.

STOPS SERVING. A host that cannot be reached is said; the others are taken down all the same.
Undone by: serve.py, or rollback_dsf.py.
"""

from pyinfra.context import host

from deploys.steps.begin import begin
from deploys.steps.takeover import stop_reachable

run = begin("stop", None)
stop_reachable(run=run, rank=host.data.rank)

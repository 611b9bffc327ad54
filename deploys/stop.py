"""Take every rank of any known stack down, head first, and prove that it stays down.

STOPS SERVING. A host that cannot be reached is said; the others are taken down all the same.
The proof takes 70 seconds; `--data quiet=SECONDS` makes it longer or shorter.
Undone by: serve.py, or rollback_dsf.py.
"""

from deploys.steps.begin import begin
from deploys.steps.takeover import stopped

stopped(begin("stop", None))

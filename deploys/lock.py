"""Take the hashes of a stack's model from a full read on every host, where the Hub has none.

READ-ONLY on the hosts, but for the on-host program. Reads the whole model (181 GiB of a large one).
Needs: the Hub, for the files and sizes of the revision, asked before anything is read; all hosts
alike. The lock that would change is shown, and written to this machine when a person agrees
(`--data yes=yes` without a terminal).
`--data model=ORG/NAME --data revision=REV` for a stack that has no lock yet, or another model.
"""

from pyinfra.context import host

from deploys.steps.begin import begin, ended
from operations.model import lock
from operations.run import lease, program
from operations.run.job import stage, stage_for_those_left

here = begin("lock", host.data.stack)
stack = here.stack
model = lock.model_of(stack, host.data.get("model"), host.data.get("revision"))

stage_for_those_left(here, "Preflight")
lease.alone(here, name="No other run is at work on any host")
lock.allowed(here, name="All hosts are there")
stage(here, "Hub")
if here.rank == 0:
    lock.asked(here, model=model, name=f"Files of {model[0]} asked of the Hub")
stage(here, "Program")
program.installed(here, name="On-host program installed")
stage(here, "Full read")
lock.surveyed(here, name=f"Model files of {stack.name} read in full")
stage(here, "Lock")
if here.rank == 0:
    lock.settled(here, yes=host.data.get("yes") == "yes", name=f"Lock of {stack.name} written")
ended(here)

"""Take on what runs now, of whatever stack, so that deploys/rollback_dsf.py can bring it back.

READ-ONLY on the engines. Keeps, on each host, all that its rank was made from, readable by root
alone; writes the stack `previous` on this machine and shows it. Environments stay on the hosts.
Needs: ranks of one engine on all hosts, answering. serve.py does the same by itself.
Undone by: undo.py, for the name that an image of no registry got.
"""

from deploys.steps.adopt import taken_on
from deploys.steps.begin import begin, ended
from operations.adopt import adopt
from operations.run import lease, program
from operations.run.job import stage, stage_for_those_left

here = begin("adopt", None, extra=("adoptable",))

stage_for_those_left(here, "Preflight")
lease.alone(here, name="No other run is at work on any host")
adopt.allowed(here, name="What runs can be brought back")
stage(here, "Program")
program.installed(here, name="On-host program installed")
stage(here, "Engine kept")
taken_on(here)
ended(here)

"""Bring the model's files that are missing or wrong, and only those; prove all of them by SHA-256.

MUTATES HOST, never a running engine: files below model_dir, each put in place whole.
What one host has goes to the others over the fabric; what none has comes from the Hub (HF_ENDPOINT,
HF_TOKEN of this machine) at the locked revision, once. `--data source=hub`: all from the Hub.
`--data verify=full`: read every byte first. Long work goes on at the hosts when this run is cut
off; the next run joins it, and goes on from its part files.
Undone by: undo.py, for what was moved aside; model files that were brought stay.
"""

from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host

from deploys.steps.begin import begin, full_read
from operations.model import fetch
from operations.run import job, lease, program

run = begin("fetch", host.data.stack)
rank = host.data.rank
stack = run.stack
assert stack is not None  # noqa: S101 - begin() refuses an unknown name
source = host.data.get("source")
if source not in (None, "hub"):
    raise PyinfraError(f"source={source} found; hub allowed")

job.milestone(job=run, title="Preflight", name="Stage: Preflight")
lease.alone(job=run, name="No other run is at work on any host")
fetch.allowed(job=run, stack=stack, name="All hosts are there, and it is known what is right")
job.barrier(job=run, title="Program", name="Passed on all hosts")
program.installed(job=run, rank=rank, name="On-host program installed")
job.barrier(job=run, title="Model files", name="Stage: Model files")
if rank == 0:
    fetch.brought(
        job=run,
        stack=stack,
        hub_only=source == "hub",
        full=full_read(),
        name=f"Model files of {stack.name} right on every host",
    )
job.barrier(job=run, title="Model files", name="Every file is right on every host")
lease.released(job=run, rank=rank, name="The next run may begin")

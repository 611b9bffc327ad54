"""Bring the model's files that are missing or wrong, and only those; prove all of them by SHA-256.

MUTATES HOST, never a running engine: files below model_dir, each put in place whole.
What one host has goes to the others over the fabric; what none has comes from the Hub (HF_ENDPOINT,
HF_TOKEN of this machine) at the locked revision, once. `--data source=hub`: all from the Hub.
`--data verify=full`: read every byte first. Long work goes on at the hosts when this run is cut
off; the next run joins it, and goes on from its part files.
Undone by: undo.py, for what was moved aside; model files that were brought stay.
"""

from pyinfra.context import host

from deploys.steps.begin import begin, ended, full_read, word
from operations.model import fetch
from operations.run import lease, program
from operations.run.job import stage, stage_for_those_left

here = begin("fetch", host.data.stack)
hub_only = word("source", "hub")

stage_for_those_left(here, "Preflight")
lease.alone(here, name="No other run is at work on any host")
fetch.allowed(here, name="All hosts are there, and it is known what is right")
stage(here, "Program")
program.installed(here, name="On-host program installed")
stage(here, "Model files")
if here.rank == 0:
    fetch.brought(
        here,
        hub_only=hub_only,
        full=full_read(),
        name=f"Model files of {here.stack.name} right on every host",
    )
ended(here)

"""From whatever runs now to empty hosts, in the order that leaves nothing half done."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from operations.launch import ritual, teardown
from operations.run import job, lease, program, tolerated
from operations.run.job import Job
from operations.watchdogs import crontab, resurrection

# The seed's worker came back within minutes; a watchdog of the lab runs every minute.
STOP_QUIET_S = 70


@deploy("Watchdogs")
def hold_watchdogs(run: Job, rank: int, for_good: bool) -> None:
    """Before any teardown: hold what would bring an engine back, for good or for the launch."""
    job.barrier(job=run, title="Watchdogs held", name="Stage: Watchdogs held")
    crontab.held(
        job=run, rank=rank, for_good=for_good, name="Cron watchdogs held behind a dated tag"
    )
    resurrection.held(
        job=run, rank=rank, for_good=for_good, name="Units and timers that start engines held"
    )


@deploy("Watchdogs")
def rearm_watchdogs(run: Job, rank: int) -> None:
    """The stack that they guard serves again: held lines are given back byte for byte."""
    job.barrier(job=run, title="Watchdogs re-armed", name="Stage: Watchdogs re-armed")
    crontab.rearmed(job=run, rank=rank, name="Held cron lines given back")
    resurrection.rearmed(job=run, rank=rank, name="Held units and timers given back")
    job.barrier(job=run, title="Watchdogs re-armed", name="Done")


@deploy("Stop")
def stop_reachable(run: Job, rank: int, quiet_s: int) -> None:
    """As the teardown of a launch, but a host that fails does not keep the others up."""
    job.milestone(job=run, title="Watchdogs held", name="Stage: Watchdogs held")
    lease.alone(job=run, partly=True, name="No other run is at work on any host")
    # Errors ignored: pyinfra would drop the host, and its rank would stay up without its head.
    install, cron, units = (
        "On-host program installed",
        "Cron watchdogs held behind a dated tag",
        "Units and timers that start engines held",
    )
    steps = {
        install: program.installed(job=run, rank=rank, name=install, _ignore_errors=True),
        cron: crontab.held(job=run, rank=rank, for_good=True, name=cron, _ignore_errors=True),
        units: resurrection.held(
            job=run, rank=rank, for_good=True, name=units, _ignore_errors=True
        ),
    }
    tolerated.blamed(job=run, rank=rank, steps=steps, name="What failed so far is remembered")
    job.milestone(job=run, title="Ranks down", name="Stage: Ranks down")
    if rank == 0:
        teardown.ended(job=run, rank=rank, fabric_too=False, name="Head rank down")
    job.milestone(job=run, title="Ranks down", name="Head is done")
    if rank > 0:
        teardown.ended(job=run, rank=rank, fabric_too=False, name="Worker rank down")
    job.milestone(job=run, title="Nothing comes back", name="Stage: Nothing comes back")
    teardown.stay_down(
        job=run, seconds=quiet_s, fabric_too=False, name="No container starts by itself"
    )
    job.barrier(job=run, title="Verdict", name="All hosts were reached and are down")
    lease.released(job=run, rank=rank, name="The next run may begin")


@deploy("Teardown")
def tear_down(run: Job, rank: int, fabric_too: bool) -> None:
    """All ranks, head first: while it stands, a worker that goes leaves it hanging for clients."""
    job.barrier(job=run, title="Old ranks down", name="Stage: Old ranks down")
    if rank == 0:
        teardown.ended(job=run, rank=rank, fabric_too=fabric_too, name="Head rank down")
    job.barrier(job=run, title="Old ranks down", name="Head is down")
    if rank > 0:
        teardown.ended(job=run, rank=rank, fabric_too=fabric_too, name="Worker rank down")
    job.barrier(job=run, title="Old ranks down", name="Workers are down")
    teardown.foreign_stopped(job=run, rank=rank, name="Other containers stopped where allowed")


@deploy("Clean")
def clean(run: Job, rank: int, quiet_s: int, fabric_too: bool) -> None:
    """Dead segments away, then a watch that nothing comes back."""
    job.barrier(job=run, title="Shared memory clean", name="Stage: Shared memory clean")
    ritual.shm_clean(job=run, rank=rank, name="Dead segments in /dev/shm removed")
    job.barrier(job=run, title="Nothing comes back", name="Stage: Nothing comes back")
    teardown.stay_down(
        job=run, seconds=quiet_s, fabric_too=fabric_too, name="No container starts by itself"
    )

"""From whatever runs now to empty hosts, in the order that leaves nothing half done."""

from __future__ import annotations

from deploys.steps.begin import quiet_s
from operations.launch import teardown
from operations.memory import ritual
from operations.run import lease, program, tolerated
from operations.run.job import Here, checklist, stage, stage_for_those_left, together
from operations.watchdogs import crontab, resurrection

# The seed's worker came back within minutes; a watchdog of the lab runs every minute.
STOP_QUIET_S = 70


@checklist("Watchdogs")
def watchdogs_held(here: Here, for_good: bool) -> None:
    """Before any teardown: hold what would bring an engine back, for good or for the launch."""
    stage(here, "Watchdogs held")
    crontab.held(here, for_good=for_good, name="Cron watchdogs held behind a dated tag")
    resurrection.held(here, for_good=for_good, name="Units and timers that start engines held")


@checklist("Watchdogs")
def watchdogs_rearmed(here: Here) -> None:
    """The stack that they guard serves again: held lines are given back byte for byte."""
    stage(here, "Watchdogs re-armed")
    crontab.rearmed(here, name="Held cron lines given back")
    resurrection.rearmed(here, name="Held units and timers given back")


@checklist("Stop")
def stopped(here: Here) -> None:
    """As the teardown of a launch, but a host that fails does not keep the others up."""
    stage_for_those_left(here, "Watchdogs held")
    lease.alone(here, partly=True, name="No other run is at work on any host")
    # Errors ignored: pyinfra would drop the host, and its rank would stay up without its head.
    steps = {
        title: step(here, **words, name=title, _ignore_errors=True)
        for title, step, words in (
            ("On-host program installed", program.installed, {}),
            ("Cron watchdogs held behind a dated tag", crontab.held, {"for_good": True}),
            ("Units and timers that start engines held", resurrection.held, {"for_good": True}),
        )
    }
    tolerated.blamed(here, steps=steps, name="What failed so far is remembered")
    stage_for_those_left(here, "Ranks down")
    if here.rank == 0:
        teardown.ended(here, name="Head rank down")
        teardown.foreign_stopped(here, engines_only=True, name="Other engines of the head stopped")
    stage_for_those_left(here, "Ranks down", name="Head is done")
    if here.rank > 0:
        teardown.ended(here, name="Worker rank down")
        teardown.foreign_stopped(here, engines_only=True, name="Other engines stopped")
    stage_for_those_left(here, "Nothing comes back")
    teardown.stay_down(here, seconds=quiet_s(STOP_QUIET_S), name="No container starts by itself")
    teardown.none_left(here, name="No other engine runs")
    together(here, "All hosts were reached and are down")
    lease.released(here, name="The next run may begin")


@checklist("Teardown")
def torn_down(here: Here) -> None:
    """All ranks, head first: while it stands, a worker that goes leaves it hanging for clients."""
    stage(here, "Old ranks down")
    if here.rank == 0:
        teardown.ended(here, name="Head rank down")
    together(here, "Head is down")
    if here.rank > 0:
        teardown.ended(here, name="Worker rank down")
    together(here, "Workers are down")
    if here.rank == 0:
        teardown.foreign_stopped(here, engines_only=False, name="Other containers of the head")
    together(here, "Head has none but what is left to it")
    if here.rank > 0:
        teardown.foreign_stopped(here, engines_only=False, name="Other containers of workers")


@checklist("Clean")
def cleaned(here: Here) -> None:
    """Dead segments away, then a watch that nothing comes back."""
    stage(here, "Shared memory clean")
    ritual.shm_clean(here, name="Dead segments in /dev/shm removed")
    stage(here, "Nothing comes back")
    seconds = quiet_s(here.stack.deadlines.quiet_s)
    teardown.stay_down(here, seconds=seconds, name="No container starts by itself")

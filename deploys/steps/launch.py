"""The ritual, then the launch with its proof."""

from __future__ import annotations

from operations.launch import bind, needs, ping, rdma
from operations.memory import ritual
from operations.run.job import Here, checklist, stage, together


@checklist("Needs")
def needed(here: Here) -> None:
    """All that a launch of the stack needs on every host, before the old engine goes."""
    needs.met(here, name=f"Every host has what {here.stack.name} needs")
    together(here, "No host lacks anything")


@checklist("Launch")
def launched(here: Here) -> None:
    """Caches dropped, fabric pinged, workers then head, a real completion; both ranks or none."""
    stage(here, "Memory ritual")
    ritual.caches_dropped(here, name="Page cache dropped")
    stage(here, "Full frames")
    ping.crossed(here, name="Full frames cross the fabric")
    stage(here, "RDMA")
    if here.rank == 0:
        rdma.exchanged(here, name="RDMA messages cross the fabric")
    stage(here, "Bind")
    if here.rank == 0:
        bind.bound(here, name=f"{here.stack.name} bound and answering")

"""The ritual, then the launch with its proof."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from operations.launch import bind, ping, rdma, ritual
from operations.run import job
from operations.run.job import Job
from stacks.definition import Stack


@deploy("Launch")
def launch(run: Job, rank: int, stack: Stack, fabric_too: bool) -> None:
    """Caches dropped, fabric pinged, workers then head, a real completion; both ranks or none."""
    job.barrier(job=run, title="Memory ritual", name="Stage: Memory ritual")
    ritual.caches_dropped(
        job=run,
        floor_mib=stack.memory.floor_mib,
        fabric_too=fabric_too,
        name="Page cache dropped",
    )
    job.barrier(job=run, title="Full frames", name="Stage: Full frames")
    ping.ping(job=run, rank=rank, fabric_too=fabric_too, name="Full frames cross the fabric")
    job.barrier(job=run, title="RDMA", name="Stage: RDMA")
    if rank == 0:
        rdma.exchanged(job=run, fabric_too=fabric_too, name="RDMA messages cross the fabric")
    job.barrier(job=run, title="Bind", name="Stage: Bind")
    if rank == 0:
        bind.bound(job=run, fabric_too=fabric_too, name=f"{stack.name} bound and answering")
    job.barrier(job=run, title="Bind", name="All ranks serve")

"""What a host is brought to while an engine may still run on it."""

from __future__ import annotations

from pyinfra import logger
from pyinfra.api.deploy import deploy
from pyinfra.context import host

from deploys.steps.begin import full_read, host_settings
from operations.clocks import cpufreq, governor_owners, gpu
from operations.memory import sysctl
from operations.model import images, shards
from operations.run import job, program
from operations.run.job import Job
from operations.systemd import boot, logind, maintenance, services, userunits
from stacks.definition import Stack


@deploy("Host")
def harmless(run: Job, rank: int) -> None:
    """Updates held, boot target, desktop, clocks: nothing here touches a running engine."""
    settings = host_settings()
    program.installed(job=run, rank=rank, name="On-host program installed")
    job.barrier(job=run, title="Updates held", name="Stage: Updates held")
    maintenance.held(
        job=run, rank=rank, names=settings["maintenance_held"], name="Updates of the host held"
    )
    job.barrier(job=run, title="Host state", name="Stage: Host state")
    boot.default_target(
        job=run, rank=rank, target=settings["boot_target"], name="Boots without a desktop"
    )
    services.down_for_good(
        job=run, rank=rank, names=settings["services_down"], name="Desktop services down for good"
    )
    userunits.down_for_good(job=run, rank=rank, name="Desktop units of users down for good")
    governor_owners.sole_owner(
        job=run,
        rank=rank,
        names=settings["governor_owners"],
        name="Nothing else sets the CPU governor",
    )
    cpufreq.governor(
        job=run, rank=rank, want=settings["governor"], name="CPU governor on every policy"
    )
    cpufreq.capped(job=run, rank=rank, name="CPU clock cap on every policy")
    gpu.locked(job=run, rank=rank, name="GPU clocks locked")
    sysctl.converged(
        job=run, rank=rank, want=settings["sysctl"], name="Kernel settings of the engine stacks"
    )
    logind.keeps_ipc(job=run, rank=rank, name="Shared memory outlives a login")


@deploy("Pinned bytes")
def pinned(run: Job, rank: int, stack: Stack) -> None:
    """Image by digest, model files by SHA-256, with the old engine still serving.

    Of a stack that is unlocked nothing is fetched; what its lock lacks is said.
    """
    if stack.unlocked:
        for gap in stack.unlocked:
            host.log(f"passed over: {gap}", log_func=logger.warning)
        return
    job.barrier(job=run, title="Image by digest", name="Stage: Image by digest")
    images.present(job=run, rank=rank, stack=stack, name=f"Image of {stack.name} by digest")
    job.barrier(job=run, title="Shards by SHA-256", name="Stage: Shards by SHA-256")
    shards.verified(
        job=run,
        rank=rank,
        stack=stack,
        full=full_read(),
        name=f"Model files of {stack.name} by SHA-256",
    )

"""What a host is brought to while an engine may still run on it."""

from __future__ import annotations

from deploys.steps.begin import full_read
from operations.clocks import cpufreq, governor_owners, gpu
from operations.engines import env_files
from operations.memory import sysctl
from operations.model import images, shards
from operations.run import program
from operations.run.job import Here, checklist, stage
from operations.systemd import boot, logind, maintenance, services, userunits


@checklist("Host")
def harmless(here: Here) -> None:
    """Updates held, boot target, desktop, clocks: nothing here touches a running engine."""
    program.installed(here, name="On-host program installed")
    stage(here, "Updates held")
    maintenance.held(here, name="Updates of the host held")
    stage(here, "Host state")
    boot.default_target(here, name="Boots without a desktop")
    services.down_for_good(here, name="Desktop services down for good")
    userunits.down_for_good(here, name="Desktop units of users down for good")
    governor_owners.sole_owner(here, name="Nothing else sets the CPU governor")
    cpufreq.governor(here, name="CPU governor on every policy")
    cpufreq.capped(here, name="CPU clock cap on every policy")
    gpu.locked(here, name="GPU clocks locked")
    sysctl.converged(here, name="Kernel settings of the engine stacks")
    logind.keeps_ipc(here, name="Shared memory outlives a login")


@checklist("Pinned bytes")
def pinned(here: Here) -> None:
    """Image by digest, model files by SHA-256, with the old engine still serving.

    Of a stack that is unlocked nothing is fetched; what its lock lacks is said.
    """
    stack = here.stack
    if stack.adopted is not None:  # its hosts have what it ran; the needs of the launch are asked
        return
    if stack.unlocked:
        for gap in stack.unlocked:
            here.warn(f"passed over: {gap}")
        return
    if stack.container and stack.container.env_files:
        stage(here, "Secrets")
        env_files.private(here, name=f"Files with secrets of {stack.name} are root's alone")
    stage(here, "Image by digest")
    images.present(here, name=f"Image of {stack.name} by digest")
    stage(here, "Shards by SHA-256")
    shards.verified(here, full=full_read(), name=f"Model files of {stack.name} by SHA-256")

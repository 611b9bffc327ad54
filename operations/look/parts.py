"""Every part of a host that is read and judged, in the order of verify's page: the one list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from facts.snapshot import Ask
from inventory.host_settings import shipped
from inventory.schema import Cluster
from operations.clocks import cpufreq, governor_owners, gpu
from operations.engines import recognise
from operations.look import machine
from operations.memory import holders, kernel, oom, ritual, sysctl
from operations.model import images, shards
from operations.network import findings as network
from operations.network import reach
from operations.pair import identity, ports
from operations.run import program
from operations.run.findings import Finding, Look
from operations.systemd import boot, logind, maintenance, services, userunits
from operations.watchdogs import resurrection
from stacks.definition import Stack


@dataclass(frozen=True)
class Part:
    """assess: what is found; of_stack: only where a job is about a stack; needed: parts of a host's
    state that every job with a preflight must have read; settled: the same of jobs that bring hosts
    to the owner's file; files and units: of our own, which are read for it."""

    assess: Callable[[Look], Iterable[Finding]]
    needed: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    of_stack: bool = False
    files: tuple[str, ...] = ()
    units: tuple[str, ...] = ()


PARTS = (
    Part(boot.assess, settled=("boot",)),
    Part(kernel.assess),
    Part(program.assess, files=(program.UNDO_COMMAND,)),
    Part(services.assess, settled=("services",)),
    Part(userunits.assess, settled=("userunits",)),
    Part(maintenance.assess, settled=("maintenance",), files=(maintenance.NEEDRESTART,)),
    Part(cpufreq.assess, settled=("cpufreq",), files=(cpufreq.UNIT_PATH,), units=(cpufreq.UNIT,)),
    Part(governor_owners.assess),
    Part(cpufreq.assess_cap),
    Part(gpu.assess, files=(gpu.UNIT_PATH,), units=(gpu.UNIT,)),
    Part(network.assess, needed=("fabric",)),
    Part(reach.assess, settled=("reach",)),
    Part(recognise.assess, needed=("containers", "outside")),
    Part(ritual.assess, needed=("memory",), of_stack=True),
    Part(holders.assess, of_stack=True),
    Part(sysctl.assess, settled=("sysctl",), files=(sysctl.PATH,)),
    Part(logind.assess, settled=("logind",), files=(logind.PATH,)),
    Part(oom.assess, settled=("oom",), of_stack=True),
    Part(images.assess, of_stack=True),
    Part(shards.assess, of_stack=True),
    Part(ports.assess, needed=("listeners",), of_stack=True),
    Part(resurrection.assess, needed=("crontab", "starters"), of_stack=True),
    Part(identity.assess, of_stack=True),
    Part(machine.assess),
)


def findings(look: Look) -> Iterator[Finding]:
    """Everything that is found of one host."""
    for part in PARTS:
        if look.about is not None or not part.of_stack:
            yield from part.assess(look)


def must_be_read(look: Look) -> set[str]:
    """The parts of the host's state without which the job does not begin."""
    return {name for p in PARTS for name in (*p.needed, *(p.settled if look.settles else ()))}


def ask_of(
    cluster: Cluster, stack: Stack | None, known: tuple[Stack, ...], extra: tuple[str, ...] = ()
) -> Ask:
    """What a job reads of a host that it brings to, or checks for, a stack."""
    settings, wanted = shipped(), [stack] if stack else []
    gpu_too = cluster.clocks.gpu_mhz is not None and "machine" not in extra
    return Ask(
        units=(
            *settings.services_down,
            *settings.governor_owners,
            *settings.maintenance_held,
            *(name for part in PARTS for name in part.units),
        ),
        user_units=settings.user_units_down,
        images=tuple(one.image_reference for one in wanted if one.image and not one.unlocked),
        shards=tuple(
            (shards.directory(one, cluster.model_dir), shards.lock_id(one))
            for one in wanted
            if one.model
        ),
        files=tuple(path for part in PARTS for path in part.files),
        words=resurrection.stack_words(known),
        sysctl=(*settings.sysctl, ports.RANGE, ports.RESERVED),
        ports=ports.asked(cluster, wanted, known),
        extra=(*extra, "gpu") if gpu_too else extra,
    )

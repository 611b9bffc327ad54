"""Every part of a host that is judged, in the order of verify's page: the one list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Part:
    """assess: what is found; of_stack: only where a job is about a stack; needed: parts of a host's
    state that every job with a preflight must have read; settled: the same of jobs that bring hosts
    to the owner's file."""

    assess: Callable[[Look], Iterable[Finding]]
    needed: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    of_stack: bool = False


PARTS = (
    Part(boot.assess, settled=("boot",)),
    Part(kernel.assess),
    Part(program.assess),
    Part(services.assess, settled=("services",)),
    Part(userunits.assess, settled=("userunits",)),
    Part(maintenance.assess, settled=("maintenance",)),
    Part(cpufreq.assess, settled=("cpufreq",)),
    Part(governor_owners.assess),
    Part(cpufreq.assess_cap),
    Part(gpu.assess),
    Part(network.assess, needed=("fabric",)),
    Part(reach.assess, settled=("reach",)),
    Part(recognise.assess, needed=("containers",)),
    Part(ritual.assess, needed=("memory",), of_stack=True),
    Part(holders.assess, of_stack=True),
    Part(sysctl.assess, settled=("sysctl",)),
    Part(logind.assess, settled=("logind",)),
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

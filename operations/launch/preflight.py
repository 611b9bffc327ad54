"""Everything that would stop a launch later, found before anything is changed; all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyinfra import logger

from facts.clocks.cpufreq import Cpufreq
from facts.look.machine import Gpus
from facts.memory.memory import Memory
from facts.model.shards import Shards
from facts.network.fabric import Fabric
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.watchdogs.starters import Starters
from inventory.schema import Cluster, Node
from operations.clocks import cpufreq, gpu
from operations.engines.recognise import by_podman, foreign, podman_engines
from operations.launch import ritual
from operations.memory import holders, oom
from operations.model import images, shards
from operations.network import comm, netplan, reach
from operations.pair import ports
from operations.pair.identity import specs, unlike
from operations.run.job import Commands, Here, Job, refuse_beforehand, step
from operations.run.roll_call import absent_hosts
from operations.watchdogs import resurrection
from stacks.definition import Stack, StackError
from stacks.render import check_pair

# Parts of a host's state without which no rank can be taken down or launched ...
NEEDED = ("fabric", "memory", "crontab", "starters", "containers", "listeners")
# ... and those without which the host cannot be brought to its wanted state.
SETTLED = (
    *("boot", "services", "cpufreq", "sysctl", "logind", "oom"),
    *("maintenance", "reach", "userunits"),
)


def host_complaints(job: Job, node: Node, state: HostState) -> Iterator[str]:
    """Why this host cannot be converged; in other jobs, why nothing can be launched on it."""
    needed = (*NEEDED, *SETTLED) if job.settles else NEEDED
    unread = {part: why for part, why in state.unknowns().items() if part in needed}
    if len(unread) == len(needed) and len(set(unread.values())) == 1:
        yield f"{node.name}: its state could not be read ({unread['containers'].reason})"
        return
    yield from (f"{node.name}: {part} {unknown}" for part, unknown in unread.items())
    if not isinstance(state.containers, Unknown) and not state.containers.installed:
        yield f"{node.name}: docker is not installed"
    if not job.settles:  # governor, clocks and netplan's files stay as they are
        return
    if isinstance(state.cpufreq, Cpufreq):
        yield from (
            f"{node.name}: {s}" for s in cpufreq.not_offered(state.cpufreq, job.settings.governor)
        )
    yield from (f"{node.name}: {s}" for s in clock_complaints(job.cluster, state))
    if isinstance(state.fabric, Fabric):
        yield from netplan.complaints(job.cluster, node, state.fabric)
    yield from reach.complaints(job.cluster, node, state)


def clock_complaints(cluster: Cluster, state: HostState) -> Iterator[str]:
    """Clocks of the owner's file that this host cannot run at."""
    wanted = cluster.clocks
    if wanted.cpu_max_mhz is not None and isinstance(state.cpufreq, Cpufreq):
        yield from cpufreq.not_cappable(state.cpufreq, wanted.cpu_max_mhz)
    if wanted.gpu_mhz is not None and isinstance(found := gpu.seen(state), Gpus):
        yield from gpu.not_offered(found, wanted.gpu_mhz)


def launch_complaints(
    cluster: Cluster, node: Node, state: HostState, stack: Stack, known: tuple[Stack, ...]
) -> Iterator[str]:
    """Why this host cannot take a rank of the stack."""
    others = [c.name for c in foreign(state, known)]
    if others and cluster.policy.foreign_containers == "refuse":
        yield (
            f"{node.name}: {', '.join(others)} of no known stack runs and holds memory; stop it, "
            "or allow that with policy.foreign_containers: stop"
        )
    yield from (f"{node.name}: {s}" for s in podman_engines(state, known))
    for one, owned in by_podman(state, known):
        if owned is None and cluster.policy.foreign_containers == "refuse":
            yield (
                f"{node.name}: {one.title} of no known stack runs and holds memory; stop it "
                f"({one.stop}), or leave it there with policy.foreign_containers: stop, which "
                "stops docker's only"
            )
    where = shards.directory(stack, cluster.model_dir)
    if isinstance(state.shards, Shards) and state.shards.state.get(where) == "absent":
        yield f"{node.name}: no model directory {where} (model_dir in the owner's file)"
    yield from (f"{node.name}: {s}" for s in images.complaints(state, stack))
    floor = stack.memory.floor_mib
    if isinstance(state.memory, Memory) and state.memory.usable_mib < floor:
        reserved = state.memory.hugepages_mib
        lost = f", {reserved} of them reserved for huge pages" if reserved else ""
        mend = "; set vm.nr_hugepages to 0, and take it out of sysctl.d" if reserved else ""
        yield (
            f"{node.name}: {state.memory.total_mib} MiB of memory in all{lost}, {stack.name} "
            f"wants {floor} MiB available{mend}"
        )
    if isinstance(state.memory, Memory):
        yield from (f"{node.name}: {s}" for s in ritual.shm_complaints(state.memory, stack))
    yield from (f"{node.name}: {s}" for s in oom.refusals(state, stack))
    taken = ports.refusals(cluster, node.rank, state, stack, known)
    yield from (f"{node.name}: {s}" for s in taken)
    if isinstance(state.starters, Starters):
        yield from (f"{node.name}: {s}" for s in resurrection.refusals(state.starters))


def complaints(job: Job) -> list[str]:
    """All complaints about all hosts; reads every reachable host once."""
    absent = absent_hosts(job)
    said = list(absent)
    if job.stack is not None and job.launches:
        lock = f"files/stacks/{job.stack.name}.lock.yaml"
        gaps = job.stack.unlocked
        said += [f"unlocked: {gap}; not launched before {lock} names them" for gap in gaps]
    if absent:
        return said
    states = job.states()
    for node, state in zip(job.cluster.nodes, states, strict=True):
        said += host_complaints(job, node, state)
        if job.stack is not None and job.launches:
            said += launch_complaints(job.cluster, node, state, job.stack, job.known)
    # Of ranks that run as wanted nothing is loaded anew, whatever room a load would need.
    if job.stack is not None and job.launches and unlike(job, job.stack):
        for node, state in zip(job.cluster.nodes, states, strict=True):
            said += [f"{node.name}: {s}" for s in holders.refusals(state, job.stack)]
    read = not any(isinstance(state.fabric, Unknown) for state in states)  # else it is said above
    if job.stack is not None and job.launches and read:
        try:
            made = specs(job.cluster, job.stack, states)
            said += check_pair(made)
            for spec, fabric in zip(made, fabrics_of(states), strict=True):
                said += comm.socket_faults(job.cluster, spec, fabric)
        except StackError as error:
            said += error.lines
    return list(dict.fromkeys(said))


def fabrics_of(states: Sequence[HostState]) -> list[Fabric]:
    """The fabrics that could be read, in rank order."""
    return [state.fabric for state in states if isinstance(state.fabric, Fabric)]


def advise(job: Job) -> None:
    """Say once a run, and keep in its receipt, what is worth knowing and forbids nothing."""
    with job.lock:
        if "advice" in job.figures:
            return
        states = job.states()
        made = (
            specs(job.cluster, job.stack, states) if job.stack is not None and job.launches else []
        )
        said = list(comm.advice(job.cluster, fabrics_of(states), made))
        for node, state in zip(job.cluster.nodes, states, strict=True):
            if isinstance(state.fabric, Fabric):
                said += netplan.advice(job.cluster, node, state.fabric)
        if job.stack is not None and job.launches:
            for node, state in zip(job.cluster.nodes, states, strict=True):
                chance = ports.by_chance(node.rank, state, job.stack)
                said += [f"{node.name}: {line}" for line in (*chance, *oom.advice(state))]
        job.figures["advice"] = said
    for line in job.figures["advice"]:
        logger.warning(f"    advice: {line}")


@step
def passed(here: Here) -> Commands:
    """
    Refuse the whole run, on every host, when anything about any host forbids it.

    + here: this host's share of the run
    """
    said = complaints(here.job)
    if not said:
        advise(here.job)
        return
    yield refuse_beforehand(here.job, said)

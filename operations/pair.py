"""The pair as one thing: which ranks run, and whether that is what was asked for. Pure but for
`faults`, which reads the hosts, and `ask_head`, which asks the model itself."""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyinfra.api.host import Host

from facts.containers import Container, Containers, Podman
from facts.fabric import Fabric
from facts.snapshot import HostState
from facts.unknown import Unknown
from gates.canary import canary
from gates.client import NoAnswer, Reply
from gates.tunnel import tunnel
from inventory.schema import Cluster
from operations.job import Job
from operations.netplan import why_not_converged
from stacks.definition import Stack, StackError
from stacks.render import FabricFacts, RankSpec, rank_spec


@dataclass(frozen=True)
class Found:
    """A container of a known stack on the host of `rank`."""

    rank: int
    stack: str
    container: Container


def stack_of(container: Container, known: Sequence[Stack]) -> str | None:
    """The known stack that a container belongs to: by our label, else project, image or name."""
    if any(container.stack == stack.name for stack in known):
        return container.stack
    for stack in known:
        signs = stack.recognise
        if container.compose_project in signs.compose_projects or signed(container, stack):
            return stack.name
    return None


def signed(container: Container | Podman, stack: Stack) -> bool:
    """Has a container the image or a name of a stack?"""
    signs, image = stack.recognise, container.reference.split("@")[0]
    return bool({image, image.rsplit(":", 1)[0]} & {*signs.image_repositories}) or any(
        fnmatch.fnmatchcase(container.name, pattern) for pattern in signs.name_patterns
    )


def containers_of(state: HostState) -> tuple[Container, ...]:
    """All containers of a host, none when docker is not installed or could not be read."""
    return state.containers.all if isinstance(state.containers, Containers) else ()


def engines(rank: int, state: HostState, known: Sequence[Stack]) -> list[Found]:
    """The containers of known stacks on one host, running or not."""
    named = ((one, stack_of(one, known)) for one in containers_of(state))
    return [Found(rank, stack, one) for one, stack in named if stack]


def strays(
    rank: int, state: HostState, stack: Stack, spec: RankSpec | None, known: Sequence[Stack]
) -> list[Found]:
    """Engines that are not the wanted rank: of another stack, or of this one by another name.

    spec: of the rank, None when it could not be made. Whatever else the wanted compose project
    starts beside its engine is part of it.
    """

    def belongs(found: Found) -> bool:
        one = found.container
        if found.stack != stack.name:
            return False
        if spec is None or one.name == spec.container_name:
            return True
        return spec.compose is not None and one.compose_project == spec.compose.project

    return [found for found in engines(rank, state, known) if not belongs(found)]


def foreign(state: HostState, known: Sequence[Stack]) -> list[Container]:
    """Running containers that no known stack owns: memory that the bind will miss."""
    return [c for c in containers_of(state) if c.running and not stack_of(c, known)]


def by_podman(state: HostState, known: Sequence[Stack]) -> list[tuple[Podman, str | None]]:
    """What podman runs on a host, each with the known stack whose image or name it has."""
    found = state.containers.podman if isinstance(state.containers, Containers) else ()
    return [(one, next((s.name for s in known if signed(one, s)), None)) for one in found]


def podman_engines(state: HostState, known: Sequence[Stack]) -> list[str]:
    """A sentence for each engine that podman runs: nobody here can take it down."""
    return [
        f"{one.title} is an engine of stack {stack}, and only docker's are taken down from here; "
        f"stop it: {one.stop}"
        for one, stack in by_podman(state, known)
        if stack
    ]


def roce_v2_index(fabric: Fabric, hca: str, address: str) -> int | None:
    """Index of the RoCE v2 GID that holds an IPv4 address (as ::ffff:a.b.c.d) on one device."""
    wanted = ipaddress.IPv6Address(f"::ffff:{address}")
    for device in fabric.hcas:
        for gid in device.gids:
            if (
                device.name == hca
                and gid.type == "RoCE v2"
                and ipaddress.IPv6Address(gid.gid) == wanted
            ):
                return gid.index
    return None


def hca_addresses(cluster: Cluster, rank: int, fabric: Fabric) -> dict[str, str]:
    """{RDMA device on the fabric: the address that it shall be reached at}, by its link."""
    node = cluster.nodes[rank]
    held = dict.fromkeys((cluster.fabric.device, *cluster.fabric.interfaces), node.fabric_address)
    held |= dict(cluster.rails(node))
    return {h.name: a for h in fabric.hcas for g in h.gids if (a := held.get(g.interface))}


def fabric_facts(cluster: Cluster, rank: int, fabric: Fabric) -> FabricFacts:
    """What rendering needs from the fabric that was found on this rank's host."""
    node = cluster.nodes[rank]
    on = hca_addresses(cluster, rank, fabric)
    indexes = {hca: roce_v2_index(fabric, hca, address) for hca, address in on.items()}
    return FabricFacts(
        interface=cluster.fabric.device,
        address=node.fabric_address,
        cidr=str(cluster.fabric_range),
        hcas=tuple(on),
        gid_indexes={hca: index for hca, index in indexes.items() if index is not None},
    )


def specs(cluster: Cluster, stack: Stack, states: Sequence[HostState]) -> list[RankSpec]:
    """What each rank shall run; raises StackError, also when a fabric could not be read."""
    made = []
    for rank, state in enumerate(states):
        if isinstance(state.fabric, Unknown):
            raise StackError([f"{cluster.nodes[rank].name}: fabric {state.fabric}"])
        made.append(rank_spec(stack, cluster, rank, fabric_facts(cluster, rank, state.fabric)))
    return made


def rank_faults(spec: RankSpec, state: HostState) -> Iterator[str]:
    """Why the container on one host is not the wanted rank; nothing when it is."""
    where = f"{spec.host}: rank {spec.rank}"
    if isinstance(state.containers, Unknown):
        yield f"{where}: containers {state.containers}"
        return
    one = next((c for c in state.containers.all if c.name == spec.container_name), None)
    if one is None:
        yield f"{where}: no container {spec.container_name}"
        return
    if not one.running:
        yield f"{where}: {one.name} is {one.status} (exit status {one.exit_code})"
    if one.reference != spec.image:
        yield f"{where}: {one.name} runs image {one.reference}, {spec.image} wanted"
    if spec.compose is None and one.spec != spec.spec:
        yield f"{where}: {one.name} was started with other settings"
    elif spec.compose is None and one.policy != "no":  # `docker update` changes it afterwards
        yield f"{where}: {one.name} would come back by itself (restart policy {one.policy})"


def generations(spec_list: Sequence[RankSpec], states: Sequence[HostState]) -> Iterator[str]:
    """Ranks that do not belong together: started at different times, or come back on their own."""
    seen: dict[str, str] = {}
    for spec, state in zip(spec_list, states, strict=True):
        record = {} if isinstance(state.record, Unknown) else state.record
        one = next((c for c in containers_of(state) if c.name == spec.container_name), None)
        if one is None:
            continue
        recorded = record.get("container_id") == one.id
        if recorded and record.get("started_at") != one.started_at:
            yield f"{spec.host}: {one.name} was restarted at {one.started_at}, not by this tool"
        if recorded or one.generation:
            seen[spec.host] = str(record.get("generation") if recorded else one.generation)
        elif spec.compose is not None:
            seen[spec.host] = "not started by this tool"
    if len(set(seen.values())) > 1:
        told = ", ".join(f"{host} {generation}" for host, generation in seen.items())
        yield f"the ranks are of different generations: {told}"


def base_url(host: Host, stack: Stack) -> str | None:
    """The API's address on this machine when the host is this machine, None otherwise."""
    return f"http://127.0.0.1:{stack.ports.api}" if host.name == "@local" else None


def ask_head(host: Host, stack: Stack, timeout_s: float) -> Reply:
    """One completion from the head; raises NoAnswer."""
    local = base_url(host, stack)
    if local:
        return canary(local, stack.serve.model_name, timeout_s)
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client else None
    if transport is None or not transport.is_active():
        raise NoAnswer(f"no SSH link to {host.name}")
    with tunnel(transport, stack.ports.api) as url:
        return canary(url, stack.serve.model_name, timeout_s)


def faults(job: Job, fabric_too: bool) -> list[str]:
    """Why the cluster does not serve the wanted stack as wanted; empty when it does.

    Read once in each phase and after each change; the last question is a real completion.
    """
    if job.stack is None:
        return []
    with job.lock:  # every host's operation asks at the same moment
        if job.executing not in job.answers:
            job.answers[job.executing] = _faults(job, job.stack, fabric_too)
        return list(job.answers[job.executing])


def unlike(job: Job, stack: Stack, fabric_too: bool) -> list[str]:
    """The same by the states of the hosts alone, without a completion."""
    states = job.states()
    try:
        wanted = specs(job.cluster, stack, states)
    except StackError as error:
        return list(error.lines)
    found = [
        f for spec, state in zip(wanted, states, strict=True) for f in rank_faults(spec, state)
    ]
    found += generations(wanted, states)
    for rank, state in enumerate(states):
        found += [
            f"{job.hosts[rank].name}: {e.container.name} of stack {e.stack} is there"
            for e in strays(rank, state, stack, wanted[rank], job.known)
        ]
        if fabric_too and not isinstance(state.fabric, Unknown):
            node = job.cluster.nodes[rank]
            found += [
                f"{node.name}: {why}" for why in why_not_converged(job.cluster, node, state.fabric)
            ]
    return found


def _faults(job: Job, stack: Stack, fabric_too: bool) -> list[str]:
    found = unlike(job, stack, fabric_too)
    if found:
        return found
    try:
        ask_head(job.hosts[0], stack, stack.deadlines.canary_s)
    except NoAnswer as error:
        return [f"{job.hosts[0].name}: {stack.name}: {error}"]
    return []

"""The pair as one thing: which ranks run, and whether that is what was asked for. Pure but for
`faults`, which reads the hosts, and `ask_head`, which asks the model itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pyinfra.api.host import Host

from facts.engines.containers import Container, Containers
from facts.model.images import Images
from facts.run.unknown import Unknown
from facts.state import HostState
from gates.canary import canary
from gates.client import NoAnswer, Reply
from gates.tunnel import tunnel
from inventory.schema import Cluster
from operations.engines.recognise import containers_of, engines, strays
from operations.network.cables import uneven
from operations.network.comm import name_advice, socket_faults
from operations.network.gids import fabric_facts
from operations.network.judge import case, unfit
from operations.run.findings import Finding, Look, Wanted, aside
from operations.run.job import Job
from stacks.definition import Stack, StackError
from stacks.render import KeptSpec, RankSpec, check_pair, rank_spec


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
    if spec.kept is not None:
        yield from kept_faults(where, spec.kept, state)
        return
    if not runs_image(one, spec.image, state):
        told = ", ".join(one.digests) or one.image_id
        yield f"{where}: {one.name} runs image {one.reference} ({told}), {spec.image} wanted"
    if spec.compose is None and one.spec != spec.spec:
        yield f"{where}: {one.name} was started with other settings"
    elif spec.compose is None and one.policy != "no":  # `docker update` changes it afterwards
        yield f"{where}: {one.name} would come back by itself (restart policy {one.policy})"


def kept_faults(where: str, kept: KeptSpec, state: HostState) -> Iterator[str]:
    """How the containers of a rank differ from what they were when it was adopted."""
    there = {one.name: one for one in containers_of(state)}
    for name, digest in kept.containers.items():
        one = there.get(name)
        if one is None:
            yield f"{where}: no container {name}"
        elif one.recipe != digest:
            yield f"{where}: {name} was started with other settings than the engine that was kept"


def runs_image(one: Container, wanted: str, state: HostState) -> bool:
    """By the digest or the id that both lead to on this host, however the image is spelled."""
    digest = wanted.partition("@")[2] or wanted
    if digest in (one.image_id, *(found.partition("@")[2] for found in one.digests)):
        return True
    image = state.images.found.get(wanted) if isinstance(state.images, Images) else None
    return image is not None and image.id == one.image_id


def generations(
    spec_list: Sequence[RankSpec], states: Sequence[HostState], bind_s: float
) -> Iterator[str]:
    """Why the ranks do not belong together: of different starts, or made anew with copied labels.

    bind_s: what a bind may take. Ranks that docker brought back after a reboot, all of them, are
    one start again: what they are worth a completion shows.
    """
    seen: dict[str, str] = {}
    again: dict[str, str] = {}
    found: dict[str, Container] = {}
    for spec, state in zip(spec_list, states, strict=True):
        record = {} if isinstance(state.record, Unknown) else state.record
        one = next((c for c in containers_of(state) if c.name == spec.container_name), None)
        if one is None:
            continue
        found[spec.host] = one
        recorded = record.get("container_id") == one.id
        if recorded and record.get("started_at") != one.started_at:
            again[spec.host] = f"{spec.host}: {one.name} was restarted at {one.started_at}"
        if not recorded and one.generation and one.generation == record.get("generation"):
            yield (
                f"{spec.host}: {one.name} is not the container that this tool started, though it "
                "has its labels"
            )
        if recorded or one.generation:
            seen[spec.host] = str(record.get("generation") if recorded else one.generation)
        elif not spec.create_argv:
            seen[spec.host] = "not started by this tool"
    if len(again) < len(found):
        yield from (f"{sentence}, not by this tool" for sentence in again.values())
    if len(set(seen.values())) > 1:
        told = ", ".join(f"{host} {generation}" for host, generation in seen.items())
        yield f"the ranks are of different generations: {told}"
    yield from apart(found, bind_s)


def apart(found: Mapping[str, Container], bind_s: float) -> Iterator[str]:
    """Ranks whose starts lie further apart than a bind may take never met each other alive."""
    starts = {host: since for host, one in found.items() if (since := began(one))}
    if len(starts) < 2 or max(starts.values()) - min(starts.values()) <= timedelta(seconds=bind_s):
        return
    told = ", ".join(f"{host} {found[host].started_at}" for host in starts)
    yield f"the ranks were started further apart than the {bind_s:.0f} s of a bind: {told}"


def began(one: Container) -> datetime | None:
    """docker says it in UTC, to the nanosecond; None where it says nothing."""
    try:
        return datetime.strptime(one.started_at[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None


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


def faults(job: Job) -> list[str]:
    """Why the cluster does not serve the wanted stack as wanted; empty when it does.

    Read once in each phase and after each change; the last question is a real completion.
    """
    if job.stack is None:
        return []
    with job.lock:  # every host's operation asks at the same moment
        if job.executing not in job.answers:
            job.answers[job.executing] = _faults(job, job.stack)
        return list(job.answers[job.executing])


def unlike(look: Look) -> list[str]:
    """The same by the states of the hosts alone, without a completion."""
    states = look.states
    try:
        wanted = specs(look.cluster, look.stack, states)
    except StackError as error:
        return list(error.lines)
    found = [
        f for spec, state in zip(wanted, states, strict=True) for f in rank_faults(spec, state)
    ]
    found += generations(wanted, states, look.stack.deadlines.bind_s)
    for node, state in zip(look.cluster.nodes, states, strict=True):
        found += [
            f"{node.name}: {e.container.name} of stack {e.stack} is there"
            for e in strays(node.rank, state, look.stack, wanted[node.rank], look.known)
        ]
        if look.settles and not isinstance(state.fabric, Unknown):
            why_not = unfit(case(look.cluster, node, state.fabric))
            found += [f"{node.name}: {why}" for why in why_not]
    return found


def runs_anywhere(states: Sequence[HostState], known: Sequence[Stack]) -> bool:
    """Is there a container of a known stack, running or not, on any host that could be read?"""
    return any(engines(rank, state, known) for rank, state in enumerate(states))


def rank_line(look: Look) -> Finding:
    """What runs on one host: the wanted rank, or nothing on any host. Half a set is a drift."""
    state, stack, rank = look.state, look.stack, look.rank
    line = Wanted("engine", "rank", f"rank {rank} of {stack.name}, or nothing anywhere")
    if not isinstance(state.containers, Containers):
        return line.unread(state.containers)
    found = engines(rank, state, look.known)
    if not found:
        elsewhere = runs_anywhere(look.states, look.known)
        seen = "none here, but on another host" if elsewhere else "nothing"
        return line.judged(seen, not elsewhere)
    if isinstance(state.fabric, Unknown):
        return line.unread(f"fabric {state.fabric}")
    spec: RankSpec | None = None
    try:
        spec = rank_spec(stack, look.cluster, rank, fabric_facts(look.cluster, rank, state.fabric))
        wrong = [sentence.split(": ", 2)[-1] for sentence in rank_faults(spec, state)]
    except StackError as error:
        wrong = error.lines
    why = [
        f"{f.container.name} of {f.stack} is {f.container.status}"
        for f in strays(rank, state, stack, spec, look.known)
    ]
    why += wrong
    return line.judged("; ".join(why) or f"{found[0].container.name} as wanted", not why)


def assess(look: Look) -> Iterator[Finding]:
    """The rank of one host; before a launch, what the ranks would be to each other."""
    yield rank_line(look)
    fabric = look.state.fabric
    fabrics = [one.fabric for one in look.states if not isinstance(one.fabric, Unknown)]
    if not look.launches or len(fabrics) < len(look.states) or isinstance(fabric, Unknown):
        return
    try:
        made = specs(look.cluster, look.stack, look.states)
    except StackError as error:
        yield aside("refuse", error.lines)
        return
    yield aside("refuse", check_pair(made))
    if not look.settles and unlike(look):
        yield aside("refuse", uneven(look.cluster, fabrics))
    yield aside("refuse", socket_faults(look.cluster, made[look.rank], fabric))
    yield aside("advice", name_advice(made[look.rank], fabric))


def _faults(job: Job, stack: Stack) -> list[str]:
    found = unlike(job.looks()[0])
    if found:
        return found
    try:
        ask_head(job.hosts[0], stack, stack.deadlines.canary_s)
    except NoAnswer as error:
        return [f"{job.hosts[0].name}: {stack.name}: {error}"]
    return []

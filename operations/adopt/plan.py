"""From what runs on all hosts to the stack `previous`, or why it cannot be one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from facts.adopt.adoptable import Adoptable, Engine
from facts.state import HostState
from inventory import mistakes
from inventory.document import dotted
from inventory.schema import Cluster, Node
from operations.watchdogs import resurrection
from stacks.definition import PREVIOUS, Stack

# Nothing of an engine says these; they are the ones of the shipped stacks for pairs of its kind.
STALL_S, BIND_S, CANARY_S, QUIET_S = 900, 3600, 300, 120
NO_FLOOR_MIB = 1  # what was free before it was started nobody has written down
LONGEST_DELAY_S = 600


@dataclass(frozen=True)
class Adoption:
    """stack: what is taken on, None when it cannot be, or nothing runs; cannot: why not; notes:
    what is worth knowing of it all the same."""

    stack: Stack | None = None
    cannot: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Draft:
    """An adoption while it is looked at."""

    ranks: list[Engine] = field(default_factory=list)
    cannot: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def candidates(state: HostState) -> list[Engine]:
    """Engines on a host that this tool did not start, whether or not a stack file knows them: by
    the time they are wanted again their files may be gone."""
    return list(state.adoptable.engines) if isinstance(state.adoptable, Adoptable) else []


def rank_of(found: list[Engine]) -> Engine | None:
    """The one container of a host that is the rank; the rest of its project belongs to it."""
    ranks = [one for one in found if one.world or one.rendezvous or one.address]
    others = {name for one in ranks for name in one.containers}
    alone = all(one.name in others for one in found)
    return ranks[0] if len(ranks) == 1 and alone else None


def adoption(cluster: Cluster, states: Sequence[HostState], shipped: Sequence[Stack]) -> Adoption:
    """What runs on all hosts as one stack; shipped: the stacks that have a file."""
    found = [candidates(state) for state in states]
    if not any(found):
        return Adoption()
    draft = _Draft()
    for node, engines in zip(cluster.nodes, found, strict=True):
        one = rank_of(engines)
        if one is not None:
            draft.ranks.append(one)
            draft.cannot += [f"{node.name}: {sentence}" for sentence in one.cannot]
        else:
            named = ", ".join(engine.name for engine in engines)
            told = f"none of {named} is one rank of an engine" if engines else "no engine runs here"
            draft.cannot.append(f"{node.name}: {told}; the ranks are one unit")
    if len(draft.ranks) == len(cluster.nodes):
        draft.cannot += apart(cluster, draft.ranks)
    if draft.cannot:
        return Adoption(None, tuple(draft.cannot))
    notes = tuple(noted(cluster, draft.ranks))
    plain = document(cluster, states, draft.ranks, shipped)
    odd = [f"{dotted(one.loc)}: {one.text}" for one in mistakes.check(Stack, plain)]
    if odd:
        return Adoption(None, tuple(odd))
    return Adoption(Stack.model_validate(plain), notes=notes)


def apart(cluster: Cluster, ranks: list[Engine]) -> Iterator[str]:
    """Why these are no ranks of one engine."""
    nodes = cluster.nodes
    for node, one in zip(nodes, ranks, strict=True):
        if one.world not in (None, len(nodes)):
            yield f"{node.name}: {one.name} is one of {one.world} ranks, the owner's file has " + (
                f"{len(nodes)} hosts"
            )
        if one.rank not in (None, node.rank):
            yield (
                f"{node.name}: {one.name} is rank {one.rank}, and the owner's file makes this host "
                f"rank {node.rank}; give the hosts in the order of the engine's ranks"
            )
    for what in ("address", "rendezvous"):
        said = {node.name: getattr(one, what) for node, one in zip(nodes, ranks, strict=True)}
        if len({value for value in said.values() if value}) > 1:
            told = ", ".join(f"{host} {value}" for host, value in said.items())
            yield f"the ranks do not meet at one {what}: {told}"
    times = [at for one in ranks if (at := moment(one.started_at)) is not None]
    if times and max(times) - min(times) > BIND_S:
        told = ", ".join(
            f"{node.name} {one.started_at}" for node, one in zip(nodes, ranks, strict=True)
        )
        yield f"the ranks are of different starts, further apart than a bind may take: {told}"
    head = ranks[0]
    if head.api is None:
        yield (
            f"{nodes[0].name}: {head.name} lists no models on any port (it loads, or hangs); run "
            "this again when it answers"
        )
    if head.api is not None and head.model_name is None:
        yield f"{nodes[0].name}: {head.name} does not say under which name it serves its model"


def moment(text: str) -> float | None:
    """Seconds of docker's time, whose nanoseconds Python does not read."""
    try:
        return datetime.fromisoformat(text[:19] + "+00:00").timestamp()
    except ValueError:
        return None


def noted(cluster: Cluster, ranks: list[Engine]) -> Iterator[str]:
    for node, one in zip(cluster.nodes, ranks, strict=True):
        yield from (f"{node.name}: {path} is gone, no copy of it is kept" for path in one.missing)
        if one.dirty:
            yield f"{node.name}: the checkout of {one.name} has changes beyond {one.commit}"
    head = ranks[0]
    absent = {
        "no line of the head's log says that it is ready": head.ready is None,
        "no line of the head's log shows how far a load is": not head.progress,
        "where the ranks meet is not said": head.rendezvous is None,
    }
    yield from (f"{sentence}: null" for sentence, true in absent.items() if true)
    if {one.digests for one in ranks} == {()} and len({one.image for one in ranks}) > 1:
        yield "the images of the ranks were built or loaded on each host, and have different ids"


def delay_s(ranks: list[Engine]) -> int:
    """How much later the head was started than the last worker, 0 when it was the first."""
    head, *workers = (moment(one.started_at) for one in ranks)
    known = [at for at in workers if at is not None]
    if head is None or not known:
        return 0
    return min(LONGEST_DELAY_S, max(0, round(head - max(known))))


def watchdogs(
    cluster: Cluster, node: Node, state: HostState, known: Sequence[Stack]
) -> tuple[str, ...]:
    """What on a host starts an engine by itself, by kind and name."""
    found = resurrection.sources(node.rank, state, cluster.tags.hold, None, known)
    return tuple(f"{one.kind}: {one.name}" for one in found if one.status in ("armed", "held"))


def document(
    cluster: Cluster, states: Sequence[HostState], ranks: list[Engine], shipped: Sequence[Stack]
) -> dict[str, Any]:
    """The definition as plain data, as its file has it."""
    head = ranks[0]
    projects = {one.project for one in ranks if one.project}
    names = {name for one in ranks for name in one.containers}
    return {
        "name": PREVIOUS,
        "description": f"{head.model_name}, as it ran before on {cluster.name}",
        "launcher": "adopted",
        "adopted": {
            "context": head.context,
            "ranks": [
                {
                    "host": node.name,
                    "container": one.name,
                    "containers": one.containers,
                    "kept": one.kept,
                    "by": "compose" if one.project else "run",
                    "project": one.project,
                    "folders": list(one.folders),
                    "reference": one.reference,
                    "image": one.image,
                    "digests": list(one.digests),
                    "started_at": one.started_at,
                    "commit": one.commit,
                    "dirty": one.dirty,
                    "models": list(one.models),
                    "watchdogs": list(watchdogs(cluster, node, state, shipped)),
                }
                for node, one, state in zip(cluster.nodes, ranks, states, strict=True)
            ],
        },
        "ports": {"api": head.api, "rendezvous": head.rendezvous},
        "start": {"head_delay_s": delay_s(ranks)},
        "deadlines": {
            "stall_s": STALL_S,
            "bind_s": BIND_S,
            "canary_s": CANARY_S,
            "quiet_s": QUIET_S,
        },
        "log": {"progress": list(head.progress), "ready": head.ready},
        "memory": {"floor_mib": NO_FLOOR_MIB},
        "serve": {"model_name": head.model_name},
        "recognise": {
            "compose_projects": sorted(projects),
            "name_patterns": sorted(names),
        },
    }

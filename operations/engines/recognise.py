"""Which containers of a host are engines, and of which known stack. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from facts.engines.containers import Container, Containers, Podman
from facts.state import HostState
from operations.run.findings import Finding, Look, Wanted
from stacks.definition import Stack
from stacks.render import RankSpec


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


def strangers(look: Look) -> Iterator[str]:
    """Why a launch must not begin beside what runs here and is of no known stack."""
    others = [c.name for c in foreign(look.state, look.known)]
    keep = look.cluster.policy.foreign_containers == "refuse"
    if others and keep:
        yield (
            f"{', '.join(others)} of no known stack runs and holds memory; stop it, or allow that "
            "with policy.foreign_containers: stop"
        )
    yield from podman_engines(look.state, look.known)
    for one, owned in by_podman(look.state, look.known):
        if owned is None and keep:
            yield (
                f"{one.title} of no known stack runs and holds memory; stop it ({one.stop}), or "
                "leave it there with policy.foreign_containers: stop, which stops docker's only"
            )


def assess(look: Look) -> Iterator[Finding]:
    line, found = Wanted("engine", "other containers", "none"), look.state.containers
    if not isinstance(found, Containers):
        yield line.unread(found)
        return
    if not found.installed:
        told = "docker is not installed"
        yield line.judged(told, False, look.named([told]))
        return
    names = [c.name for c in foreign(look.state, look.known)]
    names += [
        one.title + (f" of stack {stack}" if stack else "")
        for one, stack in by_podman(look.state, look.known)
    ]
    refuse = look.named(strangers(look), look.launches)
    yield line.judged(", ".join(names) or "none", not names, refuse)

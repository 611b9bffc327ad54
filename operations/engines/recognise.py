"""What engines are on a host, of a known stack or of none. Pure."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from facts.engines.containers import Container, Containers, Podman
from facts.network.listeners import Listener, Listeners
from facts.run.unknown import Unknown
from facts.state import HostState
from inventory.values import familiar
from operations.run.findings import Finding, Look, Wanted
from stacks.definition import Stack
from stacks.render import RankSpec

Kind = Literal["known", "unknown", "podman", "process"]


@dataclass(frozen=True)
class Engine:
    """What is, or behaves like, an engine on one host.

    name: as a sentence names it; stack: the known one that it is of, if any; alive: it runs, or
    starts again and again; signs: why it is taken for one, a few words each; stop: what a person
    does to end it; container: docker's.
    """

    kind: Kind
    name: str
    stack: str | None
    alive: bool
    signs: tuple[str, ...]
    stop: str
    container: Container | None = None

    @property
    def told(self) -> str:
        """With what it is, and how it is doing where that is not plain."""
        one, what = self.container, self.what
        if one is not None and one.status == "restarting":
            what += f"; {loop(one)}"
        elif one is not None and one.returns:
            what += "; down, and started by docker when that starts"
        return f"{self.name} ({what})"

    @property
    def what(self) -> str:
        return f"of stack {self.stack}" if self.stack else ", ".join(self.signs)


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
    signs, image = stack.recognise, familiar(container.reference.split("@")[0])
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
        if spec is not None and spec.kept is not None:  # a shipped stack may know them too
            return one.name in spec.kept.containers
        if found.stack != stack.name:
            return False
        if spec is None or one.name == spec.container_name:
            return True
        return spec.compose is not None and one.compose_project == spec.compose.project

    return [found for found in engines(rank, state, known) if not belongs(found)]


def container_of(listener: Listener, state: HostState) -> Container | None:
    """The container that listens, itself or through docker's proxy for a published port."""
    proxy = listener.program is not None and listener.program.name == "docker-proxy"
    for one in containers_of(state):
        proxied = proxy and listener.port in one.published
        if one.id == listener.container or (one.running and proxied):
            return one
    return None


def on_api(state: HostState, known: Sequence[Stack]) -> list[Listener]:
    """Who listens where a known stack's API would be, as far as the job asked for the port."""
    ports = {stack.ports.api for stack in known}
    found = state.listeners.all if isinstance(state.listeners, Listeners) else ()
    return [one for one in found if one.port in ports]


def signs_of(container: Container, state: HostState, known: Sequence[Stack]) -> tuple[str, ...]:
    """Why a container behaves like an engine, empty when it does not."""
    ports = {one.port for one in on_api(state, known) if container_of(one, state) == container}
    return (*container.signs, *(f"listens on port {port}" for port in sorted(ports)))


def engines_on(state: HostState, known: Sequence[Stack]) -> list[Engine]:
    """Everything on one host that is an engine, or behaves like one, whoever started it.

    Containers of known stacks whether they run or not; any other that has the GPU, or shares its
    host's memory and serves, where it runs or comes back by itself; what podman runs of both; and
    programs outside of containers. Parts of the state that could not be read give none: who must
    know that there is no other asks for `unknowns` first.
    """
    return [
        *(
            _of_docker(found.container, found.stack, state, known)
            for found in engines(0, state, known)
        ),
        *(_of_docker(one, None, state, known) for one in unknown(state, known)),
        *(_of_podman(one, stack) for one, stack in by_podman(state, known) if stack or one.signs),
        *outsiders(state, known),
    ]


def unknown(state: HostState, known: Sequence[Stack]) -> list[Container]:
    """Docker's containers of no known stack that behave like engines, running or coming back."""
    return [
        one
        for one in containers_of(state)
        if (one.alive or one.returns)
        and stack_of(one, known) is None
        and signs_of(one, state, known)
    ]


def outsiders(state: HostState, known: Sequence[Stack]) -> Iterator[Engine]:
    """Engines outside of any container, each once."""
    found = state.outside if isinstance(state.outside, tuple) else ()
    for one in found:
        yield Engine("process", one.title, None, True, one.signs, one.stop)
    named = {one.title for one in found}
    for listener in on_api(state, known):
        holder = listener.program
        inside = listener.container is not None or container_of(listener, state) is not None
        if holder is not None and not inside and holder.title not in named:
            named.add(holder.title)
            sign = f"listens on port {listener.port}"
            yield Engine("process", holder.title, None, True, (sign,), holder.stop)


def _of_docker(
    one: Container, stack: str | None, state: HostState, known: Sequence[Stack]
) -> Engine:
    kind: Kind = "known" if stack else "unknown"
    stop = shlex.join(["docker", "stop", one.name])
    if one.policy != "no":  # else it comes back, at once or with the daemon
        stop = f"{shlex.join(['docker', 'update', '--restart=no', one.name])}; {stop}"
    return Engine(kind, one.name, stack, one.alive, signs_of(one, state, known), stop, one)


def _of_podman(one: Podman, stack: str | None) -> Engine:
    return Engine("podman", one.title, stack, True, one.signs, one.stop)


def alive(state: HostState, known: Sequence[Stack]) -> list[Engine]:
    """Those that run, or start again and again."""
    return [one for one in engines_on(state, known) if one.alive]


def foreign(state: HostState, known: Sequence[Stack]) -> list[Container]:
    """Containers of no known stack that run, or come back by themselves and are engines: memory
    that the bind will miss."""
    coming = unknown(state, known)
    return [
        one
        for one in containers_of(state)
        if (one.alive and not stack_of(one, known)) or one in coming
    ]


def by_podman(state: HostState, known: Sequence[Stack]) -> list[tuple[Podman, str | None]]:
    """What podman runs on a host, each with the known stack whose image or name it has."""
    found = state.containers.podman if isinstance(state.containers, Containers) else ()
    return [(one, next((s.name for s in known if signed(one, s)), None)) for one in found]


def podman_engines(state: HostState, known: Sequence[Stack]) -> list[str]:
    """A sentence for each engine that podman runs: nobody here can take it down."""
    return [
        f"{one.name} is an engine ({one.what}), and only docker's are taken down from here; stop "
        f"it: {one.stop}"
        for one in engines_on(state, known)
        if one.kind == "podman"
    ]


def deleted_by_a_stop(one: Container) -> str:
    return (
        f"{one.name} was started with --rm, so docker deletes it once it is stopped and nothing "
        f"could bring it back; keep what it was started with (docker inspect {one.name}), and stop "
        "it yourself"
    )


def strangers(look: Look) -> Iterator[str]:
    """Why a launch must not begin beside what runs here and is of no known stack."""
    keep = look.cluster.policy.foreign_containers == "refuse"
    allowed = "or allow that with policy.foreign_containers: stop"
    found = foreign(look.state, look.known)
    yield from (deleted_by_a_stop(one) for one in found if one.auto_remove)
    kept = [one for one in found if not one.auto_remove] if keep else []
    told = names_of(look.state, look.known)
    running = [told.get(one.name, doing(one)) for one in kept if one.alive]
    if running:
        yield f"{', '.join(running)} of no known stack runs and holds memory; stop it, {allowed}"
    yield from (
        f"{told[one.name]}: it would come back beside the new ranks; docker update --restart=no "
        f"{one.name}, {allowed}"
        for one in kept
        if not one.alive
    )
    yield from podman_engines(look.state, look.known)
    for other, owned in by_podman(look.state, look.known):
        if owned is None and not other.signs and keep:
            yield (
                f"{other.title} of no known stack runs and holds memory; stop it ({other.stop}), "
                "or leave it there with policy.foreign_containers: stop, which stops docker's only"
            )


def names_of(state: HostState, known: Sequence[Stack]) -> dict[str, str]:
    """{name: with what it is} of docker's containers of no known stack that are engines."""
    return {one.name: one.told for one in engines_on(state, known) if one.kind == "unknown"}


def doing(one: Container) -> str:
    """A container that is no engine, with how it is doing where that is not plain."""
    return f"{one.name} ({loop(one)})" if one.status == "restarting" else one.name


def loop(one: Container) -> str:
    return f"in a loop of crashes, {one.restarts} restarts"


def assess(look: Look) -> Iterator[Finding]:
    """Whatever is there beside the ranks of known stacks: other engines, other containers."""
    line, found = Wanted("engine", "other containers", "none"), look.state.containers
    yield programs(look)
    if not isinstance(found, Containers):
        yield line.unread(found)
        return
    if not found.installed:
        told = "docker is not installed"
        yield line.judged(told, False, look.named([told]))
        return
    engines_here = names_of(look.state, look.known)
    names = [engines_here.get(c.name, doing(c)) for c in foreign(look.state, look.known)]
    names += [one.told for one in engines_on(look.state, look.known) if one.kind == "podman"]
    beside = by_podman(look.state, look.known)
    names += [one.title for one, stack in beside if not stack and not one.signs]
    refuse = look.named(strangers(look), look.launches)
    yield line.judged(", ".join(names) or "none", not names, refuse)


def programs(look: Look) -> Finding:
    """Engines outside of containers."""
    line = Wanted("engine", "other programs", "none that serves or holds the GPU")
    if isinstance(look.state.outside, Unknown):
        return line.unread(look.state.outside)
    names = [one.told for one in outsiders(look.state, look.known)]
    return line.judged(", ".join(names) or "none", not names)

"""One run of a job over the whole cluster: what is wanted, what was read, how far it came.

Every host's operations share one Job, because the pair is the unit: they decide from the states
of all ranks, stop at the same barrier and write one receipt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from threading import RLock
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import gevent
from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.operation import OperationMeta, operation
from pyinfra.api.state import State

from facts.run.unknown import Unknown
from facts.snapshot import Reader
from facts.state import HostState
from inventory.host_settings import HostSettings, shipped
from inventory.schema import Cluster, Node
from operations.run.findings import Look
from operations.run.remote import whisper
from stacks.definition import Stack
from stacks.schema import LockedModel

Commands = Generator[FunctionCommand | Any, None, None]
T = TypeVar("T")
LEFT_OUT, GONE = "left out by --limit or --exclude", "cannot be reached"


class NotKnown(Exception):
    """An operation cannot decide; says what could not be read, and why."""


@dataclass
class Stage:
    title: str
    began: float
    seconds: float | None = None


@dataclass
class Notes:
    """What one stage of a run leaves for a later one, {host: ...} where each host has its own.

    taken_down: engine containers; volatile: addresses that the next boot ends; advice: said once,
    None before; published: the model's files as the Hub has them; survey: what each host read of
    them.
    """

    taken_down: dict[str, list[str]] = field(default_factory=dict)
    volatile: dict[str, list[str]] = field(default_factory=dict)
    advice: list[str] | None = None
    published: LockedModel | None = None
    survey: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """What of it goes into the receipt."""
        model = self.published and self.published.model_dump(mode="json")
        told = {**vars(self), "published": model, "survey": None}
        return {name: value for name, value in told.items() if value not in (None, {})}


@dataclass
class Job:
    """name: of the deploy; stack: what shall run (None for jobs that launch nothing); figures: for
    the receipt alone; heart: what gives signs of life (operations/run/lease.py); left: names of
    hosts on which nothing more will be done; settles: whether the hosts are brought to the owner's
    file, fabric included, and not only what runs on them; launches: whether `stack` is to be
    started, where it does not run; settings: what the hosts are brought to."""

    name: str
    cluster: Cluster
    stack: Stack | None
    known: tuple[Stack, ...]
    hosts: tuple[Host, ...]
    reader: Reader
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    problem: str | None = None
    stages: list[Stage] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)
    closed: bool = False
    answers: dict[bool, list[str]] = field(default_factory=dict)
    lock: RLock = field(default_factory=RLock)
    heart: Any = None
    left: set[str] = field(default_factory=set)
    settles: bool = False
    launches: bool = False
    settings: HostSettings = field(default_factory=shipped)

    @property
    def generation(self) -> str:
        """Names everything that this run starts; sorts by time."""
        return self.began.strftime("%Y%m%dT%H%M%SZ")

    @property
    def run_name(self) -> str:
        """No other run has it, wherever it was started."""
        return str(self.reader.lease.get("run", self.generation))

    @property
    def state(self) -> State:
        return self.hosts[0].state

    @property
    def executing(self) -> bool:
        return bool(self.state.is_executing)

    def reachable(self) -> list[Host]:
        """Hosts that are connected and have not failed, in rank order."""
        return [host for host in self.hosts if host in self.state.active_hosts]

    def why_absent(self, host: Host) -> str | None:
        """Why this run does not reach a host, None for one that it reaches."""
        if not self.state.is_host_in_limit(host):
            return LEFT_OUT
        return None if host in self.state.active_hosts else GONE

    def absent(self) -> list[str]:
        """A sentence for each host that is not reached; half a cluster is never converged."""
        then = {LEFT_OUT: "the ranks are one unit", GONE: "nothing was changed on the other hosts"}
        return [f"{h.name}: {why}; {then[why]}" for h in self.hosts if (why := self.why_absent(h))]

    def read(self, host: Host) -> HostState:
        return self.reader.read(host)

    def states(self) -> list[HostState]:
        """States of all ranks in rank order (the hosts must be reachable), read all at once.

        One after the other, the first host that asks would have all of them wait in a row.
        """
        reading = [gevent.spawn(self.reader.read, host) for host in self.hosts]
        gevent.joinall(reading, raise_error=True)
        return [one.get() for one in reading]

    def looks(self, states: Sequence[HostState] | None = None) -> list[Look]:
        """What may be judged of each host, in rank order; states: where they have been read."""
        read = tuple(self.states() if states is None else states)
        launches = self.launches and self.stack is not None
        return [
            Look(
                self.cluster, node.rank, read, self.stack, self.known, self.settings,
                self.settles, launches,
            )
            for node in self.cluster.nodes
        ]  # fmt: skip

    def changed(self, host: Host) -> None:
        """Something on the host is no longer as it was read."""
        self.reader.forget(host)
        self.answers.pop(self.executing, None)

    def enter(self, title: str) -> None:
        """Close the stage before and open this one."""
        now = time.monotonic()
        if self.stages and self.stages[-1].title == title:
            return
        if self.stages and self.stages[-1].seconds is None:
            self.stages[-1].seconds = round(now - self.stages[-1].began, 1)
        self.stages.append(Stage(title, now))

    def leave(self, host: Host) -> None:
        """Give the lease of a host back. pyinfra counts one that failed as active until all others
        are through the same operation, so no sign of life may take it again meanwhile."""
        self.left.add(host.name)
        whisper(host, "lease", "release", self.run_name)

    def blame(self, sentence: str) -> None:
        """Keep the first reason; later ones are consequences."""
        self.problem = self.problem or sentence

    def why_stop(self) -> str | None:
        """The sentence that stops all hosts at the next barrier, None while all is well."""
        lost = [host.name for host in self.hosts if host not in self.state.active_hosts]
        if self.problem is None and lost:
            where = self.stages[-1].title if self.stages else "connecting"
            return f'{", ".join(lost)}: failed at "{where}" (what it said is printed above)'
        return self.problem


@dataclass(frozen=True)
class Here:
    """One host's share of a run: what every operation is given first."""

    job: Job
    rank: int

    @property
    def host(self) -> Host:
        return self.job.hosts[self.rank]

    @property
    def node(self) -> Node:
        """This host in the owner's file."""
        return self.job.cluster.nodes[self.rank]

    @property
    def cluster(self) -> Cluster:
        return self.job.cluster

    @property
    def settings(self) -> HostSettings:
        return self.job.settings

    @property
    def executing(self) -> bool:
        return self.job.executing

    @property
    def stack(self) -> Stack:
        """What this job is about; raises LookupError in a job that has none."""
        if self.job.stack is None:
            raise LookupError(f"{self.job.name} is about no stack")
        return self.job.stack

    def read(self) -> HostState:
        return self.job.read(self.host)

    def known(self, found: T | Unknown, what: str) -> T:
        """What was read; where it could not be, the operation fails with one sentence."""
        if isinstance(found, Unknown):
            raise NotKnown(f"{what} {found}")
        return found

    def changed(self) -> None:
        """Something on this host is no longer as it was read."""
        self.job.changed(self.host)

    def refuse(self, sentence: str) -> FunctionCommand:
        """The command that fails this operation with one sentence about this host."""
        return refuse(self.job, f"{self.host.name}: {sentence}")

    def say(self, sentence: str) -> None:
        self.host.log(sentence, log_func=logger.info)

    def warn(self, sentence: str) -> None:
        self.host.log(sentence, log_func=logger.warning)

    def noop(self, sentence: str) -> None:
        """Why nothing is to do, for those who ask with -v."""
        self.host.noop(sentence)


def fail(state: State, host: Host, job: Job, sentence: str) -> bool:
    """A clean failure: pyinfra takes False from a function command as failed, without traceback.

    It is the run's last word on this host, so the next run, or an undo at the host's own console,
    need not wait for the lease to lapse.
    """
    host.log_styled(sentence, fg="red", log_func=logger.error)
    job.blame(sentence)
    job.leave(host)
    return False


def refuse(job: Job, sentence: str) -> FunctionCommand:
    """The command that fails this operation with one sentence."""
    return FunctionCommand(fail, (job, sentence), {})


class Step(Protocol):
    """An operation as the deploys call it: first the host's share of the run."""

    def __call__(self, here: Here, *, name: str, **words: Any) -> OperationMeta: ...


def step(function: Callable[..., Commands]) -> Step:
    """Make an operation of pyinfra; what it needs to know and cannot read makes it fail cleanly."""

    @wraps(function)
    def careful(here: Here, **words: Any) -> Commands:
        try:
            yield from function(here, **words)
        except NotKnown as why:
            yield here.refuse(str(why))

    return cast(Step, operation()(careful))


P = ParamSpec("P")


def checklist(title: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a deploy of pyinfra: steps under one title, in the order that they are written."""
    return cast(Callable[[Callable[P, None]], Callable[P, None]], deploy(title))


@step
def barrier(here: Here, title: str | None = None) -> Commands:
    """
    Let no host go on to a stage while another one has failed; every host calls it.

    + here: this host's share of the run
    + title: of the stage that begins here; None: the one before goes on

    Without it pyinfra runs the stages of the hosts that are left, and mixes the order of
    operations of different hosts (see CONTRIBUTING.md).
    """
    if not here.job.executing:
        return
    problem = here.job.why_stop()
    if problem:
        yield refuse(here.job, problem)
    elif title:
        here.job.enter(title)


@step
def milestone(here: Here, title: str) -> Commands:
    """
    Keep the order between hosts without stopping those that are left; every host calls it.

    + here: this host's share of the run
    + title: of the stage that begins here
    """
    if here.job.executing:
        here.job.enter(title)
    yield from ()


def stage(here: Here, title: str, name: str | None = None) -> None:
    """The next stage begins when every host is through the one before without a failure."""
    barrier(here, title=title, name=name or f"Stage: {title}")


def together(here: Here, said: str) -> None:
    """No host goes on before all are through what came before; the stage is still the same."""
    barrier(here, name=said)


def stage_for_those_left(here: Here, title: str, name: str | None = None) -> None:
    """As `stage`, but a host that failed keeps none of the others from it."""
    milestone(here, title=title, name=name or f"Stage: {title}")


def stop_planning(job: Job, sentences: list[str]) -> None:
    """End a dry run or the planning of a run with all complaints, one a line."""
    job.blame("; ".join(sentences))
    job.closed = True
    raise PyinfraError(f"{job.name} refuses:\n" + "\n".join(f"    - {s}" for s in sentences))


def refuse_beforehand(job: Job, sentences: list[str]) -> FunctionCommand:
    """The command that fails this operation before anything was changed; ends a plan at once."""
    if not job.executing:
        stop_planning(job, sentences)
    return refuse(job, "\n    - ".join(["refused before any change:", *sentences]))

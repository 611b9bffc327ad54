"""One run of a job over the whole cluster: what is wanted, what was read, how far it came.

Every host's operations share one Job, because the pair is the unit: they decide from the states
of all ranks, stop at the same barrier and write one receipt.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from types import FrameType
from typing import Any, ParamSpec, Protocol, cast

import gevent
import pyinfra
from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.operation import OperationMeta, operation
from pyinfra.api.state import State, StateStage

from facts.snapshot import Ask, Reader
from facts.state import HostState
from inventory.host_settings import HostSettings, shipped
from inventory.schema import Cluster, Node
from operations.run.control import origin, who
from operations.run.findings import Look
from operations.run.remote import whisper
from stacks.definition import Stack

Commands = Generator[FunctionCommand | Any, None, None]


@dataclass
class Stage:
    title: str
    began: float
    seconds: float | None = None


@dataclass
class Job:
    """name: of the deploy; stack: what shall run (None for jobs that launch nothing); heart:
    what gives signs of life (operations/lease.py); left: names of hosts on which nothing more will
    be done; settles: whether the hosts are brought to the owner's file, fabric included, and not
    only what runs on them; launches: whether `stack` is to be started, where it does not run;
    settings: what the hosts are brought to."""

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


_jobs: dict[str, Job] = {}

# What ends a run from outside: Ctrl-C, a kill, a closed terminal.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEEPALIVE_S = 15


def _asked_to_end(number: int, _frame: FrameType | None) -> None:
    """pyinfra ends with status 0 on Ctrl-C; a run that was cut off has not succeeded."""
    for job in _jobs.values():
        where = job.stages[-1].title if job.stages else "planning"
        job.blame(f'ended by {signal.Signals(number).name} at "{where}"')
    raise SystemExit(128 + number)


def _listen(hosts: Sequence[Host]) -> None:
    """Notice a request to end, and links that silently died."""
    for number in END_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, _asked_to_end)
    for host in hosts:
        client = getattr(host.connector, "client", None)
        if client and client.get_transport():
            client.get_transport().set_keepalive(KEEPALIVE_S)


def start(
    name: str,
    host: Host,
    stack: Stack | None,
    known: tuple[Stack, ...],
    ask: Ask,
    settles: bool,
    launches: bool,
) -> Here:
    """This host's share of the run; every host's copy of the deploy file gets the same Job."""
    if name not in _jobs:
        ranked = sorted(host.inventory, key=lambda one: int(one.data.rank))
        me = {"run": str(uuid.uuid4()), "job": name, "who": who(), "origin": origin()}
        _jobs[name] = Job(
            name,
            host.data.cluster,
            stack,
            known,
            tuple(ranked),
            Reader(ask, me),
            settles=settles,
            launches=launches,
        )
        atexit.register(close, _jobs[name])
        if pyinfra.is_cli:
            _listen(ranked)
    return Here(_jobs[name], int(host.data.rank))


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
    """Make an operation of pyinfra."""
    return cast(Step, operation()(function))


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


def receipts_folder() -> Path:
    """Where receipts and collected logs go on the control machine (XDG_STATE_HOME)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "spark-converge"


def run_folder(job: Job) -> Path:
    return receipts_folder() / f"{job.generation}-{job.name}"


def make_run_folder(job: Job) -> Path:
    """The run's folder, made for its owner alone: an engine's log may hold what it was told."""
    folder = run_folder(job)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def receipt(job: Job) -> dict[str, Any]:
    """The record of a run: no environment, no arguments of containers, no secrets."""
    return {
        "job": job.name,
        "generation": job.generation,
        "began": job.began.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - job.began).total_seconds(), 1),
        "cluster": job.cluster.name,
        "hosts": [host.name for host in job.hosts],
        "stack": job.stack.name if job.stack else None,
        "image": job.stack.image_reference if job.stack else None,
        "ok": job.problem is None,
        "reason": job.problem,
        "stages": [{"title": s.title, "seconds": s.seconds} for s in job.stages],
        "figures": job.figures,
    }


def close(job: Job) -> None:
    """Write the receipt and say how it ended, once, whichever way the run ends."""
    if job.closed or not job.stages:
        return
    job.closed = True
    job.problem = job.why_stop()
    if job.problem is None and job.state.current_stage == StateStage.Execute:
        job.problem = f'ended early at "{job.stages[-1].title}"'
    if job.stages[-1].seconds is None:
        job.stages[-1].seconds = round(time.monotonic() - job.stages[-1].began, 1)
    folder = make_run_folder(job)
    (folder / "receipt.json").write_text(json.dumps(receipt(job), indent=2) + "\n")
    print(f"\n--> {job.name}: stages", file=sys.stderr)
    for stage in job.stages:
        print(f"    {stage.seconds:8.1f} s  {stage.title}", file=sys.stderr)
    verdict = f"failed: {job.problem}" if job.problem else "done"
    print(f"--> {job.name} {verdict}\n    receipt: {folder / 'receipt.json'}", file=sys.stderr)

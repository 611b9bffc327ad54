"""The launch: workers, then the head, watched on all hosts until a real completion comes back.

One operation on the head's host carries it, because it must end with all ranks up or all down:
whatever goes wrong in here, every rank is taken down again and every log collected.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.engines.containers import LABEL
from gates.client import NoAnswer
from operations.launch.progress import Progress
from operations.pair.identity import ask_head, faults, specs
from operations.run.job import (
    Commands,
    Here,
    Job,
    fail,
    refuse,
    step,
)
from operations.run.remote import RemoteError, call, run
from operations.run.start import END_SIGNALS, make_run_folder, run_folder
from stacks.definition import Stack, StackError
from stacks.render import RankSpec

POLL_S = 2.0
TELL_S = 10.0
# Polls in a row without an answer before a host counts as gone.
SILENT_POLLS = 3
GRACE_S = 10
# The daemon that the hosts' state is read from: root's docker may have another context.
DAEMON = "DOCKER_HOST=unix:///var/run/docker.sock"


class BindError(Exception):
    """One sentence: why the launch cannot go on."""


@dataclass
class Watched:
    """One rank while it loads."""

    host: Host
    spec: RankSpec
    progress: Progress
    since: str = "0"
    ready: bool = False
    silent: int = 0
    container_id: str = ""
    started_at: str = ""
    log: list[str] = field(default_factory=list)


@contextmanager
def interrupted() -> Iterator[Callable[[], bool]]:
    """A question: did somebody ask this run to end (Ctrl-C, a closed terminal)? Clean-up first."""
    asked: list[int] = []
    old = {
        number: signal.signal(number, lambda got, _frame: asked.append(got))
        for number in END_SIGNALS
        if signal.getsignal(number) != signal.SIG_IGN  # nohup stays nohup
    }
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def start_rank(job: Job, rank: Watched) -> None:
    """Create and start the container of one rank; raises RemoteError."""
    spec = rank.spec
    if spec.kept is not None:
        call(rank.host, "adopt", "start", spec.kept.digest, timeout_s=300)
    elif spec.compose is None:
        label = f"{LABEL}generation={job.generation}"
        # One `docker run` for create and start: its caches were just dropped, each call is slow.
        argv = ["docker", "run", "--detach", "--label", label, *spec.create_argv[2:]]
        run(rank.host, f"{DAEMON} {shlex.join(argv)} > /dev/null", timeout_s=180)
    else:
        compose = ["docker", "compose", *spec.compose.words, "up", "--detach", "--quiet-pull"]
        run(rank.host, f"{DAEMON} {shlex.join(compose)}", timeout_s=300)
    state = call(rank.host, "ranks", "look", spec.container_name, "0")["state"]
    if state is None:
        raise RemoteError(f"{rank.host.name}: {spec.container_name} is not there after its start")
    rank.container_id, rank.started_at = state["Id"], state["StartedAt"]
    record = {
        "generation": job.generation,
        "stack": spec.stack,
        "rank": spec.rank,
        "spec": spec.spec,
        "container_id": state["Id"],
        "started_at": state["StartedAt"],
    }
    call(rank.host, "ranks", "record", stdin=json.dumps(record))


def poll(rank: Watched, ready: re.Pattern[str]) -> bool:
    """Look at one rank; True when its log shows progress. Raises BindError when it is dead."""
    try:
        seen = call(rank.host, "ranks", "look", rank.spec.container_name, rank.since, timeout_s=30)
    except RemoteError as error:
        rank.silent += 1
        if rank.silent >= SILENT_POLLS:
            raise BindError(f"rank {rank.spec.rank}: {error}") from None
        return False
    rank.silent = 0
    state = seen["state"]
    where = f"rank {rank.spec.rank} on {rank.host.name}"
    last = next((line for line in reversed(seen["log"] or rank.log) if line.strip()), "no log")
    if state is None:
        raise BindError(f"{where}: its container was removed while it loaded")
    if not state["Running"]:
        raise BindError(
            f"{where} ended with exit status {state['ExitCode']} while it loaded; "
            f"last line: {last[-200:]}"
        )
    if state["StartedAt"] != rank.started_at:
        raise BindError(f"{where} was restarted while it loaded; last line: {last[-200:]}")
    rank.since = f"{seen['now']:.3f}"
    fresh = [line for line in seen["log"] if line not in rank.log[-len(seen["log"]) :]]
    rank.log = (rank.log + fresh)[-500:]
    rank.ready = rank.ready or any(ready.search(line) for line in fresh)
    return rank.progress.feed(fresh)


def tell(job: Job, ranks: list[Watched], elapsed_s: float, idle_s: float, stack: Stack) -> None:
    """One line: how far each rank is, how long it took, how long until it counts as stalled."""
    parts = [
        f"rank {r.spec.rank} {'ready' if r.ready else r.progress.latest or 'starting'}"
        for r in ranks
    ]
    stall = stack.deadlines.stall_s
    job.hosts[0].log(
        f"{elapsed_s:5.0f} s  {'; '.join(parts)}; last progress {idle_s:.0f} s ago "
        f"(stall limit {stall} s, cap {stack.deadlines.bind_s} s)",
        log_func=logger.info,
    )


class Canary:
    """Asks for a completion in the background, so that the ranks stay watched meanwhile."""

    def __init__(self, host: Host, stack: Stack) -> None:
        self._host, self._stack = host, stack
        self._asking: gevent.Greenlet | None = None
        self.refused = ""

    def answered(self) -> Any | None:
        """The reply once there is one; a refusal is kept and the question asked again."""
        if self._asking is None:
            self._asking = gevent.spawn(self._ask)
        if not self._asking.dead:
            return None
        reply, self._asking = self._asking.value, None
        return reply

    def _ask(self) -> Any | None:
        try:
            return ask_head(self._host, self._stack, self._stack.deadlines.canary_s)
        except (NoAnswer, OSError) as error:
            self.refused = str(error)
            return None

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.kill(block=False)


def wait_until_served(
    job: Job, ranks: list[Watched], stack: Stack, asked_to_end: Callable[[], bool]
) -> Any:
    """Poll all ranks until the head answers; raises BindError on a death, a stall or the cap."""
    ready = re.compile(stack.log.ready or "")
    began = progressed = told = time.monotonic()
    canary = Canary(job.hosts[0], stack)
    try:
        while True:
            advances = gevent.joinall([gevent.spawn(_polled, r, ready) for r in ranks])
            for greenlet in advances:
                if isinstance(greenlet.value, BindError):
                    raise greenlet.value
            now = time.monotonic()
            if any(greenlet.value for greenlet in advances):
                progressed = now
            head_up = len(ranks) == len(job.hosts) and ranks[-1].ready
            if head_up and (reply := canary.answered()):
                return reply
            if asked_to_end():
                raise BindError("this run was asked to end (Ctrl-C, SIGTERM or a closed terminal)")
            limit = stack.deadlines.canary_s + stack.deadlines.stall_s if head_up else 0
            if now - progressed > max(stack.deadlines.stall_s, limit):
                latest = "; ".join(
                    f"rank {r.spec.rank}: {(r.log or ['no log'])[-1]}" for r in ranks
                )
                claim = f"; asked for a completion: {canary.refused}" if head_up else ""
                raise BindError(
                    f"no progress for {now - progressed:.0f} s (stall limit "
                    f"{stack.deadlines.stall_s} s){claim}; last lines: {latest}"
                )
            if now - began > stack.deadlines.bind_s:
                raise BindError(f"no answer within {stack.deadlines.bind_s} s")
            if now - told > TELL_S:
                told = now
                tell(job, ranks, now - began, now - progressed, stack)
            gevent.sleep(POLL_S)
    finally:
        canary.stop()


def _polled(rank: Watched, ready: re.Pattern[str]) -> bool | BindError:
    try:
        return poll(rank, ready)
    except BindError as error:
        return error


def kernel_lines(rank: Watched, folder: Path, seconds: float) -> None:
    """What a host's kernel said about memory since the launch, beside the logs: for a person to
    read. It decides nothing: healthy loads have such lines too, and failed ones may have none."""
    try:
        lines = call(rank.host, "ranks", "kernel", f"{seconds + 1:.0f}", timeout_s=30)["lines"]
    except RemoteError as error:
        lines = [f"could not be read: {error}"]
    if lines:
        (folder / f"kernel-{rank.spec.host}.log").write_text("\n".join(lines) + "\n")


def collect(job: Job, ranks: list[Watched], seconds: float) -> list[str]:
    """Whole logs of all ranks into the run's folder here; what could not be had is said.

    seconds: since the launch began.
    """
    folder = make_run_folder(job)
    said = []
    for rank in ranks:
        name = shlex.quote(rank.spec.container_name)
        # docker cuts long lines in the middle of a character; iconv drops the halves.
        command = f"{DAEMON} docker logs --timestamps {name} 2>&1 | iconv -c -f utf-8 -t utf-8"
        try:
            text = run(rank.host, command, timeout_s=60)
        except RemoteError as error:
            text = f"could not be collected: {error}\n--- as watched:\n" + "\n".join(rank.log)
            said.append(str(error))
        (folder / f"rank{rank.spec.rank}-{rank.spec.host}.log").write_text(text + "\n")
        kernel_lines(rank, folder, seconds)
    return said


def take_down(job: Job, ranks: list[Watched]) -> list[str]:
    """All ranks down, head first; sentences for those that could not be reached."""
    said = []
    for rank in sorted(ranks, key=lambda r: r.spec.rank):
        try:
            names = rank.spec.kept.containers if rank.spec.kept else [rank.spec.container_name]
            answer = call(rank.host, "ranks", "end", str(GRACE_S), *names, timeout_s=120)
            if answer["left"]:
                said.append(f"{rank.host.name}: {', '.join(answer['left'])} is still there")
        except RemoteError as error:
            said.append(f"{rank.spec.container_name} may still run on {error}")
        job.changed(rank.host)
    return said


def clean_up(job: Job, ranks: list[Watched], reason: str, began: float) -> str:
    """After any failure: logs, then both ranks down; the whole sentence for the person."""
    logs = str(run_folder(job))
    try:
        collect(job, ranks, time.monotonic() - began)
    except Exception as error:  # a full disk here must not leave the ranks up
        logs = f"could not be kept ({type(error).__name__}: {error})"
    try:
        left = take_down(job, ranks)
    except Exception as error:
        left = [f"the clean-up itself failed: {type(error).__name__}: {error}"]
    tail = "all ranks are down" if not left else f"NOT all ranks are down: {'; '.join(left)}"
    return f"{reason}; {tail}; logs: {logs}"


def prove(job: Job) -> None:
    """All ranks read again and one more completion, while a failure can still be cleaned up.

    Raises BindError: a rank that dies right behind the load must not leave the others up.
    """
    for one in job.hosts:
        job.changed(one)
    wrong = faults(job)
    if wrong:
        raise BindError(f"after the launch: {'; '.join(wrong)}")


def _bind(state: State, host: Host, job: Job, stack: Stack) -> bool:
    ranks: list[Watched] = []
    began = time.monotonic()
    with interrupted() as asked_to_end:
        try:
            patterns = [re.compile(p) for p in stack.log.progress]
            planned = [
                Watched(job.hosts[spec.rank], spec, Progress(patterns))
                for spec in specs(job.cluster, stack, job.states())
            ]
            head, workers = planned[0], planned[1:]
            for rank in workers:
                ranks.append(rank)  # before the start: a start that fails half way is cleaned too
                start_rank(job, rank)
                host.log(f"rank {rank.spec.rank} started on {rank.host.name}")
            _hold_on(ranks, stack, asked_to_end)
            ranks.append(head)
            start_rank(job, head)
            host.log(f"rank 0 started on {head.host.name}")
            reply = wait_until_served(job, ranks, stack, asked_to_end)
            seconds = round(time.monotonic() - began, 1)
            prove(job)
        except (BindError, RemoteError) as error:
            return fail(state, host, job, clean_up(job, ranks, str(error), began))
        except Exception as error:
            reason = f"unexpected {type(error).__name__}: {error}"
            return fail(state, host, job, clean_up(job, ranks, reason, began))
    job.figures["bind_seconds"] = seconds
    job.figures["canary"] = {"seconds": round(reply.seconds, 2), "tokens": reply.tokens}
    host.log(
        f"{stack.serve.model_name} answered after {seconds} s: {reply.content.strip()[:120]!r}",
        log_func=logger.info,
    )
    return True


def _hold_on(workers: list[Watched], stack: Stack, asked_to_end: Callable[[], bool]) -> None:
    """The head's delay, with the workers watched: a head must not meet a dying worker."""
    ready = re.compile(stack.log.ready or "")
    until = time.monotonic() + stack.start.head_delay_s
    while True:
        for rank in workers:
            poll(rank, ready)
        if asked_to_end():
            raise BindError("this run was asked to end (Ctrl-C, SIGTERM or a closed terminal)")
        left = until - time.monotonic()
        if left <= 0:
            return
        gevent.sleep(min(POLL_S, left))


@step
def bound(here: Here) -> Commands:
    """
    Start all ranks and prove that the model answers; on the head's host, for all hosts.

    + here: this host's share of the run

    Workers first, the head after the stack's delay while the workers live. Progress decides, not
    the clock: no progress for the stack's stall_s, a dead rank or bind_s ends it.
    Fails: both ranks down, both logs in the run's folder here, one sentence.
    """
    stack = here.stack
    wrong = faults(here.job)
    if not wrong:
        here.noop(f"{stack.name} serves on all ranks")
        return
    if here.executing:
        try:
            specs(here.cluster, stack, here.job.states())
        except StackError as error:
            yield refuse(here.job, "; ".join(error.lines))
            return
    yield FunctionCommand(_bind, (here.job, stack), {})

"""How a run begins, one Job for all hosts, and what it leaves when it ends: its receipt."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
import uuid
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pyinfra
from pyinfra.api.host import Host
from pyinfra.api.state import StateStage

from facts.snapshot import Ask, Reader
from operations.run.control import origin, who
from operations.run.job import Here, Job
from operations.run.roll_call import of_run
from stacks.definition import Stack

# What ends a run from outside: Ctrl-C, a kill, a closed terminal.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEEPALIVE_S = 15


def asked_to_end(job: Job, number: int, _frame: FrameType | None) -> None:
    """pyinfra ends with status 0 on Ctrl-C; a run that was cut off has not succeeded."""
    where = job.stages[-1].title if job.stages else "planning"
    job.blame(f'ended by {signal.Signals(number).name} at "{where}"')
    raise SystemExit(128 + number)


def _listen(job: Job) -> None:
    """Notice a request to end, and links that silently died."""
    for number in END_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, partial(asked_to_end, job))
    for host in job.hosts:
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

    def first() -> Job:
        ranked = tuple(sorted(host.inventory, key=lambda one: int(one.data.rank)))
        me = {"run": str(uuid.uuid4()), "job": name, "who": who(), "origin": origin()}
        reader = Reader(ask, me)
        job = Job(
            name, host.data.cluster, stack, known, ranked, reader,
            settles=settles, launches=launches,
        )  # fmt: skip
        atexit.register(close, job)
        if pyinfra.is_cli:
            _listen(job)
        return job

    return Here(of_run(host, Job, first), int(host.data.rank))


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
        "figures": {**job.figures, **job.notes.figures()},
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

"""Hosts given back as they were: the work is done on the host, from its own journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.run.unknown import Unknown
from operations.engines.recognise import alive
from operations.run.job import Commands, Here, Job, fail, refuse_beforehand, step
from operations.run.journal import announce, journal_of
from operations.run.program import UNDO_COMMAND, engine_signs, missing
from operations.run.remote import RemoteError, call

# The longest part is `netplan apply` with its settling, 40 s, and slow units on a slow host.
UNDO_S = 900
# A link that rides on the network which is given back may be cut; the work goes on without it.
RECONNECT_S = 240


def complaints(job: Job) -> list[str]:
    """Why no host is given back now; nothing when there is nothing to give back anywhere."""
    said = job.absent()
    if said:
        return [f"{s} (at its own console: sudo {UNDO_COMMAND})" for s in said]
    states = job.states()
    for node, state in zip(job.cluster.nodes, states, strict=True):
        if not isinstance(state.journal, tuple):
            said.append(f"{node.name}: journal {state.journal}")
    if not any(journal_of(state) for state in states):
        return said
    for node, state in zip(job.cluster.nodes, states, strict=True):
        if isinstance(state.containers, Unknown):
            said.append(f"{node.name}: containers {state.containers}")
        if isinstance(state.outside, Unknown):
            said.append(f"{node.name}: programs outside of docker {state.outside}")
        for one in alive(state, job.known):
            how = "deploys/stop.py" if one.kind == "known" else one.stop
            said.append(f"{node.name}: {one.told} runs; take it down first: {how}")
    return said


@step
def allowed(here: Here) -> Commands:
    """
    Refuse on every host while a rank runs anywhere, or while a host is missing.

    + here: this host's share of the run
    """
    said = complaints(here.job)
    if not said:
        return
    yield refuse_beforehand(here.job, said)


def _ask(host: Host, job: Job, force: Sequence[str]) -> dict[str, Any]:
    """The host's answer. Asked again after a cut link: it joins the work that goes on there."""
    words = ["undo", "--run", "--engines", engine_signs(job.known), "--force", *force]
    deadline = time.monotonic() + RECONNECT_S
    while True:
        try:
            return call(host, *words, timeout_s=UNDO_S)
        except RemoteError as error:
            if host.connected and "connection is gone" not in str(error):
                raise
            if time.monotonic() > deadline:
                raise
            host.disconnect()
            time.sleep(3)


def _run(state: State, host: Host, job: Job, force: Sequence[str]) -> bool:
    try:
        answer = _ask(host, job, force)
    except RemoteError as error:
        return fail(
            state, host, job, f"{error}; run it again, or at the console: sudo {UNDO_COMMAND}"
        )
    job.changed(host)
    job.figures.setdefault("undo", {})[host.name] = answer
    for name in answer["restored"]:
        host.log(f"given back: {name}", log_func=logger.info)
    for note in answer["notes"]:
        host.log(f"note: {note}", log_func=logger.info)
    left = [f"{one['name']}: {one['why']}" for one in answer["left"]]
    if left:
        told = "\n    - ".join(left)
        return fail(
            state, host, job,
            f"{host.name}: not given back, {len(left)} in all (a file that was edited since: "
            f"--data force=PATH,PATH gives it back all the same and keeps the edit):\n    - {told}",
        )  # fmt: skip
    host.log(f"the journal is now {answer['aside']}", log_func=logger.info)
    return True


@step
def undone(here: Here, force: Sequence[str]) -> Commands:
    """
    Give a host back as its journal has it, and prove it by reading it again.

    + here: this host's share of the run
    + force: paths of files to give back although somebody edited them since

    Fails: names what could not be given back; the rest is given back all the same.
    Leaves behind: the journal, renamed; the on-host program.
    """
    state = here.read()
    entries = journal_of(state)
    if not entries:
        here.noop("nothing to undo")
        return
    if not here.executing:
        announce(here.host, entries, force)
    yield from missing(state, here.job.known)
    yield FunctionCommand(_run, (here.job, force), {})

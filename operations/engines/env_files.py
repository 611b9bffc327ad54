"""Files with a stack's secrets on the host: there, and nobody else's to read. docker reads them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from operations.run.job import Commands, Here, Job, fail, step
from operations.run.remote import RemoteError, run


def command(paths: Sequence[str]) -> str:
    """Owner, mode and kind of each file in a line of its own; never what stands in it."""
    return "; ".join(
        f"LC_ALL=C stat -Lc '%u %a %F' -- {shlex.quote(path)} 2>/dev/null || echo absent"
        for path in paths
    )


def complaints(paths: Sequence[str], said: str) -> Iterator[str]:
    """What is wrong with each file, by the answer to `command`."""
    for path, line in zip(paths, said.splitlines(), strict=True):
        uid, mode, kind = (*line.split(maxsplit=2), "", "")[:3]
        way = f"`sudo install -m 600 /dev/null {path}`, then NAME=VALUE lines in it"
        if line == "absent":
            yield f"{path} is not there; {way}"
        elif not kind.startswith("regular"):
            yield f"{path} is a {kind or 'thing that cannot be read'}, a file expected; {way}"
        elif uid != "0" or mode not in ("600", "400"):
            told = f"user {uid} and mode {mode} found; only root may read secrets"
            yield f"{path}: {told}: `sudo chown root {path}; sudo chmod 600 {path}`"


def _look(state: State, host: Host, job: Job, paths: Sequence[str]) -> bool:
    try:
        wrong = list(complaints(paths, run(host, command(paths))))
    except (RemoteError, ValueError) as error:
        return fail(state, host, job, f"{host.name}: files with secrets cannot be read ({error})")
    return fail(state, host, job, f"{host.name}: {'; '.join(wrong)}") if wrong else True


@step
def private(here: Here) -> Commands:
    """
    Have every file of the stack's secrets there and readable by root alone, before a launch.

    + here: this host's share of the run

    Changes nothing and reads no secret; what is wrong is said with the command that sets it right.
    """
    container = here.stack.container
    paths = container.env_files if container else ()
    if not paths:
        here.noop(f"{here.stack.name} has no secrets")
        return
    yield FunctionCommand(_look, (here.job, paths), {})

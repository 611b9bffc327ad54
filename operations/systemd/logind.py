"""Shared memory that outlives the login of the user it belongs to.

By default logind deletes all segments and semaphores of a user whose last session ends: an engine
that runs under that user dies when its owner closes an SSH session (vllm#54259, sparkrun#285).
"""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import StringCommand

from facts.state import HostState
from facts.systemd.logind import Logind
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, step
from operations.run.journal import put, quiet

PATH = "/etc/systemd/logind.conf.d/zz-spark-converge.conf"
TEXT = b"# Written by spark-converge; taken away by its undo.\n[Login]\nRemoveIPC=no\n"


def settled(state: HostState) -> bool:
    """Does the running logind leave segments alone, and the next one as well?"""
    return (
        isinstance(state.logind, Logind)
        and state.logind.remove_ipc is False
        and state.has(PATH, TEXT)
    )


def assess(look: Look) -> Iterator[Finding]:
    """Segments of a user who has logged out: logind removes them unless told otherwise."""
    found, line = look.state.logind, Wanted("memory", "RemoveIPC of logind", "no, now and at boot")
    if not isinstance(found, Logind):
        yield line.unread(found)
    elif found.remove_ipc is None:
        yield line.lacking("no logind runs")
    else:
        seen = "yes" if found.remove_ipc else "no"
        seen += "" if look.state.has(PATH, TEXT) else f", {PATH} absent or changed"
        seen += f"; lingering: {', '.join(found.lingering)}" if found.lingering else ""
        yield line.judged(seen, settled(look.state))


@step
def keeps_ipc(here: Here) -> Commands:
    """
    Keep the shared memory of users who log out; sessions are not touched.

    + here: this host's share of the run

    Undo: our drop-in goes, logind reads its files anew.
    """
    state = here.read()
    if here.known(state.logind, "logind").remove_ipc is None:
        here.warn("unsupported: no logind runs on this host")
        return
    if settled(state):
        here.noop("shared memory outlives a login")
        return
    if not state.has(PATH, TEXT):
        yield put(PATH, TEXT, 0o644)
    yield StringCommand(quiet("logind", "reload"))
    here.changed()
    if not settled(here.read()):
        yield here.refuse(
            f"logind still removes the segments of users who log out, after {PATH} "
            "and a reload: see `systemd-analyze cat-config systemd/logind.conf`",
        )

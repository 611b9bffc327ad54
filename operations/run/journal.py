"""Commands that change a file or a setting only after its original is in the host's journal."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from facts.run.journal import Entry
from facts.state import HostState
from operations.run.remote import spark_host


def quiet(*arguments: str) -> str:
    """A spark-host call whose answer nobody needs."""
    return spark_host(*arguments) + " > /dev/null"


def put(
    path: str, data: bytes, mode: int, owner: tuple[int, int] = (0, 0), tag: str | None = None
) -> StringCommand:
    """Write a file whole, owner and mode included; its original is kept first.

    tag: the word before held lines, where undo shall only take the tags out of an edited file
    """
    words = [path, f"{mode:o}", *map(str, owner), *([tag] if tag else [])]
    command = quiet("journal", "put", *words)
    return StringCommand(command, _stdin=base64.b64encode(data).decode() + "\n")


def setting(name: str, found: str, ours: str) -> str:
    """Keep how a setting was found (the first value wins) and what it is set to."""
    return quiet("journal", "setting", name, found, ours)


def journal_of(state: HostState) -> tuple[Entry, ...]:
    """The entries that were read, none when they could not be (a complaint says so)."""
    return state.journal if isinstance(state.journal, tuple) else ()


def announce(host: Host, entries: Sequence[Entry], force: Sequence[str]) -> None:
    """What a dry run says: what would be given back, and what would not."""
    for entry in entries:
        forced = entry.verdict == "edited" and entry.name in force
        if entry.verdict == "restore" or forced:
            host.log(f"would give back {entry.name}", log_func=logger.info)
        elif entry.verdict in ("edited", "unread"):
            host.log(f"would leave {entry.name}: {entry.why}", log_func=logger.warning)

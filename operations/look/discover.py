"""Look at hosts that no owner's file describes yet, and print one that does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host

from facts.look.discovered import Discovered
from facts.network.fabric import Fabric
from facts.run.program import program_archive
from facts.snapshot import Ask, Snapshot
from facts.state import HostState
from operations.look import owner_file
from operations.look.owner_file import Seen
from operations.run.roll_call import RollCall, of_run
from operations.watchdogs.resurrection import stack_words
from stacks.definition import Stack

MOST_HOSTS = 8  # inventory/schema.py: one head and at most seven workers


def read(host: Host, known: Sequence[Stack]) -> HostState:
    """The host's state, as root: netplan's files and docker are not for everybody.

    Raises PyinfraError where sudo wants a password and there is no terminal to ask for it.
    """
    user = host.data.get("ssh_user")
    root = os.geteuid() == 0 if host.name == "@local" else user == "root"
    ask = Ask(words=stack_words(known), extra=("discovered",))
    try:
        return host.get_fact(Snapshot, ask=ask, _stdin=program_archive(), _sudo=not root)
    except EOFError:
        raise PyinfraError(
            f"{host.name}: sudo asks for a password there and nobody can be asked here; run it in "
            "a terminal, or log in as root or as somebody whose sudo asks for none"
        ) from None


def ranked(hosts: Sequence[Host]) -> list[Host]:
    """In rank order where an inventory gives one, else as they were named."""
    return sorted(hosts, key=lambda host: int(host.data.get("rank", 0)))


def seen(host: Host, state: HostState) -> Seen:
    """Raises PyinfraError for a host whose ports could not be read."""
    if not isinstance(state.discovered, Discovered) or not isinstance(state.fabric, Fabric):
        unread = state.fabric if isinstance(state.discovered, Discovered) else state.discovered
        raise PyinfraError(
            f"{host.name}: its state could not be read ({unread}); log in as root or as somebody "
            "whose sudo asks for no password"
        )
    address = host.name if host.name == "@local" else host.data.get("ssh_hostname") or host.name
    return Seen(str(address), state, state.discovered, state.fabric)


def ssh_settings(hosts: Sequence[Host], found: Sequence[Seen]) -> dict[str, Any]:
    """The schema's ssh section: the user that logged in, and what pyinfra was told besides."""
    data = hosts[-1].data  # the head may be this machine
    given = {
        "port": data.get("ssh_port"),
        "key": data.get("ssh_key"),
        "config_file": data.get("ssh_config_file"),
    }
    user = data.get("ssh_user") or found[-1].found.login
    return {"user": str(user)} | {key: value for key, value in given.items() if value}


def look(host: Host, known: Sequence[Stack]) -> None:
    """Read this host; the last one to be read prints the owner's file and ends the run.

    Exit status 1 when the file that it would print does not load; what is wrong stands in it.
    """
    roll = of_run(host, RollCall, RollCall)
    if not roll.complete(host, read(host, known), host.state.active_hosts):
        return
    hosts = ranked([one for one in host.inventory if one in host.state.active_hosts])
    if not 1 < len(hosts) <= MOST_HOSTS:
        raise PyinfraError(
            f"{len(hosts)} hosts can be read, 2 to {MOST_HOSTS} wanted, the head first: "
            "pyinfra spark1,spark2 deploys/discover.py"
        )
    found = [seen(one, roll.states[one.name]) for one in hosts]
    made = owner_file.text(owner_file.values(found, known, ssh_settings(hosts, found)))
    wrong = owner_file.mistakes(made)
    for line in wrong:
        print(f"# NOT usable yet: {line}")
    print(made, end="")
    raise SystemExit(1 if wrong else 0)

"""What every job begins with: the run it belongs to, and the checks before any change."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host

from inventory.schema import Cluster
from operations.adopt import adopt, file
from operations.look import preflight
from operations.look.parts import ask_of
from operations.run import lease, start
from operations.run.job import Here, checklist, stage, stage_for_those_left, together
from stacks.definition import PREVIOUS, Stack, StackError, load, names

QUIET_LIMIT_S = 86400


@cache
def known_stacks(lock_dir: str | None) -> tuple[Stack, ...]:
    """All shipped stacks with their locks; a mistake in one of them ends the run in its words."""
    folder = Path(lock_dir) if lock_dir else None
    try:
        return tuple(load(name, folder) for name in names())
    except StackError as error:
        raise PyinfraError("\n".join(error.lines)) from None


def previous(cluster: Cluster) -> tuple[Stack, ...]:
    """What an earlier run took on from these hosts, none or one; a damaged file ends the run."""
    try:
        found = file.read(cluster)
    except StackError as error:
        raise PyinfraError("\n".join(error.lines)) from None
    ranks = found.adopted.ranks if found and found.adopted else ()
    same = [one.host for one in ranks] == [node.name for node in cluster.nodes]
    return (found,) if found and same else ()


def previous_name(cluster: Cluster) -> str | None:
    return PREVIOUS if previous(cluster) else None


def begin(
    name: str,
    stack_name: str | None,
    *,
    settles: bool = False,
    launches: bool = False,
    extra: tuple[str, ...] = (),
) -> Here:
    """This host's share of the run; `stack_name`: what the job is about, None for no stack.

    settles: the hosts are brought to the owner's file, fabric included; launches: the stack is to
    serve in the end; extra: parts of the hosts' state that are read only when asked for.
    """
    cluster: Cluster = host.data.cluster
    known = (*known_stacks(cluster.lock_dir), *previous(cluster))
    stack = next((one for one in known if one.name == stack_name), None)
    if stack_name is not None and stack is None:  # an empty name is one too
        allowed = ", ".join(one.name for one in known)
        raise PyinfraError(f"stack {stack_name!r} found; {allowed} allowed")
    if stack is not None and stack.adopted is not None and name != "rollback_dsf":
        raise PyinfraError(
            f"stack {PREVIOUS} is what ran before: deploys/rollback_dsf.py brings it back"
        )
    ask = ask_of(cluster, stack, known, extra)
    return start.start(name, host, stack, known, ask, settles, launches)


def word(key: str, allowed: str) -> bool:
    """Was `--data KEY=ALLOWED` given? Raises PyinfraError for another value."""
    given = host.data.get(key)
    if given not in (None, allowed):
        raise PyinfraError(f"{key}={given} found; {allowed} allowed")
    return given is not None


def full_read() -> bool:
    """Whether every byte of the model is to be read, whatever was proven: `--data verify=full`."""
    return word("verify", "full")


def quiet_s(usual: int) -> int:
    """Seconds to watch that nothing comes back: `--data quiet=SECONDS`, or the usual ones.

    Raises PyinfraError for what is no such number.
    """
    given = str(host.data.get("quiet", usual))
    if not given.isdecimal() or int(given) > QUIET_LIMIT_S:
        raise PyinfraError(f"quiet={given} found; whole seconds up to {QUIET_LIMIT_S} allowed")
    return int(given)


@checklist("Preflight")
def checked(here: Here, adopts: bool = False) -> None:
    """All complaints about all hosts, before anything is changed anywhere.

    adopts: what runs and can be brought back is no stranger.
    """
    # No barrier yet: the preflight itself says which host is missing, and why the others wait.
    stage_for_those_left(here, "Preflight")
    lease.alone(here, name="No other run is at work on any host")
    if adopts:
        adopt.recognised(here, name="What runs is recognised")
    preflight.passed(here, name="Nothing forbids this job on any host")
    stage(here, "Program", name="Passed on all hosts")


@checklist("End")
def ended(here: Here) -> None:
    """Every host is through; the next run need not wait for this one's lease to lapse."""
    together(here, "Every host is through")
    lease.released(here, name="The next run may begin")

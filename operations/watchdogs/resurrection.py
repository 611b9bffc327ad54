"""Everything that could bring an engine back: one inventory, held reversibly or refused.

Cron lines are held by operations.crontab; here are units, timers, scripts of folders that cron or a
link that comes up runs, and at jobs, and the view over all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pyinfra.api.command import StringCommand

from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.services import ASLEEP
from facts.watchdogs.crontab import Crontabs
from facts.watchdogs.starters import AtJob, Starters, Unit
from operations.engines.recognise import engines
from operations.pair.identity import faults
from operations.run.findings import Finding, Look, Wanted, aside
from operations.run.job import Commands, Here, step
from operations.run.remote import spark_host
from operations.watchdogs import crontab
from stacks.definition import Stack

# armed: would start something; held: by us; inert: nothing runs it; refused: not ours to judge.
Status = Literal["armed", "held", "inert", "refused"]
POLICIES = "restart policies"
FOLDERS, HOOKS = "cron folders", "network hooks"
KINDS = ("cron lines", FOLDERS, HOOKS, "at jobs", "system units", "user units", POLICIES)
ARMED = {"armed", "refused"}
TRANSIENT = "/systemd/transient/"  # below /run, or /run/user/1000


@dataclass(frozen=True)
class Source:
    """One thing that could start an engine; why: what makes it so, or what to do about it."""

    kind: str
    name: str
    status: Status
    why: str


def stack_words(known: Sequence[Stack]) -> tuple[str, ...]:
    """Names in a command that mean a known stack: projects, their folders, containers, images."""
    named: list[str] = []
    for stack in known:
        if stack.compose:
            named += [stack.compose.project, stack.compose.directory, stack.compose.container]
        for rank in stack.adopted.ranks if stack.adopted else ():
            named += [*rank.containers, *rank.folders]
        named += [*stack.recognise.compose_projects, *stack.recognise.image_repositories]
    return tuple(sorted(set(named)))


def cron_lines(found: Crontabs, word: str) -> Iterator[Source]:
    """Lines by number and by the words that make them starters; never the line, which may hold a
    password."""
    for table in found.tables:
        again = crontab.put_back(table, word)
        texts = table.text.split("\n")
        for number, line in table.lines.items():
            held = crontab.held_body(texts[number - 1], word, table.kept) is not None
            if line.tag and not held:  # by somebody else, or before our time: a comment
                continue
            status: Status = "held" if held else "inert" if table.inert else "armed"
            why = line.why + (f"; {table.inert}" if table.inert else "")
            why += f"; the held line {again[number]}, armed again" if number in again else ""
            yield Source("cron lines", f"{table.title} line {number}", status, why)


def unended(found: Crontabs | Unknown) -> list[str]:
    """Sentences about last lines that cron does not run."""
    tables = [] if isinstance(found, Unknown) else found.tables
    return [
        f"{table.title} line {table.unended} is the last one and has no newline at its end: "
        "cron does not run it; put an empty line behind it if it should run"
        for table in tables
        if table.unended and not table.inert
    ]


def unit_source(unit: Unit) -> Source:
    kind = "system units" if unit.scope == "system" else "user units"
    name = unit.name if unit.scope == "system" else f"{unit.name} of {unit.scope}"
    by = [trigger.name for trigger in unit.triggers if trigger.armed]
    what = ", ".join(unit.scripts) or "its own command"
    # A watchdog that loops is held only once it is stopped; an engine itself ends in its turn.
    if unit.held and not (unit.stops and unit.alive):
        return Source(kind, name, "held", what)
    if not unit.can_start:
        return Source(kind, name, "inert", "nothing starts it")
    if unit.of_package and unit.weight != "starts":
        return Source(kind, name, "inert", "of a package, starts no container")
    if unit.of_package:
        told = f"{unit.path} is a package's: systemctl mask --now {' '.join([*by, unit.name])}"
        return Source(kind, name, "refused", told + " if it is not wanted beside the new stack")
    return Source(kind, name, "armed", what + (f", by {', '.join(by)}" if by else ""))


def at_source(job: AtJob) -> Source:
    when = datetime.fromtimestamp(job.when_s, UTC)
    told = f"runs at {when:%Y-%m-%d %H:%M} UTC; look at it with: at -c {job.number}, remove it "
    return Source("at jobs", f"at job {job.number}", "refused", told + f"with: atrm {job.number}")


def starters_sources(found: Starters) -> Iterator[Source]:
    for script in found.scripts:
        status: Status = "held" if script.held else "inert" if script.inert else "armed"
        kind = FOLDERS if script.path.startswith("/etc/cron.") else HOOKS
        yield Source(kind, script.path, status, "" if script.held else script.inert or "")
    yield from (at_source(job) for job in found.at_jobs)
    yield from (unit_source(unit) for unit in found.units)


def policies(
    rank: int, state: HostState, stack: Stack | None, known: Sequence[Stack]
) -> Iterator[Source]:
    """Containers that docker starts by itself; the wanted stack's own compose file may say so."""
    for found in engines(rank, state, known):
        one = found.container
        if one.policy != "no" and not (
            stack and stack.launcher != "run" and found.stack == stack.name
        ):
            yield Source(POLICIES, one.name, "armed", one.policy)


def sources(
    rank: int, state: HostState, word: str, stack: Stack | None, known: Sequence[Stack]
) -> list[Source]:
    """The inventory of one host, as far as it could be read.

    word: the tag of held cron lines; stack: what shall serve, if anything.
    """
    found: list[Source] = []
    if isinstance(state.crontab, Crontabs):
        found += cron_lines(state.crontab, word)
    if isinstance(state.starters, Starters):
        found += starters_sources(state.starters)
    return [*found, *policies(rank, state, stack, known)]


def likely_origin(
    rank: int, state: HostState, word: str, known: Sequence[Stack], back: Sequence[str]
) -> str:
    """What may have started containers (`back`, by name) that nobody asked for.

    Their own restart policies are none of it: they were removed, and whoever made them anew gave
    them the policy again.
    """
    armed = [
        f"{s.name} ({s.why})" if s.why else s.name
        for s in sources(rank, state, word, None, known)
        if s.status in ("armed", "refused") and not (s.kind == POLICIES and s.name in back)
    ]
    unsaid = {str(why): None for kind in KINDS if (why := unread(kind, state))}
    armed += [f"something that could not be read ({why})" for why in unsaid]
    if not armed:
        return "nothing on this host that would start it was found; a person, or another machine"
    return ", ".join(armed)


def unread(kind: str, state: HostState) -> Unknown | None:
    """Why nothing can be said of one kind, None when it was read."""
    part = {"cron lines": state.crontab, POLICIES: state.containers}
    found = part.get(kind, state.starters)
    return found if isinstance(found, Unknown) else None


def refusals(found: Starters | Unknown) -> list[str]:
    """Sentences about what would bring an engine back and is not ours to hold."""
    if isinstance(found, Unknown):
        return [f"what could start an engine beside cron: {found}"]
    return [f"{s.name}: {s.why}" for s in starters_sources(found) if s.status == "refused"]


def assess(look: Look) -> Iterator[Finding]:
    """One line for each kind of thing that could start an engine unasked.

    Beside a stack that this tool launches none may be armed; the owner's own compose stack has its
    watchdogs to itself, and none may still be held.
    """
    state, stack = look.state, look.stack
    wanted, wrong = ("none held", {"held"}) if stack.compose else ("none armed", ARMED)
    found = sources(look.rank, state, look.cluster.tags.hold, stack, look.known)
    for kind in KINDS:
        line, why = Wanted("resurrection", kind, wanted), unread(kind, state)
        if why:
            yield line.unread(why)
            continue
        mine = [one for one in found if one.kind == kind]
        told = [f"{one.status}: {one.name}" + (f" ({one.why})" if one.why else "") for one in mine]
        yield line.judged("; ".join(told) or "none", not any(one.status in wrong for one in mine))
    yield aside("advice", look.named(unended(state.crontab)))
    if isinstance(state.starters, Starters):
        yield aside("refuse", look.named(refusals(state.starters), look.launches))


def restarts(unit: Unit) -> bool:
    """Is a service that ran started again? One that was just at it is by its trigger, if any."""
    return unit.active == "active" or (unit.alive and not unit.triggers)


def plan(found: Starters) -> dict[str, Any]:
    """What spark-host's `holds put` takes; empty lists when nothing is armed.

    Timers, paths and sockets are stopped before what they start. A service that is an engine's own
    command is not stopped, unless it is just starting one: its container is saved and taken down in
    its turn, and the condition keeps it from coming back. A transient trigger would be lost if it
    were stopped; the condition on its service is enough.
    """
    armed = [unit for unit in found.units if unit_source(unit).status == "armed"]
    units: list[dict[str, Any]] = []
    for unit in armed:
        units += [
            {
                "scope": unit.scope,
                "uid": unit.uid,
                "name": trigger.name,
                "file_state": trigger.file_state,
                "active": trigger.active,
                "stop": True,
                "restart": trigger.active not in ASLEEP,
            }
            for trigger in unit.triggers
            if TRANSIENT not in trigger.path
        ]
        units.append(
            {
                "scope": unit.scope,
                "uid": unit.uid,
                "name": unit.name,
                "file_state": unit.file_state,
                "active": unit.active,
                "stop": unit.stops,
                "restart": unit.stops and restarts(unit),
            }
        )
    unique = {(unit["scope"], unit["name"]): unit for unit in units}
    scripts = [s.path for s in found.scripts if not s.inert and not s.held]
    return {"units": list(unique.values()), "scripts": scripts}


@step
def held(here: Here, for_good: bool) -> Commands:
    """
    Hold every unit, timer and cron.* script that would start containers; name what cannot be held.

    + here: this host's share of the run
    + for_good: hold them also when nothing is to be launched or taken down

    Units get a drop-in with a condition that never holds, scripts lose their x bit.
    Undo: ``rearmed``, or the journal.
    """
    if not for_good and not faults(here.job):
        return
    found = here.known(here.read().starters, "what could start an engine beside cron:")
    for sentence in refusals(found):
        here.warn(f"not held: {sentence}")
    todo = plan(found)
    if not todo["units"] and not todo["scripts"]:
        here.noop("no unit, timer or cron.* script that would start containers")
        return
    yield StringCommand(spark_host("holds", "put") + " > /dev/null", _stdin=json.dumps(todo))
    here.changed()
    left = armed_names(here.known(here.read().starters, "what could still start an engine:"))
    if left:
        yield here.refuse(f"still able to start containers: {', '.join(left)}")


def armed_names(found: Starters) -> list[str]:
    return [s.name for s in starters_sources(found) if s.status == "armed"]


@step
def rearmed(here: Here) -> Commands:
    """
    Give held units, timers and cron.* scripts back, and start those that ran.

    + here: this host's share of the run
    """
    found = here.known(here.read().starters, "what could start an engine beside cron:")
    names = [s.name for s in starters_sources(found) if s.status == "held"]
    if not here.executing and faults(here.job):
        # What this run would hold for its launch it would give back here: a plan says so.
        names += armed_names(found)
    if not names:
        here.noop("no held unit, timer or cron.* script")
        return
    yield StringCommand(spark_host("holds", "rearm") + " > /dev/null")
    here.changed()
    now = here.known(here.read().starters, "what could start an engine beside cron:")
    if any(s.status == "held" for s in starters_sources(now)):
        yield here.refuse(f"{', '.join(names)} could not all be given back")

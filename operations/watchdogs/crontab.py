"""Watchdogs in crontabs: held behind a dated tag, given back byte for byte. The text is pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from datetime import date, timedelta

from pyinfra.api.command import StringCommand

from facts.run.unknown import Unknown
from facts.watchdogs.crontab import Crontabs, Line, Table
from operations.pair.identity import faults
from operations.run.job import Commands, Here, Job, refuse, step
from operations.run.journal import put, quiet


def tag_of(word: str, day: date) -> str:
    """What stands before a held line: ``#SPARK-HELD-20260826 `` (seed 002's way of doing it)."""
    return f"#{word}-{day:%Y%m%d} "


def held_pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"#{re.escape(word)}-\d{{8}} ")


def hold(text: str, word: str, day: date, numbers: Collection[int]) -> str:
    """Put the dated tag before the lines of these numbers; all other bytes stay as they are."""
    lines = text.split("\n")
    there = set(lines)

    def tagged(line: str) -> str:
        free = day
        while tag_of(word, free) + line in there:  # else nobody could tell it from that one later
            free -= timedelta(days=1)
        return tag_of(word, free) + line

    return "\n".join(tagged(li) if n in numbers else li for n, li in enumerate(lines, start=1))


def rearm(text: str, word: str, kept: Collection[str] = ()) -> str:
    """Take the dated tag away again, whatever its date, but not from the lines in `kept`."""
    lines = [(line, held_body(line, word, kept)) for line in text.split("\n")]
    return "\n".join(line if body is None else body for line, body in lines)


def held_body(line: str, word: str, kept: Collection[str] = ()) -> str | None:
    """The line as it was before we held it, None for one that we did not."""
    tag = held_pattern(word).match(line)
    return line[tag.end() :] if tag and line not in kept else None


def put_back(table: Table, word: str) -> dict[int, int]:
    """Numbers of lines that are an armed copy of a held one, and that one's number.

    Whoever keeps such a table (Ansible, a person) did not find the line and added it again.
    """
    bodies: dict[str, int] = {}
    lines = table.text.split("\n")
    for number, line in enumerate(lines, start=1):
        body = held_body(line, word, table.kept)
        if body:
            bodies.setdefault(body, number)
    return {n: bodies[line] for n, line in enumerate(lines, start=1) if line in bodies}


def armed_lines(table: Table) -> dict[int, Line]:
    """Its watchdogs that cron would run; none where it passes over the table."""
    return {} if table.inert else {n: one for n, one in table.lines.items() if not one.tag}


def watchdogs(found: Crontabs) -> list[tuple[Table, dict[int, Line]]]:
    """Armed watchdog lines by crontab; tables without one left out."""
    armed = [(table, armed_lines(table)) for table in found.tables]
    return [(table, lines) for table, lines in armed if lines]


def install(table: Table, text: str, word: str) -> Iterator[StringCommand]:
    """Write a crontab in place with its owner and mode, and have cron notice it.

    Not through crontab(1): some versions put a header with the time into the file.
    """
    yield put(table.path, text.encode("latin-1"), table.mode, (table.uid, table.gid), word)


@step
def held(here: Here, for_good: bool) -> Commands:
    """
    Hold every cron line that would start containers, and let a running one come to its end.

    + here: this host's share of the run
    + for_good: hold them also when nothing is to be launched or taken down

    The lines stay in the crontab behind a dated tag. Undo: ``rearmed``, or the journal.
    """
    if not for_good and not faults(here.job):
        return
    found = here.known(here.read().crontab, "crontabs")
    armed = watchdogs(found)
    if not armed:
        here.noop("no cron line that would start containers")
        return
    word = here.cluster.tags.hold
    wanted = {}
    for table, lines in armed:
        for number, first in put_back(table, word).items():
            told = f"{table.title} line {number} is the held line {first}, armed again by somebody"
            here.warn(f"resurrection: {told}; it is held too")
        text = hold(table.text, word, date.today(), lines)
        wanted[table.path] = text
        yield from install(table, text, word)
    judged = [line for _, lines in armed for line in lines.values()]
    running = {
        "scripts": sorted({script for line in judged for script in line.scripts}),
        "commands": [line.command for line in judged],
    }
    yield StringCommand(quiet("crontab", "settle"), _stdin=json.dumps(running))
    here.changed()
    yield from read_back(here.job, here.rank, wanted)


@step
def rearmed(here: Here) -> Commands:
    """
    Give held cron lines back, byte for byte.

    + here: this host's share of the run
    """
    found = here.known(here.read().crontab, "crontabs")
    for path in found.deleted:
        here.warn(
            f"{path} was deleted while lines of it were held: they are not given back; "
            f"deploys/undo.py --data force={path} makes the file anew as it was found"
        )
    word = here.cluster.tags.hold
    given = {table.path: rearm(table.text, word, table.kept) for table in found.tables}
    wanted = {t.path: given[t.path] for t in found.tables if given[t.path] != t.text}
    if not here.executing and faults(here.job):
        # What this run would hold for its launch it would give back here: a plan says so.
        wanted |= {table.path: table.text for table, _ in watchdogs(found)}
    if not wanted:
        here.noop("no held cron line")
        return
    for table in found.tables:
        if table.path in wanted:
            yield from install(table, wanted[table.path], word)
    here.changed()
    yield from read_back(here.job, here.rank, wanted)


def read_back(job: Job, rank: int, wanted: dict[str, str]) -> Commands:
    """Fail unless the crontabs on the host are now what was written."""
    host = job.hosts[rank]
    now = job.read(host).crontab
    texts = {} if isinstance(now, Unknown) else {t.path: t.text for t in now.tables}
    for path, text in wanted.items():
        if texts.get(path) != text:
            yield refuse(job, f"{host.name}: {path} is not what was written")

"""Watchdogs in crontabs: held behind a dated tag, given back byte for byte. The text is pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from datetime import date, timedelta

from pyinfra.api.command import StringCommand

from facts.run.unknown import Unknown
from facts.watchdogs.crontab import Crontabs, Table
from operations.pair.identity import faults
from operations.run.job import Commands, Here, Job, refuse, step
from operations.run.journal import put, quiet

# Words in a command that start containers or an engine; whole words, so that `docker` in a path
# such as /etc/docker-backup is one too: cron jobs that touch docker are worth a look.
STARTER = re.compile(r"\b(docker|podman|nerdctl|vllm|sglang|ray start)\b")
ASSIGNMENT = re.compile(r"^[ \t]*[A-Za-z_\"'][^=]*=")
PATH = re.compile(r"(?<![\w./-])/[\w./+@:-]+")
TOKEN = re.compile(r"[^\s;|&()<>\"'`=]+")  # as spark-host cuts lines into words


def is_job(line: str) -> bool:
    """Does cron run this line? Comments, blank lines and assignments are not jobs."""
    bare = line.lstrip(" \t")
    return bool(bare.strip()) and not bare.startswith("#") and not _assigns(line)


def _assigns(line: str) -> bool:
    """NAME = value; a job has an `=` only after its five time fields or its @nickname."""
    bare = line.lstrip(" \t")
    return bool(ASSIGNMENT.match(line)) and not re.match(r"[\d*@]", bare)


def is_watchdog(line: str, starters: frozenset[str]) -> bool:
    """A job that starts containers, by its own words or by those of a script that it names."""
    if not is_job(line):
        return False
    return bool(STARTER.search(line)) or bool(words(line) & starters)


def words(line: str) -> set[str]:
    """The words of a command that may name a script."""
    return {*PATH.findall(line), *TOKEN.findall(line)}


def command_of(line: str, place: str | None = None) -> str:
    """What cron gives to the shell: all that stands behind the time and, in a system table, a user.

    An unescaped % ends it, an escaped one loses its backslash: crontab(5).
    place: path of a system table
    """
    bare = line.lstrip(" \t")
    fields = (1 if bare.startswith("@") else 5) + (1 if place else 0)
    if place == "/etc/anacrontab":
        fields = 3
    found = re.match(rf"(?:[^ \t]+[ \t]+){{{fields}}}(.*)", bare)
    return re.split(r"(?<!\\)%", found[1])[0].replace("\\%", "%") if found else ""


def tag_of(word: str, day: date) -> str:
    """What stands before a held line: ``#SPARK-HELD-20260826 `` (seed 002's way of doing it)."""
    return f"#{word}-{day:%Y%m%d} "


def held_pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"#{re.escape(word)}-\d{{8}} ")


def hold(text: str, word: str, day: date, chosen: Callable[[str], bool]) -> str:
    """Put the dated tag before every chosen line; all other bytes stay as they are."""
    lines = text.split("\n")
    there = set(lines)

    def tagged(line: str) -> str:
        free = day
        while tag_of(word, free) + line in there:  # else nobody could tell it from that one later
            free -= timedelta(days=1)
        return tag_of(word, free) + line

    return "\n".join(tagged(line) if chosen(line) else line for line in lines)


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


def watchdogs(found: Crontabs) -> list[tuple[Table, list[str]]]:
    """Armed watchdog lines by crontab; tables without one, or that cron ignores, left out."""
    armed = []
    for table in found.tables:
        if table.inert:
            continue
        lines = [li for li in table.text.split("\n") if is_watchdog(li, found.starters)]
        if lines:
            armed.append((table, lines))
    return armed


def scripts(lines: list[str], starters: frozenset[str]) -> list[str]:
    """The starter scripts that these lines name, each once."""
    return sorted({word for line in lines for word in words(line) & starters})


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
    for table, _ in armed:
        for number, first in put_back(table, word).items():
            told = f"{table.title} line {number} is the held line {first}, armed again by somebody"
            here.warn(f"resurrection: {told}; it is held too")
        text = hold(table.text, word, date.today(), lambda li: is_watchdog(li, found.starters))
        wanted[table.path] = text
        yield from install(table, text, word)
    running = {
        "scripts": scripts([line for _, lines in armed for line in lines], found.starters),
        "commands": [command_of(line, table.place) for table, lines in armed for line in lines],
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

"""Watchdogs in crontabs: held behind a dated tag, given back byte for byte. The text is pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import date

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation

from facts.crontab import Crontabs, Table
from facts.unknown import Unknown
from operations.job import Commands, Job, refuse
from operations.journal import put
from operations.pair import faults
from operations.remote import spark_host

# Words in a command that start containers or an engine; whole words, so that `docker` in a path
# such as /etc/docker-backup is one too: cron jobs that touch docker are worth a look.
STARTER = re.compile(r"\b(docker|podman|nerdctl|vllm|sglang|ray start)\b")
ASSIGNMENT = re.compile(r"^[ \t]*[A-Za-z_\"'][^=]*=")
PATH = re.compile(r"(?<![\w./-])/[\w./+@:-]+")
TOKEN = re.compile(r"[^\s;|&()<>\"'`=]+")  # as spark-host cuts lines into words
SETTLE_S = 20  # a watchdog that runs at this moment is awaited so long, then ended


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


def tag_of(word: str, day: date) -> str:
    """What stands before a held line: ``#SPARK-HELD-20260826 `` (seed 002's way of doing it)."""
    return f"#{word}-{day:%Y%m%d} "


def held_pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"#{re.escape(word)}-\d{{8}} ")


def hold(text: str, word: str, day: date, chosen: Callable[[str], bool]) -> str:
    """Put the dated tag before every chosen line; all other bytes stay as they are."""
    lines = text.split("\n")
    return "\n".join(tag_of(word, day) + line if chosen(line) else line for line in lines)


def rearm(text: str, word: str) -> str:
    """Take the dated tag away again, whatever its date; nothing else is touched."""
    pattern = held_pattern(word)
    lines = text.split("\n")
    return "\n".join(line[m.end() :] if (m := pattern.match(line)) else line for line in lines)


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


@operation()
def held(job: Job, rank: int, for_good: bool) -> Commands:
    """
    Hold every cron line that would start containers, and let a running one come to its end.

    + job: the run
    + rank: of this host
    + for_good: hold them also when nothing is to be launched or taken down

    The lines stay in the crontab behind a dated tag. Undo: ``rearmed``, or the journal.
    """
    host = job.hosts[rank]
    if not for_good and not faults(job, fabric_too=False):
        return
    found = job.read(host).crontab
    if not isinstance(found, Crontabs):
        yield refuse(job, f"{host.name}: crontabs {found}")
        return
    armed = watchdogs(found)
    if not armed:
        host.noop("no cron line that would start containers")
        return
    word = job.cluster.tags.hold
    wanted = {}
    for table, _ in armed:
        text = hold(table.text, word, date.today(), lambda li: is_watchdog(li, found.starters))
        wanted[table.path] = text
        yield from install(table, text, word)
    running = scripts([li for _, lines in armed for li in lines], found.starters)
    if running:
        settle = spark_host("crontab", "settle", str(SETTLE_S))
        names = shlex.quote(json.dumps(running))
        yield StringCommand(f"printf %s {names} | {settle} > /dev/null")
    job.changed(host)
    yield from read_back(job, rank, wanted)


@operation()
def rearmed(job: Job, rank: int) -> Commands:
    """
    Give held cron lines back, byte for byte.

    + job: the run
    + rank: of this host
    """
    host = job.hosts[rank]
    found = job.read(host).crontab
    if not isinstance(found, Crontabs):
        yield refuse(job, f"{host.name}: crontabs {found}")
        return
    word = job.cluster.tags.hold
    wanted = {t.path: rearm(t.text, word) for t in found.tables if rearm(t.text, word) != t.text}
    if not job.executing and faults(job, fabric_too=False):
        # What this run would hold for its launch it would give back here: a plan says so.
        wanted |= {table.path: table.text for table, _ in watchdogs(found)}
    if not wanted:
        host.noop("no held cron line")
        return
    for table in found.tables:
        if table.path in wanted:
            yield from install(table, wanted[table.path], word)
    job.changed(host)
    yield from read_back(job, rank, wanted)


def read_back(job: Job, rank: int, wanted: dict[str, str]) -> Commands:
    """Fail unless the crontabs on the host are now what was written."""
    host = job.hosts[rank]
    now = job.read(host).crontab
    texts = {} if isinstance(now, Unknown) else {t.path: t.text for t in now.tables}
    for path, text in wanted.items():
        if texts.get(path) != text:
            yield refuse(job, f"{host.name}: {path} is not what was written")

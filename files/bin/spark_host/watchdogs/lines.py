"""How cron takes a line of a table apart: crontab(5). Pure text; everybody else gets a verdict."""

from __future__ import annotations

import os
import re

# What stands before a line that was held: by this tool, or by whoever has the same habit.
HELD = re.compile(r"#[A-Z0-9-]+-\d{8} ")
# NAME = value, either of them in quotes or not.
VARIABLE = re.compile(rb"^[ \t]*[\"']?([A-Za-z_]\w*)[\"']?[ \t]*=(.*)$", re.MULTILINE)
ASSIGNMENT = re.compile(r"[A-Za-z_\"'][^=]*=")


def parted(line: str) -> tuple[str, str]:
    """(the dated tag or "", the line as it was before that was put there)."""
    found = HELD.match(line)
    return (found[0], line[found.end() :]) if found else ("", line)


def is_job(line: str) -> bool:
    """Does cron run this line? Comments, blank lines and assignments are not jobs."""
    bare = line.lstrip(" \t")
    return bool(bare.strip()) and not bare.startswith("#") and not ASSIGNMENT.match(bare)


def fields(path: str, in_system: bool, line: str) -> int:
    """How many words stand before the command; a system table has a user among them."""
    if os.path.basename(path) == "anacrontab":
        return 3
    return (1 if line.lstrip(" \t").startswith("@") else 5) + (1 if in_system else 0)


def rest(path: str, in_system: bool, line: str) -> str:
    """All that stands behind the time and the user, as written; "" where nothing does."""
    count = fields(path, in_system, line)
    found = re.match(rf"(?:[^ \t]+[ \t]+){{{count}}}(.*)", line.lstrip(" \t"), re.DOTALL)
    return found[1] if found else ""


def command(path: str, in_system: bool, line: str) -> str:
    """What cron gives to the shell: an unescaped % ends it, an escaped one loses its backslash."""
    text = rest(path, in_system, line)
    return re.split(r"(?<!\\)%", text)[0].replace("\\%", "%")


def user(path: str, line: str) -> str:
    """Who runs a line of a system table; root runs all of anacron's."""
    if os.path.basename(path) == "anacrontab":
        return "root"
    words = line.split(None, 6)
    at = 1 if line.lstrip(" \t").startswith("@") else 5
    return words[at] if len(words) > at else "root"


def variables(data: bytes) -> dict[str, list[str]]:
    """{name: values} that a table gives to the commands below."""
    found: dict[str, list[str]] = {}
    for name, said in VARIABLE.findall(data):
        value = said.strip().decode("latin-1")
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        found.setdefault(name.decode(), []).append(value[1:-1] if quoted else value)
    return found


def unended(text: str) -> int | None:
    """Number of a last line that is a job and has no newline: cron does not run that one."""
    last = text.rsplit("\n", 1)[-1]
    return text.count("\n") + 1 if is_job(last) else None

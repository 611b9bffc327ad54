"""What lay where a model file belongs, kept beside the model and given back by undo.

A folder, a link or a small file that somebody may have edited is never thrown away: it goes into
.spark-converge-aside in the model's directory, and the journal knows from where. Weights that
turned out wrong are not kept; the pinned ones take their place.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from typing import Any

from run import homes, journal
from run.verdicts import Entry, subject, verdict

from model import reading

FOLDER = ".spark-converge-aside"
WEIGHTS = ".safetensors"


def keep(directory: str, name: str, then: str) -> str:
    """Move what is at a name aside; `then`: SHA-256 of what comes in its place, or "" for nothing.

    A file stays in its place until the other one takes it, where the file system has hard links.
    """
    path = f"{directory}/{name}"
    journal.make_folder(f"{directory}/{FOLDER}", 0o755)
    flat = name.replace("/", "_")
    to = next(
        p
        for n in itertools.count()
        if not os.path.lexists(p := f"{directory}/{FOLDER}/{flat}" + (f".{n}" if n else ""))
    )
    journal.setting(f"aside.{path}", to, then)
    with homes.pinned(path) as old, homes.pinned(to) as new:
        if then and not stat.S_ISDIR(os.lstat(old).st_mode):
            with contextlib.suppress(OSError):
                os.link(old, new, follow_symlinks=False)
                return to
        os.rename(old, new)
    return to


def clear(directory: str, name: str, then: str) -> str | None:
    """Make room for the pinned file; where the owner's went, None when nothing had to be kept."""
    path = f"{directory}/{name}"
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(info.st_mode) and name.endswith(WEIGHTS):
        return None
    return keep(directory, name, then)


def look(entry: Entry) -> dict[str, Any]:
    path, kept = subject(entry), entry["value"]
    if not os.path.lexists(kept):
        there = os.path.lexists(path)
        return verdict("same") if there else verdict("gone", f"{kept} was removed since")
    if not os.path.lexists(path):
        return verdict("restore")
    if os.path.islink(kept) or not os.path.isfile(kept) or path.endswith(WEIGHTS):
        return verdict("gone", f"the pinned file stays; what lay there is {kept}")
    if os.path.isfile(path) and reading.sha256(path) in entry["ours"]:
        return verdict("restore")
    return verdict("edited", f"changed since; what lay there before is {kept}")


def give(entry: Entry) -> None:
    with homes.pinned(entry["value"]) as old, homes.pinned(subject(entry)) as new:
        os.rename(old, new)
    # The folder goes with the last that was in it.
    journal.remove_folder(os.path.dirname(entry["value"]))

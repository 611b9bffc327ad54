"""Files and links as they were found: how they stand now (run/verdicts.py), and given back.

An entry with "forced" is given back although somebody edited its file since.
"""

from __future__ import annotations

import base64
import difflib
import os
from typing import Any

from run import journal
from run.verdicts import Entry, verdict
from systemd import kept
from watchdogs import crontab


def wanted(entry: Entry, now: dict[str, Any]) -> dict[str, Any]:
    """The content to give back: the original, or the owner's later table without our tags."""
    if entry.get("forced"):
        return entry
    mark = journal.fingerprint(now)
    ours = mark in (journal.fingerprint(entry), *entry["ours"])
    if entry["tag"] and "b64" in now and (entry["edits"] or not ours):
        return crontab.untagged(now, entry)
    return entry


def hint(entry: Entry, now: dict[str, Any]) -> str:
    """Which lines differ from what was written last; never their text, which may be a secret."""
    if not now["existed"]:
        return "it was removed since"
    if "b64" not in now or not entry["written"]:
        return "it was made anew since"
    old, new = (
        base64.b64decode(b64).decode("latin-1").splitlines()
        for b64 in (entry["written"], now["b64"])
    )
    if old == new:
        return "its mode, owner or last line's end was changed since"
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    lines = [
        f"{first + 1}" if last <= first + 1 else f"{first + 1}-{last}"
        for kind, _, _, first, last in blocks
        if kind != "equal"
    ]
    return f"edited since: line {', '.join(lines)}"


def look(entry: Entry) -> dict[str, Any]:
    now = journal.content(entry["path"])
    mark, target = journal.fingerprint(now), wanted(entry, now)
    if mark == journal.fingerprint(target):
        return verdict("same")
    if mark in entry["ours"] or entry.get("forced") or target is not entry:
        return verdict("restore")
    original = os.path.basename(journal.entry_path("files", entry["path"]))
    return verdict("edited", f"{hint(entry, now)}; the original is in {original}")


def give(entry: Entry) -> None:
    try:
        kept.end_own(entry)
    finally:
        put_back(entry)


def put_back(entry: Entry) -> None:
    path = entry["path"]
    now = journal.content(path)
    target = wanted(entry, now)
    if journal.fingerprint(now) not in (journal.fingerprint(entry), *entry["ours"]):
        journal.record(path, now, target)  # an edit that is written over is kept in the journal
    if not target["existed"]:
        journal.take_away(path)
        for folder in entry.get("made", ()):
            journal.remove_folder(folder)
        return
    journal.make_folder(os.path.dirname(path), 0o755)
    owner = (target["uid"], target["gid"])
    if "b64" in target:
        data = base64.b64decode(target["b64"])
        journal.write(path, data, target["mode"], owner, target.get("xattrs"))
        return
    journal.write_link(path, target["link"], owner)

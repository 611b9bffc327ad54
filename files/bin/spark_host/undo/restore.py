"""Everything in the journal given back on this host: asked first, then done, then read back."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from network.kept import lasting
from run import journal
from run.command import Failed
from run.verdicts import Entry, Kind, Looked, key, verdict
from systemd import links

from undo import kinds

# RecursionError: a value of JSON that nests without end
ERRORS = (Failed, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def everything(forced: Collection[str] = ()) -> list[Entry]:
    """All entries, those of a systemctl that was cut off and damaged ones included; nothing is
    written. forced: paths of files that are given back whatever somebody has made of them."""
    whole, damaged = journal.read_all()
    found = lasting(whole)
    known = {e.get("path") for e in found}
    cut = None
    try:
        cut = links.pending()
    except ValueError as error:
        damaged[links.pending_path()] = str(error)
    for path, old, new in links.differences(cut["links"], cut["units"]) if cut else ():
        if path not in known:
            ours = [journal.fingerprint(new)]
            rest = {"ours": ours, "edits": [], "written": None, "tag": None}
            found.append({"kind": "files", "path": path, **old, **rest})
    for entry in found:
        entry["forced"] = entry.get("path") in forced
    return [*found, *({"kind": "damaged", "path": p, "why": why} for p, why in damaged.items())]


def named(kind: Kind, entry: Entry) -> str:
    try:
        return kind.label(entry)
    except ERRORS:
        return key(entry)


def look_at(kind: Kind, mine: list[Entry], looked: Looked) -> Iterator[tuple[Entry, Any]]:
    """The verdicts of one kind; an entry that cannot be read does not stop the others."""
    ask = kind.look
    try:
        seen = [kind.read(mine, looked)] if kind.read and mine else []
    except ERRORS as error:
        why = str(error)
        seen, ask = [], lambda _: verdict("unread", why)
    for entry in mine:
        try:
            found = ask(entry, *seen) if ask else {}
        except ERRORS as error:
            found = verdict("unread", str(error))
        yield entry, {"name": named(kind, entry), **found}


def look(entries: list[Entry]) -> Looked:
    """[(entry, verdict)] in the order of their kinds; last what nothing can be given back from."""
    mine: dict[str, list[Entry]] = {}
    looked: Looked = []
    for entry in entries:
        kind = None if entry["kind"] == "damaged" else kinds.of(entry)
        mine.setdefault(kind.name if kind else "", []).append(entry)
    for kind in kinds.KINDS:
        looked += look_at(kind, mine.get(kind.name, []), looked)
    for entry in mine.get("", ()):
        why = entry.get("why", "this version does not know such a thing")
        looked.append((entry, {"name": key(entry), **verdict("unread", why)}))
    return looked


def section(_: dict[str, Any]) -> dict[str, Any]:
    """The plan as a part of the snapshot: {"entries": [{name, verdict, why}]}."""
    return {"entries": [v for _, v in look(everything())]}


def attempt(
    failures: dict[str, str], name: str, act: Callable[[Any], object], on: Entry | Looked | str
) -> None:
    try:
        act(on)
    except ERRORS as error:
        failures[name] = str(error)


def give_back(looked: Looked, asked: Collection[Kind] = kinds.KINDS) -> dict[str, str]:
    """Restore all that can be, kind after kind; {name: why it failed}."""
    failures: dict[str, str] = {}
    for kind in asked:
        for entry, found in looked:
            if kind.give and found["verdict"] == "restore" and kinds.of(entry) is kind:
                attempt(failures, found["name"], kind.give, entry)
        if kind.together:
            attempt(failures, kind.name, kind.together, looked)
    for entry, _ in looked:
        if entry["kind"] == "files":
            new = journal.new_path(entry["path"])  # of a write that was cut short
            attempt(failures, new, journal.take_away, new)
    return failures


def aside_folder() -> str:
    base = f"{journal.ROOT}.undone-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    return next(
        p for n in itertools.count() if not os.path.exists(p := f"{base}-{n}" if n else base)
    )


def set_aside(entries: list[Entry]) -> str | None:
    """Move these entries away, out of the journal; the folder that has them now."""
    if not entries:
        return None
    aside = aside_folder()
    for entry in entries:
        path = journal.entry_path(entry["kind"], key(entry))
        journal.make_folder(f"{aside}/{entry['kind']}", 0o700)
        os.rename(path, f"{aside}/{entry['kind']}/{os.path.basename(path)}")
    journal.sync_folder(os.path.dirname(journal.ROOT))
    return aside


def put_aside(entries: list[Entry], left: list[dict[str, str]]) -> str | None:
    """Move the journal away whole, or while something is left only what was given back."""
    if left:
        return set_aside(entries)
    aside = aside_folder()
    os.rename(journal.ROOT, aside)
    journal.sync_folder(os.path.dirname(journal.ROOT))
    return aside


def not_as_found(after: Looked, failures: dict[str, str]) -> list[dict[str, str]]:
    """[{name, why}], each once. What has entries is believed by how they stand, whatever a program
    said; what has none by what it said."""
    left = []
    for _, v in after:
        why = failures.get(v["name"]) or v["why"] or "it is not as it was"
        one = {"name": v["name"], "why": why}
        if v["verdict"] not in ("same", "gone") and one not in left:
            left.append(one)
    told = {one["name"] for one in left}
    for kind in kinds.KINDS:
        if kind.name in failures and kind.name not in told and (left or not kind.mine):
            left.append({"name": kind.name, "why": failures[kind.name]})
    return left


def undo(forced: Collection[str]) -> dict[str, Any]:
    """{ok, restored: [name], left: [{name, why}], notes: [sentence], aside: folder}."""
    with contextlib.suppress(ValueError):  # a damaged record: named with the entries
        links.settle_cut()
    looked = look(everything(forced))
    failures = give_back(looked)
    after = look(everything())
    left = not_as_found(after, failures)
    wrong = {one["name"] for one in left}
    return {
        "ok": not left,
        "restored": sorted({v["name"] for _, v in looked if v["verdict"] == "restore"} - wrong),
        "left": left,
        "notes": [f"{v['name']}: {v['why']}" for _, v in after if v["verdict"] == "gone"],
        "aside": put_aside([e for e, v in after if v["name"] not in wrong], left),
    }

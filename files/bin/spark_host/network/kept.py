"""The fabric's links as they were found: how they stand now, and given back all at once."""

from __future__ import annotations

import json
from typing import Any

from run.verdicts import Entry, Looked, among, key, subject, to_give, verdict

from network import fabric, live, manager

MANAGED, LINK = "managed.", "link."


def lasting(entries: list[Entry]) -> list[Entry]:
    """Without the links of a fabric trial that a power cut ended before it wrote any file: the host
    came up with its old network, and what the owner has made of the links since is the owner's."""
    if fabric.of_this_boot() or among(entries, f"{fabric.ETC}/"):
        return entries
    return [e for e in entries if not key(e).startswith((MANAGED, LINK))]


def look_managed(entry: Entry) -> dict[str, Any]:
    now = manager.is_managed(subject(entry))
    if now is None:
        return verdict("gone", "there is no such device, or NetworkManager does not run")
    return verdict("same" if now else "restore")


def read(entries: list[Entry], looked: Looked) -> tuple[live.Links, list[str]]:
    """The links as they are, and netplan's files that somebody edited: those keep what is there."""
    edited = [key(e) for e, v in looked if v["verdict"] == "edited"]
    kept = [path for path in edited if path.startswith(f"{fabric.ETC}/")]
    return live.live([subject(e) for e in entries]), kept


def look(entry: Entry, found: tuple[live.Links, list[str]]) -> dict[str, Any]:
    (now, edited), name = found, subject(entry)
    left = live.differences({name: json.loads(entry["value"])}, now)
    if left and edited:
        return verdict("edited", f"{', '.join(edited)} was edited since")
    return verdict("restore" if left else "same", "; ".join(left))


def give(looked: Looked) -> None:
    """Links come back as a whole: also where only a file or a hold of NetworkManager is to."""
    links = [(e, v["verdict"]) for e, v in looked if key(e).startswith(LINK)]
    words = {word for _, word in links}
    if to_give(looked, MANAGED, LINK, f"{fabric.ETC}/") and "edited" not in words:
        fabric.end_trial()
        was = {subject(e): json.loads(e["value"]) for e, word in links if word != "unread"}
        live.restore(was, [subject(e) for e in to_give(looked, MANAGED)])

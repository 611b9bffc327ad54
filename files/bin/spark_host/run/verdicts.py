"""The kinds of things that the journal keeps, and the words for how each stands now.

same      as it was found, nothing to do
restore   what was set by spark-converge is still there
edited    somebody changed it since; it is left alone
gone      there is nothing any more that could be given back
unread    could not be read
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Entry = dict[str, Any]
Looked = list[tuple[Entry, dict[str, Any]]]


class Kind(NamedTuple):
    """One kind of entry, or with nothing of its own an act that follows from the others.

    mine: how the name of a setting or the path of a file begins; the longest beginning counts
    called: an entry's name for people, with its subject for {}; or a function that makes it
    look: the verdict on an entry; it also takes what `read` said, where there is a `read`
    give: one entry, given back
    read: what `look` needs of the host, read once; of its entries and of all looked at before
    together: what is given back at once, or told once, after its entries; of all that was looked at
    """

    name: str
    mine: tuple[str, ...] = ()
    called: str | Callable[[Entry], str] = "{}"
    look: Callable[..., dict[str, Any]] | None = None
    give: Callable[[Entry], object] | None = None
    read: Callable[[list[Entry], Looked], Any] | None = None
    together: Callable[[Looked], object] | None = None

    def label(self, entry: Entry) -> str:
        if isinstance(self.called, str):
            return self.called.replace("{}", subject(entry))
        return self.called(entry)


def key(entry: Entry) -> str:
    """The path of a file, the name of a setting."""
    found: str = entry["path"] if "path" in entry else entry["name"]
    return found


def subject(entry: Entry) -> str:
    """cups.service for the setting unit.cups.service, the path of a file."""
    return entry["path"] if "path" in entry else key(entry).split(".", 1)[1]


def verdict(word: str, why: str = "", **more: Any) -> dict[str, Any]:
    return {"verdict": word, "why": why, **more}


def set_since(entry: Entry, now: str | None, why_gone: str, what: str = "") -> dict[str, Any]:
    """The verdict on a setting that is one word; now: how it is, None where there is none."""
    if now is None:
        return verdict("gone", why_gone)
    if now == entry["value"]:
        return verdict("same")
    if now in entry["ours"]:
        return verdict("restore", what)
    return verdict("edited", f"it is {now}, set by somebody since; it was {entry['value']}")


def among(entries: Iterable[Entry], *beginnings: str) -> list[Entry]:
    return [entry for entry in entries if key(entry).startswith(beginnings)]


def to_give(looked: Looked, *beginnings: str) -> list[Entry]:
    """Those that are to be given back, of the names or paths that begin so."""
    return among((e for e, v in looked if v["verdict"] == "restore"), *beginnings)

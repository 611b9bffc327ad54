"""Some of what the journal has given back, the rest left as it is.

rearm {"units": [unit], "files": [path]}   restores these units with their links and our drop-ins,
    and these files; their entries are put aside, so that a later change keeps the state that it
    finds then
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from typing import Any

from run import journal
from run.command import Failed
from run.verdicts import Entry
from systemd import links, units

from undo import kinds, restore


def belongs(entry: Entry, names: Collection[str], paths: Collection[str]) -> bool:
    """Is an entry about one of these units, a link or our drop-in of one, or one of these files?"""
    if entry["kind"] == "settings":
        return entry["name"] in {f"unit.{name}" for name in names}
    path = entry["path"]
    ends = {os.path.basename(path), os.path.basename(entry.get("link", ""))}  # an alias leads to it
    of_unit = path.startswith((*links.FOLDERS,)) and not ends.isdisjoint(names)
    return path in paths or of_unit or path in map(units.drop_in, names)


def rearm(names: Collection[str], paths: Collection[str]) -> dict[str, Any]:
    """{"restored": [name], "notes": [sentence]}; raises Failed naming what is not as it was."""
    links.settle_cut()
    mine = [e for e in journal.entries() if belongs(e, names, paths)]
    looked = restore.look(mine)
    failures = restore.give_back(looked, [kind for kind in kinds.KINDS if kind is not kinds.HELD])
    after = restore.look(mine)
    wrong = {v["name"]: v["why"] for _, v in after if v["verdict"] not in ("same", "gone")}
    restore.set_aside([e for e, v in after if v["name"] not in wrong])
    if wrong or failures:
        told = {**failures, **{k: failures.get(k) or why for k, why in wrong.items()}}
        raise Failed("; ".join(f"{name}: {why or 'not as it was'}" for name, why in told.items()))
    return {
        "restored": [v["name"] for _, v in looked if v["verdict"] == "restore"],
        "notes": [f"{v['name']}: {v['why']}" for _, v in after if v["verdict"] == "gone"],
    }


def main(argv: list[str]) -> dict[str, Any]:
    asked = json.loads(argv[0])
    with journal.alone():
        return rearm(asked["units"], asked["files"])

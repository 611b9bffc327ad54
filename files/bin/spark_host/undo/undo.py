"""Give this host back as the journal has it.

undo --plan               what would be given back, what somebody edited since; changes nothing
undo --run                give it back, from a unit of its own that outlives the SSH link
    --force PATH ...      also files that were edited since; the edits stay in the journal
    --engines JSON        how engine containers look besides our labels (see engines.py)
    --words               sentences for a person instead of JSON

Cut short at any point, another --run completes it: the journal is put aside only at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Collection
from typing import Any

from engines import engines
from run import journal, lease
from run.command import PROGRAM, run

from undo import restore

STATE = "/run/spark-converge"
ANSWER = f"{STATE}/undo.json"
UNIT = "spark-converge-undo"
LIMIT_S = 900
NOTHING = {"ok": True, "restored": [], "left": [], "notes": [], "aside": None}


def refusal(signs: dict[str, Any]) -> str | None:
    """Why nothing is given back now, None when nothing speaks against it."""
    busy = engines.running(signs)
    if busy:
        return f"refused while {', '.join(busy)} runs here: stop it first (docker stop)"
    return None


def at_work() -> str | None:
    """For a person at the console: a run from a control machine that changes this host now."""
    found = lease.holder()
    if found is None:
        return None
    return (
        f"refused: {found['job']}, started by {found['who']}, is changing this host; wait until it "
        f"has ended, or {lease.LAPSE_S} s if the machine that started it is lost"
    )


def active() -> bool:
    _code, out, _err = run(["systemctl", "is-active", UNIT])
    return out.strip() in ("active", "activating", "deactivating")


def detached(forced: list[str]) -> dict[str, Any]:
    """Start the work in a unit of its own, or join one that is at it, and wait for its answer."""
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    until = time.monotonic() + LIMIT_S
    if not active():
        if os.path.exists(ANSWER):
            os.unlink(ANSWER)
        work = [sys.executable, "-I", PROGRAM, "undo", "--here", "--force", *forced]
        start = ["systemd-run", "--quiet", "--wait", "--collect", f"--unit={UNIT}"]
        _code, _out, said = run([*start, *work], timeout_s=LIMIT_S)
    else:
        said = ""
        while active() and time.monotonic() < until:
            time.sleep(1)
    try:
        with open(ANSWER) as file:
            found: dict[str, Any] = json.load(file)
    except OSError:
        return {
            "ok": False,
            "message": f"no answer ({said.strip() or 'it was cut short'}): see "
            f"`journalctl -u {UNIT}`, then run it again",
        }
    return found


def here(forced: Collection[str]) -> dict[str, Any]:
    """In the unit: do it, and leave the answer behind."""
    try:
        with journal.alone():
            answer = restore.undo(forced)
    except restore.ERRORS as error:
        answer = {"ok": False, "message": f"{type(error).__name__}: {error}; run it again"}
    journal.write(ANSWER, json.dumps(answer).encode(), 0o600)
    return answer


def answer(args: argparse.Namespace) -> dict[str, Any]:
    if args.here:
        return here(frozenset(args.force))
    if os.geteuid():  # who may not read the journal is not told that there is nothing in it
        return {"ok": False, "message": "run it as root: sudo spark-converge-undo"}
    entries = restore.everything(args.force)
    if args.plan:
        return {"entries": [v for _, v in restore.look(entries)]}
    if not entries:
        return NOTHING
    why_not = refusal(json.loads(args.engines)) or (at_work() if args.words else None)
    return {"ok": False, "message": why_not} if why_not else detached(args.force)


def words(found: dict[str, Any]) -> list[str]:
    """The answer as lines for a person at the console."""
    if "message" in found:
        return [found["message"]]
    if "entries" in found:
        told = {
            "restore": "would be given back",
            "edited": "left alone",
            "gone": "nothing to give back",
            "unread": "could not be read",
        }
        lines = [
            f"{told[v['verdict']]}: {v['name']}" + (f" ({v['why']})" if v["why"] else "")
            for v in found["entries"]
            if v["verdict"] in told
        ]
        return lines or ["nothing to undo"]
    lines = [f"given back: {name}" for name in found["restored"]]
    lines += [f"note: {note}" for note in found["notes"]]
    lines += [f"NOT given back: {one['name']} ({one['why']})" for one in found["left"]]
    if found["left"]:
        lines.append("an edited file is written over with --force PATH; its edit is kept")
    if found["aside"]:
        lines.append(f"the journal of what was given back is now {found['aside']}")
    return lines or ["nothing to undo"]


def main(argv: list[str]) -> dict[str, Any] | int:
    parser = argparse.ArgumentParser(prog="spark-converge-undo", description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--plan", action="store_true", help="only say what would be given back")
    what.add_argument("--run", action="store_true", help="give it back (the default)")
    what.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--force", nargs="*", default=[], metavar="PATH", help="files that were edited since, too"
    )
    parser.add_argument("--engines", default="{}", help=argparse.SUPPRESS)
    parser.add_argument("--words", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    found = answer(args)
    if not args.words:
        return found
    sys.stdout.write("".join(f"{line}\n" for line in words(found)))
    return 0 if found.get("ok", True) else 1

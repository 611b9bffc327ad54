"""Every file of a revision in a directory with its size and SHA-256, where nobody publishes them.

run SECONDS < request   start the read in a unit of its own or join it; the answer, or how far it is
poll SECONDS            the same question later
stop                    end it; what was read so far is kept
here                    the read itself, in the unit

request: {"directory", "revision", "entries": [{"name", "size", "sha256"}]}, with null for what the
Hub does not say. A file that it has a hash for may be missing; it can be brought later.

What speaks against the revision at a glance is said before anything is read. What earlier reads
have shown is not believed; what this one shows is kept for verifications.
"""

from __future__ import annotations

import concurrent.futures
import os
from typing import Any

from run import detached
from run.command import Failed
from run.detached import Count, Work

from model import names, place, proofs, reading, shards
from model.shards import Fault, extra

AS_IT_LIES = {"links": "follow", "mount": None}


def glance(
    directory: str, entries: list[dict[str, Any]], revision: str
) -> tuple[list[tuple[int, str]], list[str], list[str]]:
    """What there is to read as (bytes, name), the largest first; what is missing and may be; and
    what speaks against the revision."""
    todo, missing, faults = [], [], []
    for entry in entries:
        path = f"{directory}/{entry['name']}"
        try:
            todo.append((shards.there(path, entry, AS_IT_LIES)[0], entry["name"]))
        except Fault as fault:
            if entry["sha256"] and not os.path.lexists(path):
                missing.append(entry["name"])
            else:
                faults.append(f"{entry['name']}: {fault}")
    wanted = {entry["name"] for entry in entries}
    faults += [
        f"{place.shown(name)}: not in revision {revision}" for name in extra(directory, wanted)
    ]
    return sorted(todo, key=lambda one: (-one[0], one[1])), missing, faults


def survey(request: dict[str, Any], count: Count) -> dict[str, Any]:
    """{"files": {name: {"size", "sha256"}}, "missing": [name], "faults": [sentence], "bytes",
    "seconds"}; with faults at a glance, no file is read."""
    names.checked(request["entries"], [])
    directory = names.folder(request["directory"])
    if not os.path.isdir(directory):
        raise Failed(f"{directory}: no such directory")
    todo, missing, faults = glance(directory, request["entries"], request["revision"])
    files = {} if faults else read(directory, todo, faults, count)
    return {
        "ok": True,
        "files": files,
        "missing": missing,
        "faults": faults,
        "bytes": count.done,
        "seconds": count.progress()["seconds"],
    }


def read(
    directory: str, todo: list[tuple[int, str]], faults: list[str], count: Count
) -> dict[str, dict[str, Any]]:
    count.total = sum(size for size, _ in todo)
    files = {}
    book = proofs.Book(directory, proofs.load(directory))
    try:
        with concurrent.futures.ThreadPoolExecutor(reading.workers()) as pool:
            jobs = [
                (name, pool.submit(shards.read_through, f"{directory}/{name}", count.add))
                for _, name in todo
            ]
            for name, job in jobs:
                try:
                    identity, sha256 = job.result()
                except Fault as fault:
                    faults.append(f"{name}: {fault}")
                    continue
                book.add(name, identity, sha256)
                files[name] = {"size": identity[0], "sha256": sha256}
    finally:
        book.close()
    return files


def subject(request: dict[str, Any]) -> str:
    return f"a full read of {request['directory']} for revision {request['revision'][:12]}"


def main(argv: list[str]) -> dict[str, Any]:
    work = Work("survey", subject, survey, lambda _: Count("read"), apart=("shards", "fetch"))
    return detached.command(work, argv)

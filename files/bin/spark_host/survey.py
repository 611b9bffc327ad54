"""Every file below a directory with its size and SHA-256, whatever anybody expects of it.

run SECONDS < request   start the read in a unit of its own or join it; the answer, or how far it is
poll SECONDS            the same question later
stop                    end it; what was read so far is kept
here                    the read itself, in the unit

request: {"directory"}

What earlier reads have shown is not believed; what this one shows is kept for verifications.
"""

from __future__ import annotations

import concurrent.futures
import os
from typing import Any

import detached
import place
import proofs
import reading
import shards
from detached import Count, Work
from run import Failed


def names(directory: str) -> list[str]:
    """Paths below the directory, the largest file first; what begins with a dot is not the model's
    but for .gitattributes, which every repository of the Hub has."""
    found = []
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if name[0] != ".")
        for name in files:
            if (name[0] != "." or name == ".gitattributes") and not name.endswith(place.PART):
                found.append(os.path.relpath(os.path.join(folder, name), directory))
    return sorted(found, key=lambda name: (-size(f"{directory}/{name}"), name))


def size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def survey(request: dict[str, Any], count: Count) -> dict[str, Any]:
    """{"files": {name: {"size", "sha256"}}, "faults": [sentence], "bytes", "seconds"}."""
    directory = request["directory"]
    if not os.path.isdir(directory):
        raise Failed(f"{directory}: no such directory")
    todo = names(directory)
    count.total = sum(size(f"{directory}/{name}") for name in todo)
    files, faults = {}, []
    book = proofs.Book(directory, {})
    try:
        with concurrent.futures.ThreadPoolExecutor(reading.workers()) as pool:
            jobs = [
                (name, pool.submit(shards.read_through, f"{directory}/{name}", count.add))
                for name in todo
            ]
            for name, job in jobs:
                try:
                    identity, sha256 = job.result()
                except shards.Fault as fault:
                    faults.append(f"{name}: {fault}")
                    continue
                book.add(name, identity, sha256)
                files[name] = {"size": identity[0], "sha256": sha256}
    finally:
        book.close()
    seconds = count.progress()["seconds"]
    return {"ok": True, "files": files, "faults": faults, "bytes": count.done, "seconds": seconds}


def subject(request: dict[str, Any]) -> str:
    return f"a full read of {request['directory']}"


def main(argv: list[str]) -> dict[str, Any]:
    work = Work("survey", subject, survey, lambda _: Count("read"), apart=("shards", "fetch"))
    return detached.command(work, argv)
